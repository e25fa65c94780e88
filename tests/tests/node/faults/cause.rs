//! How each fault is caused, and ended. Each function returns how many pods, processes or components it hit, and calls
//! [`Stack::begin`] when the fault has begun if it lasts.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams};
use kube::{Api, ResourceExt as _};
use sluice_harness::node::Component;
use sluice_tests::scenario::retry;

use super::components::{EVICTION, LONG_ABSENCE};
use super::controller::{SOURCE_CONTROLLER, TF_CONTROLLER};
use super::fault::Fault;
use super::manifests::INPUTS;
use super::moment::Release;
use super::stack::{Stack, failure, without_grace};
use super::stage::{ACCOUNT, Stage};
use super::{LIMIT, POLL_INTERVAL, components, controller, pods};
use crate::install;

/// How long a component is away.
pub(super) const ABSENCE: Duration = Duration::from_secs(10);
/// How long another client edits the objects.
const EDITS: Duration = Duration::from_secs(20);
/// The storage of source-controller in the folder of its pod.
const STORAGE: &str = "volumes/kubernetes.io~empty-dir/data/gitrepository";
/// The name of the CLI in the image of runs.
const CLI: &str = "tofu";

impl Fault {
    /// Causes the fault at the moment and ends it. Nothing to hit is an error, unless the run may have ended.
    pub(super) async fn cause(self, stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
        let result = if self.is_of_provider() {
            // The provider has caused it.
            Ok(1)
        } else if self.is_of_controller() {
            self.replace_controller(stage, stack).await
        } else {
            self.cause_other(stage, stack).await
        };
        match result {
            Ok(0) if stack.trial.moment.is_held() => Err(format!("{self:?} hit nothing")),
            result => result.map_err(|error| format!("{self:?}: {error}")),
        }
    }

    /// Replaces tf-controller or its leader. A run that continues only after the fault waits until another one leads.
    async fn replace_controller(self, stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
        let before = match self {
            // The same process may lead again.
            Self::TakeLease => None,
            _ => controller::leader(stage).await?,
        };
        let hits = match self {
            Self::DeleteController => {
                let pods = controllers(stage).await?;
                delete(&pods, TF_CONTROLLER, &DeleteParams::default()).await
            }
            Self::RestartController => controller::restart_controller(stage).await,
            Self::ChangeVersion => controller::change_version(stage).await,
            Self::TakeLease => controller::take_lease(stage).await,
            Self::PauseLeader => controller::pause_leader(stage, stack).await,
            Self::KillController => controller::kill_controller(stage, TF_CONTROLLER).await,
            _ => Err("nothing causes it".into()),
        }?;
        // The other replica has led, and may have been removed since.
        if stack.trial.release == Release::After && self != Self::PauseLeader {
            controller::wait_for_other_leader(stage, before.as_deref()).await?;
        }
        Ok(hits)
    }

    /// Causes any other fault.
    async fn cause_other(self, stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
        match self {
            Self::KillRunner => kill_run(stage, stack, None).await,
            Self::KillCli => kill_run(stage, stack, Some(CLI)).await,
            Self::DeletePodNow => delete(&stack.pods(), &stack.pod_selector(), &without_grace()).await,
            Self::DeletePod => delete(&stack.pods(), &stack.pod_selector(), &DeleteParams::default()).await,
            Self::EvictPod => evict(stack).await,
            Self::StopKubelet => components::stop(stage, stack, Component::Kubelet, ABSENCE).await,
            Self::StopKubeletLong => {
                components::stop_node(stage, stack, Component::Kubelet, LONG_ABSENCE).await
            }
            Self::StopKubeletUntilEviction => {
                components::stop_node(stage, stack, Component::Kubelet, EVICTION).await
            }
            Self::StopRuntime => components::stop(stage, stack, Component::Runtime, LONG_ABSENCE).await,
            Self::StopRuntimeUntilEviction => {
                components::stop_node(stage, stack, Component::Runtime, EVICTION).await
            }
            Self::StopApiServer => components::stop(stage, stack, Component::ApiServer, ABSENCE).await,
            Self::StopApiServerLong => {
                components::stop(stage, stack, Component::ApiServer, LONG_ABSENCE).await
            }
            Self::SlowApiServer => components::slow_down(stage, stack).await,
            Self::ThrottleApiServer => components::throttle(stage, stack).await,
            Self::ExpireWatches => components::expire_watches(stage, stack).await,
            Self::EditObjects => edit_objects(stack).await,
            Self::StopEtcd => components::stop(stage, stack, Component::Etcd, ABSENCE).await,
            Self::KillSourceController => controller::kill_controller(stage, SOURCE_CONTROLLER).await,
            Self::StopSourceController => controller::stop_source_controller(stage, stack).await,
            Self::StopSourceControllerUntilEnd => {
                controller::stop_source_controller_until_end(stage, stack).await
            }
            Self::CollectArtifact => collect_artifact(stage, stack).await,
            Self::DeleteAccount => replace_account(stage, stack).await,
            Self::DeleteInputs => replace_inputs(stage, stack).await,
            Self::DeleteNamespace => delete_namespace(stage, stack).await,
            _ => Err("nothing causes it".into()),
        }
    }
}

pub(super) async fn kubectl(stage: &Stage<'_>, namespace: &str, arguments: &[&str]) -> Result<(), String> {
    let all = [&["-n", namespace], arguments].concat();
    stage.installation.try_kubectl(&all).await.map(drop)
}

pub(super) async fn controllers(stage: &Stage<'_>) -> Result<Api<Pod>, String> {
    let client = stage.node.client().await.map_err(failure("make a client"))?;
    Ok(Api::namespaced(client, install::NAMESPACE))
}

/// Repeats an attempt until it has a result.
pub(super) async fn wait_for<T>(
    what: &str,
    attempt: impl AsyncFn() -> Result<Option<T>, String>,
) -> Result<T, String> {
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

/// Evicts the pods of the run. Where the provider holds a step, waits until they have ended: the run is interrupted in that step.
async fn evict(stack: &Stack) -> Result<usize, String> {
    let (pods, params) = (stack.pods(), EvictParams::default());
    let mut evicted = BTreeSet::new();
    for pod in stack.running_pods().await? {
        let name = pod.name_any();
        // It may have ended since it was listed.
        if retry(|| pods.evict(&name, &params)).await.is_ok() {
            evicted.insert(name);
        }
    }
    if stack.trial.moment.step().is_some() {
        wait_for("an evicted pod did not end", async || {
            let running = stack.running_pods().await?;
            let has_ended = !running.iter().any(|pod| evicted.contains(&pod.name_any()));
            Ok(has_ended.then_some(()))
        })
        .await?;
    }
    Ok(evicted.len())
}

/// Kills the processes of the containers of pods, or those of one program in them.
pub(super) async fn kill(stage: &Stage<'_>, pods: &[Pod], program: Option<&str>) -> Result<usize, String> {
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
/// meanwhile, unless the moment is not held.
async fn kill_run(stage: &Stage<'_>, stack: &Stack, program: Option<&str>) -> Result<usize, String> {
    if !stack.trial.moment.is_held() {
        return kill(stage, &stack.running_pods().await?, program).await;
    }
    wait_for("there was no process to kill", async || {
        let hits = kill(stage, &stack.running_pods().await?, program).await?;
        Ok((hits > 0).then_some(hits))
    })
    .await
}

/// Removes the artifact from the storage, as the garbage collection of source-controller does after newer revisions.
async fn collect_artifact(stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
    let files = artifact_files(stage, stack).await?;
    if files.is_empty() {
        return Err("there is no artifact".into());
    }
    for file in &files {
        std::fs::remove_file(file).map_err(failure("remove the artifact"))?;
    }
    stack.change_source().await?;
    Ok(files.len())
}

/// Returns the files of the artifacts of the source. A pod that is being replaced has none.
pub(super) async fn artifact_files(stage: &Stage<'_>, stack: &Stack) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for pod in pods::running(&controllers(stage).await?, SOURCE_CONTROLLER).await? {
        let folder = stage.node.pod_folder(&pod.uid().unwrap_or_default());
        let artifacts = folder.join(STORAGE).join(&stack.namespace).join(&stack.name);
        let found = std::fs::read_dir(artifacts).into_iter().flatten().flatten();
        let is_archive = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "gz");
        files.extend(found.map(|entry| entry.path()).filter(is_archive));
    }
    Ok(files)
}

async fn replace_account(stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
    kubectl(stage, &stack.namespace, &["delete", "serviceaccount", ACCOUNT]).await?;
    stack.begin()?;
    tokio::time::sleep(ABSENCE).await;
    kubectl(stage, &stack.namespace, &["create", "serviceaccount", ACCOUNT]).await?;
    Ok(1)
}

async fn replace_inputs(stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
    kubectl(stage, &stack.namespace, &["delete", "secret,configmap", INPUTS]).await?;
    stack.begin()?;
    tokio::time::sleep(ABSENCE).await;
    stack.create_inputs().await?;
    Ok(1)
}

/// Edits the stack, its source and its runs for a time. Returns how often.
async fn edit_objects(stack: &Stack) -> Result<usize, String> {
    stack.begin()?;
    let deadline = Instant::now() + EDITS;
    let mut hits = 0;
    while Instant::now() < deadline {
        hits += stack.annotate_objects(hits).await?;
        tokio::time::sleep(POLL_INTERVAL / 4).await;
    }
    Ok(hits)
}

async fn delete_namespace(stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
    let delete = ["delete", "namespace", &stack.namespace, "--wait=false"];
    kubectl(stage, &stack.namespace, &delete).await?;
    Ok(1)
}
