//! `sluice up` as a child process: of the demo, and of the suites.

use crate::{Failed, binary};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};
use tokio::process::{Child, Command};

/// How long the program may take to serve, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the program is started with. Everything lies in one folder, so that it can be started on the same state again.
#[derive(Clone, Debug)]
pub struct Setup {
    folder: PathBuf,
    state: bool,
    program: Option<PathBuf>,
    tells: bool,
}

impl Setup {
    /// Files below `folder`.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            state: true,
            program: None,
            tells: false,
        }
    }

    /// With another build of the program.
    #[must_use]
    pub fn program(self, program: &Path) -> Self {
        let program = Some(program.to_owned());
        Self { program, ..self }
    }

    /// Without `--state`.
    #[must_use]
    pub fn forgetful(self) -> Self {
        Self { state: false, ..self }
    }

    /// With the story among what it prints.
    #[must_use]
    pub fn telling(self) -> Self {
        Self { tells: true, ..self }
    }

    /// The directory of `--state`.
    #[must_use]
    pub fn state_folder(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Where its manifests are.
    #[must_use]
    pub fn manifests(&self) -> PathBuf {
        self.folder.join("manifests")
    }

    /// Writes one manifest per file.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, manifests: &[(&str, Value)]) -> Result<(), Failed> {
        std::fs::create_dir_all(self.manifests())?;
        for (file, manifest) in manifests {
            std::fs::write(self.manifests().join(file), serde_yaml_ng::to_string(manifest)?)?;
        }
        Ok(())
    }

    /// The kubeconfig that it writes.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// All that its starts have printed so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("sluice.log")).unwrap_or_default()
    }

    fn arguments(&self) -> Vec<String> {
        let text = |path: PathBuf| path.display().to_string();
        let mut words = vec!["up".to_owned(), "-f".to_owned(), text(self.manifests())];
        if self.state {
            words.extend(["--state".to_owned(), text(self.state_folder())]);
        }
        words.extend(["--kubeconfig-out".to_owned(), text(self.kubeconfig())]);
        if !self.tells {
            words.push("--quiet".to_owned());
        }
        words
    }

    /// The process, without waiting for anything.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self) -> Result<Child, Failed> {
        let program = self.program.clone().map_or_else(|| binary("sluice"), Ok)?;
        let log = self.folder.join("sluice.log");
        let file = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
        let child = Command::new(&program)
            .args(self.arguments())
            .env("PATH", sluice_harness::cli::search_path()?)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0) // a Ctrl-C is for who started it: that one ends it in order
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
    /// Starts it and waits until its API serves.
    ///
    /// # Errors
    /// When it cannot be started, or ends, or does not serve in time.
    pub async fn start(setup: Setup) -> Result<Self, Failed> {
        let mut child = setup.spawn()?;
        let client = connect(&setup.kubeconfig(), &mut child)
            .await
            .map_err(|error| format!("{error}\n{}", setup.log()))?;
        Ok(Self { setup, child, client })
    }

    /// A client for its API.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Its process id, while it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// The command line, as a user would type it.
    #[must_use]
    pub fn command(&self) -> String {
        format!("sluice {}", self.setup.arguments().join(" "))
    }

    /// The kubeconfig that it wrote.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.setup.kubeconfig()
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = self.setup.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Kills it where it stands (SIGKILL) and starts it again on the same state.
    ///
    /// # Errors
    /// As [`Program::start`].
    pub async fn kill_and_start(mut self) -> Result<Self, Failed> {
        self.child.kill().await?;
        Self::start(self.setup.clone()).await
    }

    /// Asks it to end, as Ctrl-C does, and waits until it has.
    ///
    /// # Errors
    /// When it does not end in time, or with another code than 0.
    pub async fn end(mut self) -> Result<(), Failed> {
        let status = interrupt(&mut self.child).await?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("sluice ended with {status}\n{}", self.log_tail()).into())
        }
    }
}

/// SIGINT, then waits for the end.
async fn interrupt(child: &mut Child) -> Result<ExitStatus, Failed> {
    let id = child
        .id()
        .and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
    if let Some(id) = id {
        rustix::process::kill_process(id, rustix::process::Signal::INT)?;
    }
    Ok(tokio::time::timeout(PATIENCE, child.wait())
        .await
        .map_err(|_| "sluice did not end")??)
}

/// Waits for the kubeconfig and for an API that answers.
async fn connect(kubeconfig: &Path, child: &mut Child) -> Result<Client, Failed> {
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    let serving = async {
        loop {
            tick.tick().await;
            if let Some(status) = child.try_wait()? {
                return Err(Failed::from(format!("sluice up ended with {status}")));
            }
            let Ok(read) = Kubeconfig::read_from(kubeconfig) else {
                continue;
            };
            let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
            let client = Client::try_from(config)?;
            if client.apiserver_version().await.is_ok() {
                return Ok(client);
            }
        }
    };
    tokio::time::timeout(PATIENCE, serving)
        .await
        .map_err(|_| "sluice up did not serve in time")?
}
