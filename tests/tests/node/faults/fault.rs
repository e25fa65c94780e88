//! What breaks, and when.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use serde_json::json;
use sluice_harness::node::Component;
use sluice_tests::scenario::retry;

use super::stack::Stack;
use super::stage::{NAMESPACE, Stage};
use crate::install;

/// How long a component is away.
const ABSENCE: Duration = Duration::from_secs(10);
/// As long as the node is not ready then.
const LONG_ABSENCE: Duration = Duration::from_secs(75);

/// The moment of a stack's first apply at which something breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Moment {
    /// The Job of a run has a pod.
    Start,
    /// The provider plans.
    Plan,
    /// The provider creates the first resource.
    Create,
    /// The first resource exists, and the provider creates the second one.
    HalfApplied,
    /// A random time after the start of the pod.
    Any,
}

impl Moment {
    const ALL: [Self; 5] = [
        Self::Start,
        Self::Plan,
        Self::Create,
        Self::HalfApplied,
        Self::Any,
    ];

    /// Returns the provider's step during which the moment is, with the name of the resource.
    pub(super) const fn step(self) -> Option<&'static str> {
        match self {
            Self::Plan => Some("plan first"),
            Self::Create => Some("create first"),
            Self::HalfApplied => Some("create second"),
            Self::Start | Self::Any => None,
        }
    }
}

/// Who dies, or what breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// SIGKILL to all processes of the runner's container.
    KillRunner,
    /// The pod is deleted without grace.
    DeletePodNow,
    /// The pod is deleted with its grace.
    DeletePod,
    /// The pod is evicted, as `kubectl drain` does.
    EvictPod,
    /// The pod of tf-controller is deleted without grace.
    KillController,
    /// tf-controller is restarted as for another version.
    RestartController,
    /// Another process takes the Lease of tf-controller.
    TakeLease,
    /// The kubelet is away for a short time.
    StopKubelet,
    /// The kubelet is away until the node is not ready.
    StopKubeletLong,
    /// The API server is away.
    StopApiServer,
    /// The database of the API server is away.
    StopEtcd,
    /// source-controller is away.
    StopSourceController,
    /// The account of the run is deleted and created again.
    DeleteAccount,
    /// The provider crashes in its step.
    CrashProvider,
    /// The provider's step fails.
    FailProvider,
}

impl Fault {
    const ALL: [Self; 15] = [
        Self::KillRunner,
        Self::DeletePodNow,
        Self::DeletePod,
        Self::EvictPod,
        Self::KillController,
        Self::RestartController,
        Self::TakeLease,
        Self::StopKubelet,
        Self::StopKubeletLong,
        Self::StopApiServer,
        Self::StopEtcd,
        Self::StopSourceController,
        Self::DeleteAccount,
        Self::CrashProvider,
        Self::FailProvider,
    ];

    /// Whether the CLI has no time to write its state: a resource that it has just created is then unknown to every tool.
    pub(super) const fn kills_cli(self) -> bool {
        matches!(self, Self::KillRunner | Self::DeletePodNow)
    }

    /// Whether the provider causes the fault in the step of the moment.
    pub(super) const fn is_of_provider(self) -> bool {
        matches!(self, Self::CrashProvider | Self::FailProvider)
    }

    /// Causes the fault and ends it.
    pub(super) async fn cause(self, stage: &Stage, stack: &Stack) -> Result<(), String> {
        let _one_at_a_time = stage.fault.lock().await;
        let result = match self {
            Self::KillRunner => kill_runner(stage, stack).await,
            Self::DeletePodNow => delete(stack.pods(), &stack.pod_selector(), &now()).await,
            Self::DeletePod => delete(stack.pods(), &stack.pod_selector(), &DeleteParams::default()).await,
            Self::EvictPod => evict(stack).await,
            Self::KillController => {
                let pods = controllers(stage).await?;
                delete(pods, "app=tf-controller", &now()).await
            }
            Self::RestartController => {
                let arguments = [
                    "-n",
                    install::NAMESPACE,
                    "rollout",
                    "restart",
                    "deployment/tf-controller",
                ];
                stage.installation.kubectl(&arguments).await;
                Ok(())
            }
            Self::TakeLease => take_lease(stage).await,
            Self::StopKubelet => stop(stage, Component::Kubelet, ABSENCE).await,
            Self::StopKubeletLong => stop(stage, Component::Kubelet, LONG_ABSENCE).await,
            Self::StopApiServer => stop(stage, Component::ApiServer, ABSENCE).await,
            Self::StopEtcd => stop(stage, Component::Etcd, ABSENCE).await,
            Self::StopSourceController => stop_source_controller(stage).await,
            Self::DeleteAccount => replace_account(stage).await,
            Self::CrashProvider | Self::FailProvider => Ok(()),
        };
        result.map_err(|error| format!("{self:?}: {error}"))
    }
}

/// Returns each fault with each moment at which it can be caused.
pub(super) fn pairs() -> Vec<(Fault, Moment)> {
    let all = Fault::ALL.into_iter();
    let all = all.flat_map(|fault| Moment::ALL.map(|moment| (fault, moment)));
    all.filter(|(fault, moment)| !fault.is_of_provider() || moment.step().is_some())
        .collect()
}

fn now() -> DeleteParams {
    DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    }
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

async fn kill_runner(stage: &Stage, stack: &Stack) -> Result<(), String> {
    for (_, container) in stack.running_pods().await? {
        let Some(id) = container else { continue };
        // It may have ended since it was listed.
        let _ended = stage.node.kill_container(id.trim_start_matches("containerd://"));
    }
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
    let (pods, all) = (controllers(stage).await?, ListParams::default());
    let answers = retry(|| pods.list(&all)).await;
    answers.map(drop).map_err(|error| error.to_string())
}

async fn stop_source_controller(stage: &Stage) -> Result<(), String> {
    for replicas in ["--replicas=0", "--replicas=1"] {
        let arguments = [
            "-n",
            install::NAMESPACE,
            "scale",
            "deployment/source-controller",
            replicas,
        ];
        stage.installation.kubectl(&arguments).await;
        tokio::time::sleep(ABSENCE).await;
    }
    Ok(())
}

async fn replace_account(stage: &Stage) -> Result<(), String> {
    let arguments = ["-n", NAMESPACE, "delete", "serviceaccount", "tf-runner"];
    stage.installation.kubectl(&arguments).await;
    tokio::time::sleep(ABSENCE).await;
    let arguments = ["-n", NAMESPACE, "create", "serviceaccount", "tf-runner"];
    stage.installation.kubectl(&arguments).await;
    Ok(())
}
