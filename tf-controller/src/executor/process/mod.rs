//! Runs as child processes of the controller.
//!
//! A runner holds the process lock `<root>/runs/<namespace>_<name>.lock` while it is alive. It has its own process group and
//! outlives the controller that started it; the next controller finds it by the lock.

mod files;
mod starts;
mod stop;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, FutureExt};
use kube::ResourceExt as _;
use sluice_api::run::TerraformRun;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::sync::lock;
use sluice_tf_core::bundle::BundlePayload;
use sluice_tf_core::process_lock::is_locked;
use sluice_tf_core::run_input::{PodRef, RunInput};
use starts::{START_EXPIRY, StartDecision, Starts};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::sync::{mpsc, watch};

use super::lock_domain::lock_domain;
use super::{Credentials, Executor, ExecutorError, IsGone, Launch, Liveness, RunRef, RunnerRef};

/// The options of runner processes.
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    /// The program and its leading arguments; `--namespace`, `--run`, … are appended.
    pub command: Vec<String>,
    /// The directory of locks, logs and working directories; created with mode 0700.
    pub root: PathBuf,
    /// Directory of the installed versions of the CLI.
    pub tools: Option<PathBuf>,
    /// The whole environment of the runner.
    pub environment: BTreeMap<String, String>,
    /// Issues the API credentials of runs; `None`: the environment has them.
    pub credentials: Option<Arc<dyn Credentials>>,
    /// The pod of this process and its runners.
    pub pod: Option<PodRef>,
    /// `host[:port]` that replaces the one of artifact URLs.
    pub artifact_host: Option<String>,
}

/// Time between checks of a lock whose holder is not a child of this process.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Runs as child processes.
pub struct ProcessExecutor {
    options: ProcessOptions,
    /// The lock domain of this process.
    lock_domain: String,
    /// The runners that this process started and that have not ended, with their process ids: alive even before they hold
    /// their lock.
    children: watch::Sender<HashMap<RunRef, Option<u32>>>,
    /// The recent starts of runs.
    starts: Mutex<HashMap<RunRef, Starts>>,
    /// The active runs of other processes whose end is awaited.
    awaited: Arc<Mutex<HashSet<RunRef>>>,
    /// Receives each run whose process has ended, so that a crash is found without delay.
    ended: mpsc::UnboundedSender<RunRef>,
}

impl ProcessExecutor {
    /// Creates the directories below `options.root`. The receiver yields each run whose process has ended.
    ///
    /// # Errors
    /// [`ExecutorError::Directory`] if they cannot be created.
    pub fn new(options: ProcessOptions) -> Result<(Self, mpsc::UnboundedReceiver<RunRef>), ExecutorError> {
        let runs = options.root.join("runs");
        let lock_domain = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&runs)
            .and_then(|()| lock_domain(&options.root, options.pod.is_some()))
            .map_err(directory_error(&runs))?;
        let (ended, receiver) = mpsc::unbounded_channel();
        Ok((
            Self {
                options,
                lock_domain,
                children: watch::Sender::default(),
                starts: Mutex::default(),
                awaited: Arc::default(),
                ended,
            },
            receiver,
        ))
    }

    /// The directory of the runs' locks and logs.
    fn runs_dir(&self) -> PathBuf {
        self.options.root.join("runs")
    }

    fn file(&self, run: &RunRef, suffix: &str) -> PathBuf {
        files::path(&self.runs_dir(), run, suffix)
    }

    /// The directory of the stacks' working directories.
    fn work_dir(&self) -> PathBuf {
        self.options.root.join("work")
    }

    /// Returns the standard input of the runner.
    async fn input(
        &self,
        run: &TerraformRun,
        bundle: Option<BundlePayload>,
    ) -> Result<Vec<u8>, ExecutorError> {
        let failed = |text| ExecutorError::Input {
            run: run.name_any(),
            text,
        };
        let access = match &self.options.credentials {
            Some(credentials) => Some(credentials.access(RunRef::of(run)).await.map_err(failed)?),
            None => None,
        };
        let bundle = bundle.map(BundlePayload::into_text);
        let input = RunInput {
            access,
            bundle,
            run: Some(Box::new(run.clone())),
        };
        serde_json::to_vec(&input).map_err(|error| failed(error.to_string()))
    }

    fn spawn(&self, run: RunRef, input: Vec<u8>) -> Result<(), ExecutorError> {
        let program = self.options.command.first().cloned().unwrap_or_default();
        let failed = |source| ExecutorError::Start {
            program: program.clone(),
            run: run.name.clone(),
            source,
        };
        let log = files::open_private(&self.file(&run, "log")).map_err(failed)?;
        let tools = self.options.tools.iter();
        let mut child = Command::new(&program)
            .args(self.options.command.iter().skip(1))
            .args(tools.flat_map(|tools| [OsStr::new("--tools-dir"), tools.as_os_str()]))
            .args(["--namespace", &run.namespace, "--run", &run.name, "--process"])
            .arg("--work-root")
            .arg(self.work_dir())
            .arg("--lock-file")
            .arg(self.file(&run, "lock"))
            .args(["--lock-domain", &self.lock_domain])
            .args(
                self.options
                    .artifact_host
                    .iter()
                    .map(|host| format!("--source-controller-localhost={host}")),
            )
            .args(
                self.options
                    .pod
                    .iter()
                    .flat_map(|pod| ["--pod".to_owned(), pod.to_string()]),
            )
            .env_clear()
            .envs(&self.options.environment)
            .arg("--input-stdin")
            .stdin(Stdio::piped())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            .process_group(0) // the terminal's Ctrl-C is for the controller
            .spawn()
            .map_err(failed)?;
        self.children.send_modify(|children| {
            children.insert(run.clone(), child.id());
        });
        let (pipe, name) = (child.stdin.take(), run.name.clone());
        tokio::spawn(async move {
            if let Some(mut pipe) = pipe
                && let Err(error) = pipe.write_all(&input).await
            {
                tracing::warn!(run = name, %error, "the runner ended before it read its input");
            }
        });
        let (children, ended) = (self.children.clone(), self.ended.clone());
        tokio::spawn(async move {
            let status = child.wait().await;
            tracing::debug!(run = run.name, ?status, "runner process ended");
            children.send_modify(|children| {
                children.remove(&run);
            });
            drop(ended.send(run)); // without receiver, the controller is stopping
        });
        Ok(())
    }

    /// Returns whether the runner may be started now, and counts the start.
    fn may_start(&self, run: &RunRef) -> Result<bool, ExecutorError> {
        let now = Instant::now();
        let mut starts = lock(&self.starts);
        starts.retain(|_, before| now.duration_since(before.last) < START_EXPIRY);
        match Starts::next(starts.get(run).copied(), now) {
            StartDecision::Start(next) => {
                starts.insert(run.clone(), next);
                Ok(true)
            }
            StartDecision::TooSoon => Ok(false),
            StartDecision::GiveUp => {
                starts.remove(run);
                Err(ExecutorError::NotClaimed {
                    run: run.name.clone(),
                    log: self.file(run, "log").display().to_string(),
                })
            }
        }
    }

    /// Reports the end of an active run without a child process: an earlier controller started its runner, or the runner was
    /// killed and its CLI still works.
    fn await_end(&self, run: RunRef) {
        let is_new = lock(&self.awaited).insert(run.clone());
        if !is_new {
            return;
        }
        let path = self.file(&run, "lock");
        let (awaited, ended) = (Arc::clone(&self.awaited), self.ended.clone());
        tokio::spawn(async move {
            while matches!(is_locked(&path), Ok(true)) && !ended.is_closed() {
                tokio::time::sleep(LOCK_POLL_INTERVAL).await;
            }
            lock(&awaited).remove(&run);
            drop(ended.send(run)); // without receiver, the controller is stopping
        });
    }

    fn is_child(&self, run: &RunRef) -> bool {
        self.children.borrow().contains_key(run)
    }
}

impl Executor for ProcessExecutor {
    /// By standard input: no other process can read or replace the bundle, and none of it is stored.
    fn passes_bundles(&self) -> bool {
        true
    }

    fn start<'a>(&'a self, launch: Launch<'a>) -> BoxFuture<'a, Result<(), ExecutorError>> {
        async move {
            let run = RunRef::of(launch.run);
            if !self.is_child(&run) && self.may_start(&run)? {
                let input = self.input(launch.run, launch.bundle).await?;
                self.spawn(run, input)?;
            }
            Ok(())
        }
        .boxed()
    }

    /// A process claims its run or ends within moments.
    fn cancel(&self, _run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>> {
        std::future::ready(Ok(())).boxed()
    }

    /// A runner without a lock domain has a pod of its own: it may still work after the executor was changed.
    fn liveness(&self, runner: RunnerRef) -> BoxFuture<'_, Result<Liveness, ExecutorError>> {
        async move {
            let RunnerRef { run, lock_domain, .. } = runner;
            if self.is_child(&run) {
                return Ok(Liveness::Locked);
            }
            if lock_domain.is_some_and(|domain| domain != self.lock_domain) {
                return Ok(Liveness::OtherLockDomain);
            }
            let path = self.file(&run, "lock");
            if !is_locked(&path).map_err(directory_error(&path))? {
                return Ok(Liveness::Gone);
            }
            self.await_end(run);
            Ok(Liveness::Locked)
        }
        .boxed()
    }

    fn forget(&self, run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>> {
        async move {
            lock(&self.starts).remove(&run);
            let (log, lock) = (self.file(&run, "log"), self.file(&run, "lock"));
            let remove = move || files::remove(&log, &lock).map_err(directory_error(&lock));
            if !self.is_child(&run) {
                return remove();
            }
            // The runner has reported the end of the run and is about to exit.
            let mut children = self.children.subscribe();
            tokio::spawn(async move {
                drop(children.wait_for(|children| !children.contains_key(&run)).await);
                if let Err(error) = remove() {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot delete the files of an old run yet"
                    );
                }
            });
            Ok(())
        }
        .boxed()
    }

    fn list_runs(&self) -> BoxFuture<'_, Result<Vec<RunRef>, ExecutorError>> {
        let runs = self.runs_dir();
        async move { files::list(&runs).map_err(directory_error(&runs)) }.boxed()
    }

    fn forget_stack(&self, stack: ObjectKey, is_gone: IsGone) {
        let ended = self.ended.clone();
        tokio::spawn(files::remove_stack(self.work_dir(), stack, is_gone, ended));
    }

    fn list_stacks(&self) -> BoxFuture<'_, Result<Vec<ObjectKey>, ExecutorError>> {
        let work = self.work_dir();
        async move { files::list_stacks(&work).map_err(directory_error(&work)) }.boxed()
    }
}

fn directory_error(path: &Path) -> impl FnOnce(io::Error) -> ExecutorError {
    let path = path.display().to_string();
    move |source| ExecutorError::Directory { path, source }
}
