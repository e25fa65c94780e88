//! How each fault is caused, and ended.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use sluice_harness::node::Component;
use sluice_tests::scenario::retry;

use super::fault::{Fault, Moment};
use super::stack::{INPUTS, Stack, running_pods};
use super::stage::{ACCOUNT, Stage};
use crate::install;

/// How long a component is away.
const ABSENCE: Duration = Duration::from_secs(10);
/// As long as the node is not ready then.
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
/// The label of tf-controller's pods.
const CONTROLLER: &str = "app=tf-controller";
/// The name of the CLI in the image of runs.
const CLI: &str = "tofu";

impl Fault {
    /// Causes the fault and ends it. At each moment but [`Moment::Any`], at which the run may have ended, it must hit something.
    pub(super) async fn cause(self, stage: &Stage, stack: &Stack, moment: Moment) -> Result<(), String> {
        if self.is_of_provider() {
            return Ok(());
        }
        let result = if self.is_local() {
            let _no_other_of_the_node = stage.fault.read().await;
            stack.release_step(moment);
            self.cause_in_stack(stage, stack, moment).await
        } else {
            let _one_at_a_time = stage.fault.write().await;
            stack.release_step(moment);
            self.cause_on_node(stage).await
        };
        result.map_err(|error| format!("{self:?}: {error}"))
    }

    /// Causes a fault of the stack alone.
    async fn cause_in_stack(self, stage: &Stage, stack: &Stack, moment: Moment) -> Result<(), String> {
        let hit = match self {
            Self::KillRunner => kill(stage, stack, None).await?,
            Self::KillCli => kill(stage, stack, Some(CLI)).await?,
            Self::DeletePodNow => delete(&stack.pods(), &stack.pod_selector(), &now()).await?,
            Self::DeletePod => delete(&stack.pods(), &stack.pod_selector(), &DeleteParams::default()).await?,
            Self::EvictPod => evict(stack).await?,
            Self::CollectArtifact => return collect_artifact(stage, stack).await,
            Self::DeleteAccount => return replace_account(stage, stack).await,
            Self::DeleteInputs => return replace_inputs(stage, stack).await,
            Self::DeleteNamespace => return delete_namespace(stage, stack).await,
            _ => return Err("not a fault of a stack".to_owned()),
        };
        if hit == 0 && moment != Moment::Any {
            return Err("there is no pod or process for it".to_owned());
        }
        Ok(())
    }

    /// Causes a fault of the node, its API or its controllers.
    async fn cause_on_node(self, stage: &Stage) -> Result<(), String> {
        match self {
            Self::KillController => kill_controller(stage).await,
            Self::StopController => {
                let pods = controllers(stage).await?;
                let deleted = delete(&pods, CONTROLLER, &DeleteParams::default()).await?;
                (deleted > 0).then_some(()).ok_or_else(|| "no pod".to_owned())
            }
            Self::RestartController => restart_controller(stage).await,
            Self::TakeLease => take_lease(stage).await,
            Self::StopKubelet => stop(stage, Component::Kubelet, ABSENCE).await,
            Self::StopKubeletLong => stop_until_not_ready(stage).await,
            Self::StopApiServer => stop(stage, Component::ApiServer, ABSENCE).await,
            Self::SlowApiServer => slow_down(stage).await,
            Self::ThrottleApiServer => throttle(stage).await,
            Self::StopEtcd => stop(stage, Component::Etcd, ABSENCE).await,
            Self::StopSourceController => stop_source_controller(stage).await,
            _ => Err("not a fault of the node".to_owned()),
        }
    }
}

fn now() -> DeleteParams {
    DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    }
}

async fn kubectl(stage: &Stage, namespace: &str, arguments: &[&str]) -> Result<(), String> {
    let all = [&["-n", namespace], arguments].concat();
    stage.installation.try_kubectl(&all).await.map(drop)
}

async fn controllers(stage: &Stage) -> Result<Api<Pod>, String> {
    let client = stage.node.client().await.map_err(|error| error.to_string())?;
    Ok(Api::namespaced(client, install::NAMESPACE))
}

/// Deletes the pods that have not ended. Returns how many.
async fn delete(pods: &Api<Pod>, selector: &str, how: &DeleteParams) -> Result<usize, String> {
    let mut deleted = 0;
    for (name, _) in running_pods(pods, selector).await? {
        // It may have ended since it was listed.
        deleted += usize::from(retry(|| pods.delete(&name, how)).await.is_ok());
    }
    Ok(deleted)
}

/// Evicts the pods that have not ended. Returns how many.
async fn evict(stack: &Stack) -> Result<usize, String> {
    let (pods, params) = (stack.pods(), EvictParams::default());
    let mut evicted = 0;
    for (name, _) in stack.running_pods().await? {
        // It may have ended since it was listed.
        evicted += usize::from(retry(|| pods.evict(&name, &params)).await.is_ok());
    }
    Ok(evicted)
}

/// Kills the processes of the runner's container, or those of one program in it. Returns the number of containers.
async fn kill(stage: &Stage, stack: &Stack, program: Option<&str>) -> Result<usize, String> {
    let mut killed = 0;
    for id in stack.running_pods().await?.iter().filter_map(container_id) {
        // It may have ended since it was listed.
        let result = match program {
            Some(program) => stage.node.kill_program(id, program),
            None => stage.node.kill_container(id),
        };
        killed += usize::from(result.is_ok());
    }
    Ok(killed)
}

/// Returns the id of a pod's container for its runtime.
fn container_id(pod: &(String, Option<String>)) -> Option<&str> {
    pod.1.as_deref().map(|id| id.trim_start_matches("containerd://"))
}

/// Kills tf-controller without a signal that it could handle.
async fn kill_controller(stage: &Stage) -> Result<(), String> {
    let running = running_pods(&controllers(stage).await?, CONTROLLER).await?;
    let id = running.iter().find_map(container_id);
    let id = id.ok_or_else(|| "tf-controller does not run".to_owned())?;
    stage.node.kill_container(id).map_err(|error| error.to_string())
}

async fn restart_controller(stage: &Stage) -> Result<(), String> {
    let restart = ["rollout", "restart", "deployment/tf-controller"];
    kubectl(stage, install::NAMESPACE, &restart).await
}

async fn take_lease(stage: &Stage) -> Result<(), String> {
    let client = stage.node.client().await.map_err(|error| error.to_string())?;
    let leases: Api<Lease> = Api::namespaced(client, install::NAMESPACE);
    let thief = json!({ "spec": { "holderIdentity": "another-process", "leaseDurationSeconds": 15,
        "renewTime": format!("{:.6}", Timestamp::now()) } });
    let (params, patch) = (PatchParams::default(), Patch::Merge(&thief));
    let taken = retry(|| leases.patch("1953de50.contrib.fluxcd.io", &params, &patch)).await;
    taken.map(drop).map_err(|error| error.to_string())
}

async fn stop(stage: &Stage, component: Component, absence: Duration) -> Result<(), String> {
    stage.node.kill_component(component);
    tokio::time::sleep(absence).await;
    let started = stage.node.start_component(component);
    started.map_err(|error| error.to_string())?;
    wait_for_api(stage).await
}

/// Stops the kubelet until Kubernetes reports that the node does not answer.
async fn stop_until_not_ready(stage: &Stage) -> Result<(), String> {
    let client = stage.node.client().await.map_err(|error| error.to_string())?;
    let nodes: Api<Node> = Api::all(client);
    stage.node.kill_component(Component::Kubelet);
    tokio::time::sleep(LONG_ABSENCE).await;
    let all = ListParams::default();
    let found = retry(|| nodes.list(&all)).await;
    let started = stage.node.start_component(Component::Kubelet);
    started.map_err(|error| error.to_string())?;
    let found = found.map_err(|error| error.to_string())?;
    let is_ready = |condition: &NodeCondition| condition.type_ == "Ready" && condition.status == "True";
    let conditions = |node: &Node| {
        node.status
            .clone()
            .unwrap_or_default()
            .conditions
            .unwrap_or_default()
    };
    if found.iter().any(|node| conditions(node).iter().any(is_ready)) {
        return Err(format!("the node is still ready after {LONG_ABSENCE:?}"));
    }
    wait_for_api(stage).await
}

async fn wait_for_api(stage: &Stage) -> Result<(), String> {
    let (pods, all) = (controllers(stage).await?, ListParams::default());
    let answers = retry(|| pods.list(&all)).await;
    answers.map(drop).map_err(|error| error.to_string())
}

async fn slow_down(stage: &Stage) -> Result<(), String> {
    for _ in 0..PAUSE_COUNT {
        let paused = stage.node.pause_api();
        tokio::time::sleep(PAUSE).await;
        let resumed = stage.node.resume_api();
        paused.and(resumed).map_err(|error| error.to_string())?;
        tokio::time::sleep(ANSWER).await;
    }
    Ok(())
}

async fn throttle(stage: &Stage) -> Result<(), String> {
    stage.node.kill_component(Component::ApiServer);
    let started = stage.node.start_api_with(&THROTTLE_FLAGS);
    started.map_err(|error| error.to_string())?;
    wait_for_api(stage).await?;
    let before = throttled_requests(stage)?;
    tokio::time::sleep(THROTTLE).await;
    let after = throttled_requests(stage)?;
    stop(stage, Component::ApiServer, Duration::ZERO).await?;
    if after == before {
        return Err("no request of an account was throttled".to_owned());
    }
    Ok(())
}

/// Returns the number of requests of accounts that the API server has answered with 429.
fn throttled_requests(stage: &Stage) -> Result<usize, String> {
    let log = stage.node.audit_log().map_err(|error| error.to_string())?;
    let is_throttled = |line: &&str| line.contains("\"code\":429") && line.contains("system:serviceaccount:");
    Ok(log.lines().filter(is_throttled).count())
}

async fn stop_source_controller(stage: &Stage) -> Result<(), String> {
    for replicas in ["--replicas=0", "--replicas=1"] {
        let scale = ["scale", "deployment/source-controller", replicas];
        kubectl(stage, install::NAMESPACE, &scale).await?;
        tokio::time::sleep(ABSENCE).await;
    }
    Ok(())
}

/// Removes the artifact from the storage, as the garbage collection of source-controller does after newer revisions.
async fn collect_artifact(stage: &Stage, stack: &Stack) -> Result<(), String> {
    let (pods, selected) = (
        controllers(stage).await?,
        ListParams::default().labels("app=source-controller"),
    );
    let mut removed = 0;
    let found = retry(|| pods.list(&selected)).await;
    for pod in found.map_err(|error| error.to_string())?.items {
        let folder = stage.node.pod_folder(&pod.uid().unwrap_or_default());
        let artifacts = folder.join(STORAGE).join(&stack.namespace).join(&stack.name);
        // A pod that was replaced has none.
        for file in std::fs::read_dir(artifacts).into_iter().flatten().flatten() {
            if file.path().extension().is_some_and(|extension| extension == "gz") {
                std::fs::remove_file(file.path()).map_err(|error| error.to_string())?;
                removed += 1;
            }
        }
    }
    if removed == 0 {
        return Err("the storage of source-controller has no artifact of the stack".to_owned());
    }
    stack.change_source().await
}

async fn replace_account(stage: &Stage, stack: &Stack) -> Result<(), String> {
    kubectl(stage, &stack.namespace, &["delete", "serviceaccount", ACCOUNT]).await?;
    tokio::time::sleep(ABSENCE).await;
    kubectl(stage, &stack.namespace, &["create", "serviceaccount", ACCOUNT]).await
}

async fn replace_inputs(stage: &Stage, stack: &Stack) -> Result<(), String> {
    kubectl(stage, &stack.namespace, &["delete", "secret,configmap", INPUTS]).await?;
    tokio::time::sleep(ABSENCE).await;
    stack.create_inputs().await
}

async fn delete_namespace(stage: &Stage, stack: &Stack) -> Result<(), String> {
    let delete = ["delete", "namespace", &stack.namespace, "--wait=false"];
    kubectl(stage, &stack.namespace, &delete).await
}
