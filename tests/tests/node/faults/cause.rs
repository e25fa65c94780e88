//! How each fault is caused, and ended. Each function returns how many pods, processes or components it hit, and calls
//! [`Stack::release`] when the fault has begun if it lasts.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use sluice_harness::node::Component;
use sluice_tests::scenario::retry;

use super::fault::{Fault, Moment};
use super::manifests::INPUTS;
use super::stack::{Stack, failure, without_grace};
use super::stage::{ACCOUNT, Stage};
use super::{LIMIT, POLL_INTERVAL, pods};
use crate::install;

/// How long a component is away.
const ABSENCE: Duration = Duration::from_secs(10);
/// Longer than the node stays ready.
const LONG_ABSENCE: Duration = Duration::from_secs(75);
/// How often a slow API server pauses.
const PAUSE_COUNT: u32 = 8;
/// How long it pauses, and how long it answers in between.
const PAUSE: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_millis(500);
/// How long requests are throttled.
const THROTTLE: Duration = Duration::from_secs(20);
/// One request at a time, and no queues.
const THROTTLE_FLAGS: [&str; 3] = [
    "--enable-priority-and-fairness=false",
    "--max-requests-inflight=1",
    "--max-mutating-requests-inflight=1",
];
/// The storage of source-controller in the folder of its pod.
const STORAGE: &str = "volumes/kubernetes.io~empty-dir/data/gitrepository";
/// What the audit log says about a request that was throttled.
const TOO_MANY_REQUESTS: &str = "\"code\":429";
/// The label of the pods of tf-controller.
const TF_CONTROLLER: &str = "app=tf-controller";
/// The name of the CLI in the image of runs.
const CLI: &str = "tofu";

impl Fault {
    /// Causes the fault at the moment and ends it. Nothing to hit is an error, except at a random time: the run may have ended.
    pub(super) async fn cause(self, stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
        let result = match self {
            Self::KillRunner => kill_run(stage, stack, None).await,
            Self::KillCli => kill_run(stage, stack, Some(CLI)).await,
            Self::DeletePodNow => delete(&stack.pods(), &stack.pod_selector(), &without_grace()).await,
            Self::DeletePod => delete(&stack.pods(), &stack.pod_selector(), &DeleteParams::default()).await,
            Self::EvictPod => evict(stack).await,
            Self::KillController => kill_controller(stage).await,
            Self::DeleteController => {
                delete(
                    &controllers(stage).await?,
                    TF_CONTROLLER,
                    &DeleteParams::default(),
                )
                .await
            }
            Self::RestartController => restart_controller(stage).await,
            Self::TakeLease => take_lease(stage).await,
            Self::StopKubelet => stop(stage, stack, Component::Kubelet).await,
            Self::StopKubeletLong => stop_kubelet_long(stage, stack).await,
            Self::StopApiServer => stop(stage, stack, Component::ApiServer).await,
            Self::SlowApiServer => slow_down(stage, stack).await,
            Self::ThrottleApiServer => throttle(stage, stack).await,
            Self::StopEtcd => stop(stage, stack, Component::Etcd).await,
            Self::StopSourceController => stop_source_controller(stage, stack).await,
            Self::CollectArtifact => collect_artifact(stage, stack).await,
            Self::DeleteAccount => replace_account(stage, stack).await,
            Self::DeleteInputs => replace_inputs(stage, stack).await,
            Self::DeleteNamespace => delete_namespace(stage, stack).await,
            // The provider has caused it.
            Self::CrashProvider
            | Self::FailProvider
            | Self::HangProvider
            | Self::IgnoreInterrupt
            | Self::ExhaustMemory => Ok(1),
        };
        match result {
            Ok(0) if stack.trial.moment != Moment::Any => Err(format!("{self:?} hit nothing")),
            result => result.map_err(|error| format!("{self:?}: {error}")),
        }
    }
}

async fn kubectl(stage: &Stage<'_>, namespace: &str, arguments: &[&str]) -> Result<(), String> {
    let all = [&["-n", namespace], arguments].concat();
    stage.installation.try_kubectl(&all).await.map(drop)
}

async fn controllers(stage: &Stage<'_>) -> Result<Api<Pod>, String> {
    let client = stage.node.client().await.map_err(failure("make a client"))?;
    Ok(Api::namespaced(client, install::NAMESPACE))
}

/// Repeats an attempt until it has a result.
async fn wait_for<T>(what: &str, attempt: impl AsyncFn() -> Result<Option<T>, String>) -> Result<T, String> {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(result) = attempt().await? {
            return Ok(result);
        }
        if Instant::now() > deadline {
            return Err(format!("{what} within {LIMIT:?}"));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn delete(pods: &Api<Pod>, selector: &str, how: &DeleteParams) -> Result<usize, String> {
    let mut hits = 0;
    for pod in pods::running(pods, selector).await? {
        let name = pod.name_any();
        // It may have ended since it was listed.
        hits += usize::from(retry(|| pods.delete(&name, how)).await.is_ok());
    }
    Ok(hits)
}

async fn evict(stack: &Stack) -> Result<usize, String> {
    let (pods, params) = (stack.pods(), EvictParams::default());
    let mut hits = 0;
    for pod in stack.running_pods().await? {
        let name = pod.name_any();
        // It may have ended since it was listed.
        hits += usize::from(retry(|| pods.evict(&name, &params)).await.is_ok());
    }
    Ok(hits)
}

/// Kills the processes of the containers of pods, or those of one program in them.
async fn kill(stage: &Stage<'_>, pods: &[Pod], program: Option<&str>) -> Result<usize, String> {
    let mut hits = 0;
    for id in pods.iter().filter_map(pods::container_id) {
        // It may have ended since it was listed.
        let killed = match program {
            Some(program) => stage.node.kill_program(id, program),
            None => stage.node.kill_container(id).await,
        };
        hits += usize::from(killed.is_ok());
    }
    Ok(hits)
}

/// Kills the processes of the run, or those of one program. The kubelet may not have reported the container yet: the provider holds its step
/// meanwhile, except at a random time.
async fn kill_run(stage: &Stage<'_>, stack: &Stack, program: Option<&str>) -> Result<usize, String> {
    if stack.trial.moment == Moment::Any {
        return kill(stage, &stack.running_pods().await?, program).await;
    }
    wait_for("there was no process to kill", async || {
        let hits = kill(stage, &stack.running_pods().await?, program).await?;
        Ok((hits > 0).then_some(hits))
    })
    .await
}

/// Waits for a container to kill: after another kill the kubelet starts the next one with a delay.
async fn kill_controller(stage: &Stage<'_>) -> Result<usize, String> {
    let pods = controllers(stage).await?;
    wait_for("tf-controller did not run", async || {
        let running = pods::running(&pods, TF_CONTROLLER).await?;
        let hits = kill(stage, &running, None).await?;
        Ok((hits > 0).then_some(hits))
    })
    .await
}

async fn restart_controller(stage: &Stage<'_>) -> Result<usize, String> {
    let restart = ["rollout", "restart", "deployment/tf-controller"];
    kubectl(stage, install::NAMESPACE, &restart).await?;
    Ok(1)
}

async fn take_lease(stage: &Stage<'_>) -> Result<usize, String> {
    let client = stage.node.client().await.map_err(failure("make a client"))?;
    let leases: Api<Lease> = Api::namespaced(client, install::NAMESPACE);
    let thief = json!({ "spec": { "holderIdentity": "another-process", "leaseDurationSeconds": 15,
        "renewTime": format!("{:.6}", Timestamp::now()) } });
    let (params, patch) = (PatchParams::default(), Patch::Merge(&thief));
    let taken = retry(|| leases.patch("1953de50.contrib.fluxcd.io", &params, &patch)).await;
    taken.map(|_| 1).map_err(failure("take the Lease"))
}

async fn stop(stage: &Stage<'_>, stack: &Stack, component: Component) -> Result<usize, String> {
    stage.node.kill_component(component);
    stack.release()?;
    tokio::time::sleep(ABSENCE).await;
    start(stage, component).await?;
    Ok(1)
}

/// Starts a component, and waits until the API answers.
async fn start(stage: &Stage<'_>, component: Component) -> Result<(), String> {
    let started = stage.node.start_component(component);
    started.map_err(failure("start a component"))?;
    wait_for_api(stage).await
}

async fn wait_for_api(stage: &Stage<'_>) -> Result<(), String> {
    let (pods, all) = (controllers(stage).await?, ListParams::default());
    let answers = retry(|| pods.list(&all)).await;
    answers.map(drop).map_err(failure("list the controllers"))
}

async fn stop_kubelet_long(stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
    stage.node.kill_component(Component::Kubelet);
    stack.release()?;
    tokio::time::sleep(LONG_ABSENCE).await;
    let (nodes, all) = (Api::<Node>::all(stack.client.clone()), ListParams::default());
    let became_not_ready = wait_for("the node was ready without a kubelet", async || {
        let found = retry(|| nodes.list(&all)).await;
        let found = found.map_err(failure("list the nodes"))?;
        Ok((!found.items.iter().any(is_ready)).then_some(1))
    })
    .await;
    start(stage, Component::Kubelet).await?;
    became_not_ready
}

fn is_ready(node: &Node) -> bool {
    let status = node.status.as_ref();
    let mut conditions = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn slow_down(stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
    for _ in 0..PAUSE_COUNT {
        let paused = stage.node.pause_api();
        stack.release()?;
        tokio::time::sleep(PAUSE).await;
        let resumed = stage.node.resume_api();
        paused.and(resumed).map_err(failure("pause the API server"))?;
        tokio::time::sleep(ANSWER).await;
    }
    Ok(1)
}

async fn throttle(stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
    let before = throttled(stage)?;
    stage.node.kill_component(Component::ApiServer);
    let started = stage.node.start_api_with(&THROTTLE_FLAGS);
    started.map_err(failure("start the API server"))?;
    wait_for_api(stage).await?;
    stack.release()?;
    tokio::time::sleep(THROTTLE).await;
    let hits = wait_for("no request was throttled", async || {
        let hits = throttled(stage)?.saturating_sub(before);
        Ok((hits > 0).then_some(hits))
    })
    .await;
    stage.node.kill_component(Component::ApiServer);
    start(stage, Component::ApiServer).await?;
    hits
}

/// Returns how many requests of ServiceAccounts got 429 so far.
fn throttled(stage: &Stage<'_>) -> Result<usize, String> {
    let log = stage.node.audit_log().map_err(failure("read the audit log"))?;
    Ok(log
        .lines()
        .filter(|line| line.contains(TOO_MANY_REQUESTS))
        .count())
}

async fn stop_source_controller(stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
    for replicas in ["--replicas=0", "--replicas=1"] {
        let scale = ["scale", "deployment/source-controller", replicas];
        kubectl(stage, install::NAMESPACE, &scale).await?;
        stack.release()?;
        tokio::time::sleep(ABSENCE).await;
    }
    Ok(1)
}

/// Removes the artifact from the storage, as the garbage collection of source-controller does after newer revisions.
async fn collect_artifact(stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
    let mut hits = 0;
    for pod in pods::running(&controllers(stage).await?, "app=source-controller").await? {
        let folder = stage.node.pod_folder(&pod.uid().unwrap_or_default());
        let artifacts = folder.join(STORAGE).join(&stack.namespace).join(&stack.name);
        // A pod that is being replaced has none.
        for file in std::fs::read_dir(artifacts).into_iter().flatten().flatten() {
            if file.path().extension().is_some_and(|extension| extension == "gz") {
                std::fs::remove_file(file.path()).map_err(failure("remove the artifact"))?;
                hits += 1;
            }
        }
    }
    if hits == 0 {
        return Err("there is no artifact".into());
    }
    stack.change_source().await?;
    Ok(hits)
}

async fn replace_account(stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
    kubectl(stage, &stack.namespace, &["delete", "serviceaccount", ACCOUNT]).await?;
    stack.release()?;
    tokio::time::sleep(ABSENCE).await;
    kubectl(stage, &stack.namespace, &["create", "serviceaccount", ACCOUNT]).await?;
    Ok(1)
}

async fn replace_inputs(stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
    kubectl(stage, &stack.namespace, &["delete", "secret,configmap", INPUTS]).await?;
    stack.release()?;
    tokio::time::sleep(ABSENCE).await;
    stack.create_inputs().await?;
    Ok(1)
}

async fn delete_namespace(stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
    let delete = ["delete", "namespace", &stack.namespace, "--wait=false"];
    kubectl(stage, &stack.namespace, &delete).await?;
    Ok(1)
}
