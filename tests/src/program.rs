//! `sluice up` as a child process of the demo and the suites.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use sluice_harness::kubeconfig::connect;
use tokio::process::{Child, Command};

use crate::{BoxError, binary};

/// Timeout of shutdown, and of a start unless [`Setup::with_start_timeout`] sets another one.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The options of the program. All files are in one folder, so that it can be restarted on the same state.
#[derive(Clone, Debug)]
pub struct Setup {
    folder: PathBuf,
    state: bool,
    store: Option<String>,
    program: Option<PathBuf>,
    progress: bool,
    start_timeout: Duration,
}

impl Setup {
    /// Creates options with all files below `folder`.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            state: true,
            store: None,
            program: None,
            progress: false,
            start_timeout: TIMEOUT,
        }
    }

    /// Adds `--store`.
    #[must_use]
    pub fn with_store(self, store: &str) -> Self {
        let store = Some(store.to_owned());
        Self { store, ..self }
    }

    /// Sets the timeout of a start.
    #[must_use]
    pub fn with_start_timeout(self, start_timeout: Duration) -> Self {
        Self {
            start_timeout,
            ..self
        }
    }

    /// Uses another build of the program.
    #[must_use]
    pub fn program(self, program: &Path) -> Self {
        let program = Some(program.to_owned());
        Self { program, ..self }
    }

    /// Omits `--state`.
    #[must_use]
    pub fn without_state(self) -> Self {
        Self { state: false, ..self }
    }

    /// Prints progress to the log.
    #[must_use]
    pub fn with_progress(self) -> Self {
        Self {
            progress: true,
            ..self
        }
    }

    /// Returns the directory of `--state`.
    #[must_use]
    pub fn state_folder(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Returns the directory of the manifests.
    #[must_use]
    pub fn manifests(&self) -> PathBuf {
        self.folder.join("manifests")
    }

    /// Writes one manifest per file.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, manifests: &[(&str, Value)]) -> Result<(), BoxError> {
        std::fs::create_dir_all(self.manifests())?;
        for (file, manifest) in manifests {
            std::fs::write(self.manifests().join(file), serde_yaml_ng::to_string(manifest)?)?;
        }
        Ok(())
    }

    /// Returns the path of the kubeconfig that the program writes.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Returns the output of all starts so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("sluice.log")).unwrap_or_default()
    }

    fn arguments(&self) -> Vec<String> {
        let path_text = |path: PathBuf| path.display().to_string();
        let mut arguments = vec!["up".to_owned(), "-f".to_owned(), path_text(self.manifests())];
        if self.state {
            arguments.extend(["--state".to_owned(), path_text(self.state_folder())]);
        }
        if let Some(store) = &self.store {
            arguments.extend(["--store".to_owned(), store.clone()]);
        }
        arguments.extend(["--kubeconfig-out".to_owned(), path_text(self.kubeconfig())]);
        if !self.progress {
            arguments.push("--quiet".to_owned());
        }
        arguments
    }

    /// Starts the process without waiting.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self) -> Result<Child, BoxError> {
        let program = self.program.clone().map_or_else(|| binary("sluice"), Ok)?;
        let log = self.folder.join("sluice.log");
        let file = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
        let child = Command::new(&program)
            .args(self.arguments())
            .env("PATH", sluice_harness::cli::search_path()?)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0) // Ctrl-C goes to the parent, which ends the program in order
            .kill_on_drop(true)
            .spawn();
        child.map_err(|error| format!("cannot start {}: {error}", program.display()).into())
    }
}

/// A running `sluice up`.
pub struct Program {
    setup: Setup,
    child: Child,
    client: Client,
}

impl Program {
    /// Starts the program and waits until its API is served.
    ///
    /// # Errors
    /// When it cannot be started, ends, or does not serve in time.
    pub async fn start(setup: Setup) -> Result<Self, BoxError> {
        let mut child = setup.spawn()?;
        let client = connect(&setup.kubeconfig(), &mut child, setup.start_timeout)
            .await
            .map_err(|error| format!("{error}\n{}", setup.log()))?;
        Ok(Self { setup, child, client })
    }

    /// Returns a client of its API.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the process id while it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Returns the command line as a user would type it.
    #[must_use]
    pub fn command(&self) -> String {
        format!("sluice {}", self.setup.arguments().join(" "))
    }

    /// Returns the path of its kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.setup.kubeconfig()
    }

    /// Returns the last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = self.setup.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Kills it (SIGKILL) and starts it again on the same state.
    ///
    /// # Errors
    /// As [`Program::start`].
    pub async fn kill_and_start(mut self) -> Result<Self, BoxError> {
        self.child.kill().await?;
        Self::start(self.setup.clone()).await
    }

    /// Ends it by SIGINT, as Ctrl-C does, and waits.
    ///
    /// # Errors
    /// When it does not end in time, or with another exit code than 0.
    pub async fn end(mut self) -> Result<(), BoxError> {
        let status = interrupt(&mut self.child).await?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("sluice ended with {status}\n{}", self.log_tail()).into())
        }
    }
}

/// Sends SIGINT and waits for the end.
async fn interrupt(child: &mut Child) -> Result<ExitStatus, BoxError> {
    let id = child
        .id()
        .and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
    if let Some(id) = id {
        rustix::process::kill_process(id, rustix::process::Signal::INT)?;
    }
    Ok(tokio::time::timeout(TIMEOUT, child.wait())
        .await
        .map_err(|_| "sluice did not end")??)
}
