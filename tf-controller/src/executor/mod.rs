//! Where runs are carried out. The controller starts a run and looks whether it lives; it never talks to it: all that a
//! run has to say stands in the status of its TerraformRun.

mod environment;
mod process;
mod site;

pub use environment::passed_on;
pub use process::{ProcessExecutor, ProcessOptions};

use futures::future::BoxFuture;
use sluice_runtime::schedule::ObjectKey;
use sluice_tf_core::{bundle::Packed, run_input::Access};
use std::{path::Path, sync::Arc};

/// The arguments of a runner that shares the packages of providers with others.
#[must_use]
pub fn provider_cache(directory: &Path, max_bytes: u64) -> [String; 2] {
    [
        format!("--provider-cache-dir={}", directory.display()),
        format!("--provider-cache-max-bytes={max_bytes}"),
    ]
}

/// One run, as an executor needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Whether the process of a run is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It is, or was started so short ago that it cannot be told yet.
    Alive,
    /// It is not.
    Gone,
    /// It works, or worked, where its locks cannot be seen from here: only its own signs of life tell.
    Elsewhere,
}

/// Why an executor could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The runner program could not be started.
    #[error("cannot start the runner {program} for run {run}: {source}")]
    Start {
        /// The program.
        program: String,
        /// The run.
        run: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The runner was started several times and ended each time before it took up the run.
    #[error("the runner of run {run} ends before it takes the run up; its log is {log}")]
    NeverTaken {
        /// The run.
        run: String,
        /// Where the runner's log is.
        log: String,
    },
    /// The runner cannot be given what it reads from standard input.
    #[error("cannot give run {run} its way to the API: {text}")]
    Input {
        /// The run.
        run: String,
        /// Why.
        text: String,
    },
    /// The executor's directory cannot be used.
    #[error("cannot use the run directory {path}: {source}")]
    Directory {
        /// The path.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Gives each run its own way to the API, where the environment of runs is not to lead there.
pub trait Credentials: Send + Sync + std::fmt::Debug {
    /// What the run and the CLI's backend are given, or why they cannot be.
    fn access(&self, run: RunRef) -> BoxFuture<'_, Result<Access, String>>;
}

/// Whether a stack is none of this controller's, now.
pub type IsGone = Arc<dyn Fn() -> bool + Send + Sync>;

/// Starts runs and tells whether they live.
pub trait Executor: Send + Sync {
    /// Whether this executor hands the bundle of a run to its runner itself. Otherwise the controller stores it in Secrets before
    /// the start, as for runners on another machine.
    fn hands_over_bundles(&self) -> bool;

    /// Starts the runner of a run, with the run's bundle unless that is stored in Secrets. Starting one twice is harmless: the run
    /// is claimed by one of them only.
    fn start(&self, run: RunRef, bundle: Option<Packed>) -> BoxFuture<'_, Result<(), ExecutorError>>;

    /// Whether the runner of a run is there. `site` is what its claim says, empty where nobody has claimed it.
    fn liveness(&self, run: RunRef, site: String) -> BoxFuture<'_, Result<Liveness, ExecutorError>>;

    /// Removes what the executor keeps of a run whose object is gone, unless something of it still lives. Nothing may be left
    /// of it already.
    fn forget(&self, run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>>;

    /// The runs of which the executor keeps something.
    fn kept(&self) -> BoxFuture<'_, Result<Vec<RunRef>, ExecutorError>>;

    /// Begins to remove what the executor keeps of a stack that is gone, as soon as nothing of it lives, and unless it is there
    /// again by then.
    fn forget_stack(&self, stack: ObjectKey, is_gone: IsGone);

    /// The stacks of which the executor keeps something.
    fn kept_stacks(&self) -> BoxFuture<'_, Result<Vec<ObjectKey>, ExecutorError>>;
}
