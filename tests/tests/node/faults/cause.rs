//! How each fault is caused, and ended.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use sluice_harness::node::Component;
use sluice_tests::scenario::retry;

use super::fault::Fault;
use super::stack::{INPUTS, Stack};
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
/// The name of the CLI in the image of runs.
const CLI: &str = "tofu";

impl Fault {
    /// Causes the fault and ends it.
    pub(super) async fn cause(self, stage: &Stage, stack: &Stack) -> Result<(), String> {
        let _one_at_a_time = stage.fault.lock().await;
        let result = match self {
            Self::KillRunner => kill(stage, stack, None).await,
            Self::KillCli => kill(stage, stack, Some(CLI)).await,
            Self::DeletePodNow => delete(stack.pods(), &stack.pod_selector(), &now()).await,
            Self::DeletePod => delete(stack.pods(), &stack.pod_selector(), &DeleteParams::default()).await,
            Self::EvictPod => evict(stack).await,
            Self::KillController => delete(controllers(stage).await?, "app=tf-controller", &now()).await,
            Self::RestartController => restart_controller(stage).await,
            Self::TakeLease => take_lease(stage).await,
            Self::StopKubelet => stop(stage, Component::Kubelet, ABSENCE).await,
            Self::StopKubeletLong => stop(stage, Component::Kubelet, LONG_ABSENCE).await,
            Self::StopApiServer => stop(stage, Component::ApiServer, ABSENCE).await,
            Self::SlowApiServer => slow_down(stage).await,
            Self::ThrottleApiServer => throttle(stage).await,
            Self::StopEtcd => stop(stage, Component::Etcd, ABSENCE).await,
            Self::StopSourceController => stop_source_controller(stage).await,
            Self::CollectArtifact => collect_artifact(stage, stack).await,
            Self::DeleteAccount => replace_account(stage, stack).await,
            Self::DeleteInputs => replace_inputs(stage, stack).await,
            Self::DeleteNamespace => delete_namespace(stage, stack).await,
            Self::CrashProvider
            | Self::FailProvider
            | Self::HangProvider
            | Self::IgnoreInterrupt
            | Self::ExhaustMemory => Ok(()),
        };
        result.map_err(|error| format!("{self:?}: {error}"))
    }
}

fn now() -> DeleteParams {
    DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    }
}

async fn kubectl(stage: &Stage, namespace: &str, arguments: &[&str]) {
    let all = [&["-n", namespace], arguments].concat();
    stage.installation.kubectl(&all).await;
}

async fn controllers(stage: &Stage) -> Result<Api<Pod>, String> {
    let client = stage.node.client().await.map_err(|error| error.to_string())?;
    Ok(Api::namespaced(client, install::NAMESPACE))
}

async fn delete(pods: Api<Pod>, selector: &str, how: &DeleteParams) -> Result<(), String> {
    let selected = ListParams::default().labels(selector);
    let deleted = retry(|| pods.delete_collection(how, &selected)).await;
    deleted.map(drop).map_err(|error| error.to_string())
}

async fn evict(stack: &Stack) -> Result<(), String> {
    let pods = stack.pods();
    for name in stack.running_pods().await? {
        let params = EvictParams::default();
        // It may have ended since it was listed.
        let _gone = retry(|| pods.evict(&name.0, &params)).await;
    }
    Ok(())
}

/// Kills the processes of the runner's container, or those of one program in it.
async fn kill(stage: &Stage, stack: &Stack, program: Option<&str>) -> Result<(), String> {
    for (_, container) in stack.running_pods().await? {
        let Some(id) = container else { continue };
        let id = id.trim_start_matches("containerd://");
        // It may have ended since it was listed.
        let _ended = match program {
            Some(program) => stage.node.kill_program(id, program),
            None => stage.node.kill_container(id),
        };
    }
    Ok(())
}

async fn restart_controller(stage: &Stage) -> Result<(), String> {
    let restart = ["rollout", "restart", "deployment/tf-controller"];
    kubectl(stage, install::NAMESPACE, &restart).await;
    Ok(())
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
    tokio::time::sleep(THROTTLE).await;
    stop(stage, Component::ApiServer, Duration::ZERO).await
}

async fn stop_source_controller(stage: &Stage) -> Result<(), String> {
    for replicas in ["--replicas=0", "--replicas=1"] {
        let scale = ["scale", "deployment/source-controller", replicas];
        kubectl(stage, install::NAMESPACE, &scale).await;
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
    let found = retry(|| pods.list(&selected)).await;
    for pod in found.map_err(|error| error.to_string())?.items {
        let folder = stage.node.pod_folder(&pod.uid().unwrap_or_default());
        let artifacts = folder.join(STORAGE).join(&stack.namespace).join(&stack.name);
        // A pod that was replaced has none.
        for file in std::fs::read_dir(artifacts).into_iter().flatten().flatten() {
            if file.path().extension().is_some_and(|extension| extension == "gz") {
                std::fs::remove_file(file.path()).map_err(|error| error.to_string())?;
            }
        }
    }
    stack.change_source().await
}

async fn replace_account(stage: &Stage, stack: &Stack) -> Result<(), String> {
    kubectl(stage, &stack.namespace, &["delete", "serviceaccount", ACCOUNT]).await;
    tokio::time::sleep(ABSENCE).await;
    kubectl(stage, &stack.namespace, &["create", "serviceaccount", ACCOUNT]).await;
    Ok(())
}

async fn replace_inputs(stage: &Stage, stack: &Stack) -> Result<(), String> {
    kubectl(stage, &stack.namespace, &["delete", "secret,configmap", INPUTS]).await;
    tokio::time::sleep(ABSENCE).await;
    stack.create_inputs().await
}

async fn delete_namespace(stage: &Stage, stack: &Stack) -> Result<(), String> {
    let delete = ["delete", "namespace", &stack.namespace, "--wait=false"];
    kubectl(stage, &stack.namespace, &delete).await;
    Ok(())
}
