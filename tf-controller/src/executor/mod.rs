//! Starts runners and checks their liveness. A runner reports only through the status of its TerraformRun.

mod environment;
mod job;
mod lock_domain;
mod process;

use std::path::Path;
use std::sync::Arc;

pub(crate) use environment::{pod_environment, runner_environment};
use futures::future::BoxFuture;
pub use job::{JobExecutor, JobOptions};
pub(crate) use job::{is_without_account, waits_for_change};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource as _, ResourceExt as _};
pub use process::{ProcessExecutor, ProcessOptions};
use sluice_api::run::TerraformRun;
use sluice_api::terraform::{Reason, TerraformSpec};
use sluice_runtime::schedule::ObjectKey;
use sluice_tf_core::bundle::BundlePayload;
use sluice_tf_core::run_input::Kubeconfigs;

use crate::memory::{MeasuredMemory, MemoryQuantity};

/// Returns the arguments of a runner that shares a provider cache with other runners.
#[must_use]
pub fn provider_cache(directory: &Path, max_bytes: u64) -> [String; 2] {
    [
        format!("--provider-cache-dir={}", directory.display()),
        format!("--provider-cache-max-bytes={max_bytes}"),
    ]
}

/// Namespace and name of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl RunRef {
    /// Returns the reference of a run.
    #[must_use]
    pub fn of(run: &TerraformRun) -> Self {
        Self {
            namespace: run.namespace().unwrap_or_default(),
            name: run.name_any(),
        }
    }
}

/// Returns whether an object belongs to a deleted run of this run's name, and is about to be collected with it: a number is used
/// again when the newest run of a stack was deleted.
pub(crate) fn is_of_deleted_namesake(object: &ObjectMeta, run: &TerraformRun) -> bool {
    let mut owners = object.owner_references.iter().flatten();
    owners.any(|owner| {
        let is_namesake = owner.kind == TerraformRun::kind(&()) && owner.name == run.name_any();
        is_namesake && Some(&owner.uid) != run.metadata.uid.as_ref()
    })
}

/// The runner of a run, as far as the run's record names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerRef {
    /// The run.
    pub run: RunRef,
    /// The uid of the run: a deleted one may have had its name.
    pub run_uid: String,
    /// The lock domain of the claim; empty if the runner has a pod of its own. `None` before the run is claimed.
    pub lock_domain: Option<String>,
}

impl RunnerRef {
    /// Returns the reference of the runner of a run.
    #[must_use]
    pub fn of(run: &TerraformRun) -> Self {
        let claim = run.status.as_ref().and_then(|status| status.claim.as_ref());
        Self {
            run: RunRef::of(run),
            run_uid: run.uid().unwrap_or_default(),
            lock_domain: claim.map(|claim| claim.lock_domain.clone()),
        }
    }
}

/// A run to start.
pub struct Launch<'a> {
    /// The run, with its deadline.
    pub run: &'a TerraformRun,
    /// The spec of its stack, with the settings of the runner's pod and its grace period.
    pub spec: &'a TerraformSpec,
    /// The measured memory of the stack's runs.
    pub memory: MeasuredMemory,
    /// The ServiceAccount of the runner's pod; empty: that of pods without one.
    pub account: &'a str,
    /// The bundle, if the executor passes it.
    pub bundle: Option<BundlePayload>,
}

/// What the executor, or the cluster, knows about a runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It is accepted and has not begun; what it waits for, if that is known.
    Pending(Option<PendingReason>),
    /// It is alive, in a pod that Kubernetes ends at the deadline.
    Alive,
    /// A process holds its lock, or was started a moment ago. It may hang: then it sends no heartbeats after the deadline.
    Locked,
    /// It has ended, and its pod or Job shows how.
    Ended(RunnerEnd),
    /// Neither a process nor a pod of it exists.
    Gone,
    /// It is in another lock domain: only its heartbeats show whether it is alive.
    OtherLockDomain,
}

/// What a runner waits for before it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingReason {
    /// The reason in Kubernetes' words, such as `Unschedulable` or `ImagePullBackOff`.
    pub reason: String,
    /// Public message, with what the user can do.
    pub message: String,
}

/// How a runner ended that did not report its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerEnd {
    /// The reason.
    pub reason: Reason,
    /// Public message.
    pub message: String,
    /// The memory limit that its container exceeded.
    pub exceeded_memory: Option<MemoryQuantity>,
    /// Whether its pod is deleted, by a user or by Kubernetes, other than at the deadline of the Job.
    pub is_pod_deleted: bool,
}

/// Why an executor failed.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The runner program could not be started.
    #[error("cannot start the runner {program} for run {run}: {source}")]
    Start {
        /// The program.
        program: String,
        /// The run.
        run: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The runner was started several times and ended each time before it claimed the run.
    #[error("the runner of run {run} ends before it claims the run; its log is {log}")]
    NotClaimed {
        /// The run.
        run: String,
        /// Path of the runner's log.
        log: String,
    },
    /// The API rejected the Job of the run.
    #[error("cannot create the Job of run {run}: {text}")]
    Rejected {
        /// The run.
        run: String,
        /// The message of the API.
        text: String,
    },
    /// The API did not answer.
    #[error("the API server: {0}")]
    Api(#[from] kube::Error),
    /// The input of the runner cannot be prepared.
    #[error("cannot prepare the API access of run {run}: {text}")]
    Input {
        /// The run.
        run: String,
        /// The reason.
        text: String,
    },
    /// The executor's directory cannot be used.
    #[error("cannot use the run directory {path}: {source}")]
    Directory {
        /// The path.
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

/// Issues API credentials for runs whose environment has none.
pub trait Credentials: Send + Sync + std::fmt::Debug {
    /// Returns the API access of the run and of the CLI's backend.
    fn access(&self, run: RunRef) -> BoxFuture<'_, Result<Kubeconfigs, String>>;
}

/// Returns whether this controller has no such stack now.
pub type IsGone = Arc<dyn Fn() -> bool + Send + Sync>;

/// Starts runners and checks their liveness.
pub trait Executor: Send + Sync {
    /// Returns whether this executor passes the bundle of a run to its runner. Otherwise the controller stores it in Secrets
    /// before the start, as for runners on another machine.
    fn passes_bundles(&self) -> bool;

    /// Returns whether each run has a pod of its own, with fields that its environment may name.
    fn has_pods(&self) -> bool {
        false
    }

    /// Starts the runner of a run. A second start is harmless: only one runner claims the run.
    fn start<'a>(&'a self, launch: Launch<'a>) -> BoxFuture<'a, Result<(), ExecutorError>>;

    /// Ends a runner that has not claimed its run, which has ended. A runner that is alive would fail to claim it.
    fn cancel(&self, run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>>;

    /// Returns what is known about the runner of a run.
    fn liveness(&self, runner: RunnerRef) -> BoxFuture<'_, Result<Liveness, ExecutorError>>;

    /// Removes the files of a deleted run, unless a process of it is alive. They may be gone already.
    fn forget(&self, run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>>;

    /// Returns the runs that have files.
    fn list_runs(&self) -> BoxFuture<'_, Result<Vec<RunRef>, ExecutorError>>;

    /// Removes the files of a deleted stack in the background, once no process of it is alive, unless the stack exists again.
    fn forget_stack(&self, stack: ObjectKey, is_gone: IsGone);

    /// Returns the stacks that have files.
    fn list_stacks(&self) -> BoxFuture<'_, Result<Vec<ObjectKey>, ExecutorError>>;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_of_a_deleted_run_is_told_from_that_of_another_owner() {
        let run: TerraformRun = serde_json::from_value(json!({
            "metadata": { "name": "net-0123456789-5", "uid": "new" },
            "spec": { "action": "Plan", "attempt": 1, "deadline": "1h", "trigger": "Revision",
                "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
                "terraform": { "name": "net", "uid": "u", "generation": 1 } },
        }))
        .unwrap();
        let owned = |kind: &str, name: &str, uid: &str| {
            let owner = json!({ "apiVersion": "v1", "kind": kind, "name": name, "uid": uid });
            let object = serde_json::from_value(json!({ "ownerReferences": [owner] })).unwrap();
            is_of_deleted_namesake(&object, &run)
        };
        assert!(owned("TerraformRun", "net-0123456789-5", "old"));
        assert!(!owned("TerraformRun", "net-0123456789-5", "new"));
        assert!(!owned("TerraformRun", "net-0123456789-4", "old"));
        assert!(!owned("CronJob", "net-0123456789-5", "old"));
        assert!(!is_of_deleted_namesake(&ObjectMeta::default(), &run));
    }
}
