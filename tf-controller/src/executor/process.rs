//! Runs as child processes of the controller, for machines without a cluster, for development and for tests.
//!
//! A runner holds an advisory lock on `<root>/runs/<namespace>_<name>.lock` for as long as it lives, in a session of its
//! own: it outlives the controller that started it, and the next controller sees by the lock that it lives.

mod files;
mod stacks;
mod starts;

use super::{Credentials, Executor, ExecutorError, IsGone, Liveness, RunRef, site::site};
use futures::future::{BoxFuture, FutureExt};
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::sync::lock;
use sluice_tf_core::{bundle::Packed, pod::Pod, process_lock::is_locked, run_input::RunInput};
use starts::{Again, Starts};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::OsStr,
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{
    io::AsyncWriteExt as _,
    process::Command,
    sync::{mpsc, watch},
};

/// How runner processes are started.
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    /// The program and its leading arguments; `--namespace`, `--run`, … are appended.
    pub command: Vec<String>,
    /// Holds locks, logs and the working directories of the stacks; made with mode 0700.
    pub root: PathBuf,
    /// Directory of the installed versions of the CLI.
    pub tools: Option<PathBuf>,
    /// The whole environment of the runner.
    pub environment: BTreeMap<String, String>,
    /// Who gives runs their way to the API; none: the environment tells it.
    pub credentials: Option<Arc<dyn Credentials>>,
    /// The pod that this process and its runners work in.
    pub pod: Option<Pod>,
    /// `host[:port]` that replaces the one of artifact URLs.
    pub artifact_host: Option<String>,
}

/// How often a lock is looked at whose holder is no child of this process.
const LOOK: Duration = Duration::from_millis(500);
/// Starts older than this are forgotten.
const REMEMBERED: Duration = Duration::from_secs(600);

/// Runs as child processes.
pub struct ProcessExecutor {
    options: ProcessOptions,
    /// Whose file locks are seen.
    site: String,
    /// Started here and not yet seen to end: alive even before they hold their lock.
    children: watch::Sender<HashMap<RunRef, Option<u32>>>,
    /// Starts of runs that did not lead anywhere yet.
    starts: Mutex<HashMap<RunRef, Starts>>,
    /// Runs that live without being children, and are waited for.
    adopted: Arc<Mutex<HashSet<RunRef>>>,
    /// Told of each runner that ended, so that a crash is noticed without waiting.
    ended: mpsc::UnboundedSender<RunRef>,
}

impl ProcessExecutor {
    /// Makes the directories below `options.root`. The receiver yields each run whose process has ended.
    ///
    /// # Errors
    /// [`ExecutorError::Directory`] when they cannot be made.
    pub fn new(options: ProcessOptions) -> Result<(Self, mpsc::UnboundedReceiver<RunRef>), ExecutorError> {
        let runs = options.root.join("runs");
        let site = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&runs)
            .and_then(|()| site(&options.root, options.pod.is_some()));
        let site = site.map_err(|source| ExecutorError::Directory {
            path: runs.display().to_string(),
            source,
        })?;
        let (ended, receiver) = mpsc::unbounded_channel();
        Ok((
            Self {
                options,
                site,
                children: watch::Sender::default(),
                starts: Mutex::default(),
                adopted: Arc::default(),
                ended,
            },
            receiver,
        ))
    }

    fn file(&self, run: &RunRef, suffix: &str) -> PathBuf {
        files::of(&self.options.root.join("runs"), run, suffix)
    }

    /// Where the directories of stacks are.
    fn work(&self) -> PathBuf {
        self.options.root.join("work")
    }

    /// What the runner reads from standard input.
    async fn input(&self, run: &RunRef, bundle: Option<Packed>) -> Result<Vec<u8>, ExecutorError> {
        let failed = |text| ExecutorError::Input {
            run: run.name.clone(),
            text,
        };
        let access = match &self.options.credentials {
            Some(credentials) => Some(credentials.access(run.clone()).await.map_err(failed)?),
            None => None,
        };
        let bundle = bundle.map(Packed::into_text);
        serde_json::to_vec(&RunInput { access, bundle }).map_err(|error| failed(error.to_string()))
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
            .arg(self.work())
            .arg("--lock-file")
            .arg(self.file(&run, "lock"))
            .args(["--site", &self.site])
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
            drop(ended.send(run)); // nobody listens any more: the controller is stopping
        });
        Ok(())
    }

    /// Whether the runner may be started now; not so soon after the last time.
    fn may_start(&self, run: &RunRef) -> Result<bool, ExecutorError> {
        let now = Instant::now();
        let mut starts = lock(&self.starts);
        starts.retain(|_, before| now.duration_since(before.last) < REMEMBERED);
        match Starts::again(starts.get(run).copied(), now) {
            Again::Start(next) => {
                starts.insert(run.clone(), next);
                Ok(true)
            }
            Again::NotYet => Ok(false),
            Again::GiveUp => {
                starts.remove(run);
                Err(ExecutorError::NeverTaken {
                    run: run.name.clone(),
                    log: self.file(run, "log").display().to_string(),
                })
            }
        }
    }

    /// Tells of the end of a run that lives without being a child: its runner was started by an earlier controller, or was
    /// killed and left a CLI that finishes.
    fn await_end(&self, run: RunRef) {
        let fresh = lock(&self.adopted).insert(run.clone());
        if !fresh {
            return;
        }
        let (path, adopted, ended) = (
            self.file(&run, "lock"),
            Arc::clone(&self.adopted),
            self.ended.clone(),
        );
        tokio::spawn(async move {
            while matches!(is_locked(&path), Ok(true)) && !ended.is_closed() {
                tokio::time::sleep(LOOK).await;
            }
            lock(&adopted).remove(&run);
            drop(ended.send(run)); // nobody listens any more: the controller is stopping
        });
    }

    fn is_ours(&self, run: &RunRef) -> bool {
        self.children.borrow().contains_key(run)
    }

    /// Whether no runner that was started here is left.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.children.borrow().is_empty()
    }

    /// Waits until no runner that was started here is left.
    pub async fn idle(&self) {
        // The sender lives in self: the wait cannot fail.
        drop(self.children.subscribe().wait_for(HashMap::is_empty).await);
    }

    /// Lets the runners that were started here finish for so long, or until the hurry comes; then the CLIs are interrupted, so
    /// that they write their states, and it waits for that.
    pub async fn finish(&self, grace: Duration, hurry: impl Future<Output = ()>) {
        tokio::select! {
            () = self.idle() => return,
            () = tokio::time::sleep(grace) => {}
            () = hurry => {}
        }
        tracing::warn!("interrupting the runs that are left");
        self.interrupt();
        self.idle().await;
    }

    /// Interrupts the runners that were started here: they interrupt the CLI and report.
    pub fn interrupt(&self) {
        for id in self.children.borrow().values().flatten() {
            if let Some(process) = rustix::process::Pid::from_raw(id.cast_signed()) {
                // One that has just ended needs no interrupt.
                let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
            }
        }
    }
}

impl Executor for ProcessExecutor {
    /// By standard input: no other process can read or replace the bundle, and nothing of it is stored.
    fn hands_over_bundles(&self) -> bool {
        true
    }

    fn start(&self, run: RunRef, bundle: Option<Packed>) -> BoxFuture<'_, Result<(), ExecutorError>> {
        async move {
            if !self.is_ours(&run) && self.may_start(&run)? {
                let input = self.input(&run, bundle).await?;
                self.spawn(run, input)?;
            }
            Ok(())
        }
        .boxed()
    }

    fn liveness(&self, run: RunRef, site: String) -> BoxFuture<'_, Result<Liveness, ExecutorError>> {
        async move {
            if self.is_ours(&run) {
                return Ok(Liveness::Alive);
            }
            if !site.is_empty() && site != self.site {
                return Ok(Liveness::Elsewhere);
            }
            let path = self.file(&run, "lock");
            let lives = is_locked(&path).map_err(|source| ExecutorError::Directory {
                path: path.display().to_string(),
                source,
            })?;
            if !lives {
                return Ok(Liveness::Gone);
            }
            self.await_end(run);
            Ok(Liveness::Alive)
        }
        .boxed()
    }

    fn forget(&self, run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>> {
        async move {
            lock(&self.starts).remove(&run);
            let (log, lock) = (self.file(&run, "log"), self.file(&run, "lock"));
            let remove = move || {
                files::remove(&log, &lock).map_err(|source| ExecutorError::Directory {
                    path: lock.display().to_string(),
                    source,
                })
            };
            if !self.is_ours(&run) {
                return remove();
            }
            // It has reported its end and is about to end.
            let mut children = self.children.subscribe();
            tokio::spawn(async move {
                drop(children.wait_for(|children| !children.contains_key(&run)).await);
                if let Err(error) = remove() {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "files of an old run stay for now"
                    );
                }
            });
            Ok(())
        }
        .boxed()
    }

    fn kept(&self) -> BoxFuture<'_, Result<Vec<RunRef>, ExecutorError>> {
        async move {
            let runs = self.options.root.join("runs");
            files::list(&runs).map_err(|source| ExecutorError::Directory {
                path: runs.display().to_string(),
                source,
            })
        }
        .boxed()
    }

    fn forget_stack(&self, stack: ObjectKey, is_gone: IsGone) {
        let ended = self.ended.clone();
        tokio::spawn(stacks::remove(self.work(), stack, is_gone, ended));
    }

    fn kept_stacks(&self) -> BoxFuture<'_, Result<Vec<ObjectKey>, ExecutorError>> {
        let work = self.work();
        async move {
            stacks::list(&work).map_err(|source| ExecutorError::Directory {
                path: work.display().to_string(),
                source,
            })
        }
        .boxed()
    }
}
