//! Starts runners and checks their liveness. A runner reports only through the status of its TerraformRun.

mod environment;
mod lock_domain;
mod process;

use std::path::Path;
use std::sync::Arc;

pub(crate) use environment::runner_environment;
use futures::future::BoxFuture;
pub use process::{ProcessExecutor, ProcessOptions};
use sluice_runtime::schedule::ObjectKey;
use sluice_tf_core::bundle::BundlePayload;
use sluice_tf_core::run_input::Kubeconfigs;

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

/// Whether a run has a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It has one, or was started a moment ago.
    Alive,
    /// It has none.
    Gone,
    /// The runner is in another lock domain: only its heartbeats show whether it is alive.
    OtherLockDomain,
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

    /// Starts the runner of a run, with the run's bundle unless that is stored in Secrets. A second start is harmless: only one
    /// runner claims the run.
    fn start(&self, run: RunRef, bundle: Option<BundlePayload>) -> BoxFuture<'_, Result<(), ExecutorError>>;

    /// Returns whether the runner of a run is alive. `lock_domain` is that of its claim; empty before it is claimed.
    fn liveness(&self, run: RunRef, lock_domain: String) -> BoxFuture<'_, Result<Liveness, ExecutorError>>;

    /// Removes the files of a deleted run, unless a process of it is alive. They may be gone already.
    fn forget(&self, run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>>;

    /// Returns the runs that have files.
    fn list_runs(&self) -> BoxFuture<'_, Result<Vec<RunRef>, ExecutorError>>;

    /// Removes the files of a deleted stack in the background, once no process of it is alive, unless the stack exists again.
    fn forget_stack(&self, stack: ObjectKey, is_gone: IsGone);

    /// Returns the stacks that have files.
    fn list_stacks(&self) -> BoxFuture<'_, Result<Vec<ObjectKey>, ExecutorError>>;
}
