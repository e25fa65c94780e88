//! `sluice up` as a child process of the demo.

use super::Failed;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use sluice_tests::story::manifests;
use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::process::{Child, Command};

/// How long the program may take to serve, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running `sluice up`.
pub(super) struct Program {
    child: Child,
    client: Client,
    command: String,
    kubeconfig: PathBuf,
    log: PathBuf,
}

impl Program {
    /// Starts it on the story's manifests and waits until its API serves.
    pub(super) async fn start(folder: &Path, url: &str, tool: &Path) -> Result<Self, Failed> {
        let stacks = folder.join("manifests");
        std::fs::create_dir(&stacks)?;
        let [source, stack] = manifests(url);
        std::fs::write(stacks.join("source.yaml"), serde_yaml_ng::to_string(&source)?)?;
        std::fs::write(stacks.join("stack.yaml"), serde_yaml_ng::to_string(&stack)?)?;
        let program = std::env::current_exe()?.with_file_name("sluice");
        let (kubeconfig, log) = (folder.join("kubeconfig"), folder.join("sluice.log"));
        let arguments = [
            "up".into(),
            "-f".into(),
            stacks.into_os_string(),
            "--state".into(),
            folder.join("state").into_os_string(),
            "--kubeconfig-out".into(),
            kubeconfig.clone().into_os_string(),
            "--quiet".into(),
        ];
        let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
        let command = format!("sluice {}", words.join(" "));
        let file = std::fs::File::create(&log)?;
        let mut child = Command::new(&program)
            .args(&arguments)
            .env("PATH", path_with(tool))
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0) // a Ctrl-C is the demo's: it ends the program in order
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let client = connect(&kubeconfig, &mut child)
            .await
            .map_err(|error| format!("{error}\n{}", std::fs::read_to_string(&log).unwrap_or_default()))?;
        Ok(Self {
            child,
            client,
            command,
            kubeconfig,
            log,
        })
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(super) fn command(&self) -> &str {
        &self.command
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.clone()
    }

    /// The last lines of its log.
    pub(super) fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Asks it to end, as Ctrl-C does, and waits until it has.
    pub(super) async fn end(mut self) -> Result<(), Failed> {
        if let Some(id) = self
            .child
            .id()
            .and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()))
        {
            rustix::process::kill_process(id, rustix::process::Signal::INT)?;
        }
        let status = tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .map_err(|_| "sluice did not end")??;
        if status.success() {
            Ok(())
        } else {
            Err(format!("sluice ended with {status}\n{}", self.log_tail()).into())
        }
    }
}

/// The path with the folder of the CLI in front.
fn path_with(tool: &Path) -> std::ffi::OsString {
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let folders = tool
        .parent()
        .map(Path::to_owned)
        .into_iter()
        .chain(std::env::split_paths(&rest));
    std::env::join_paths(folders).unwrap_or(rest)
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
