//! A controller as a process under its own ServiceAccount.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sluice_harness::cli;
use sluice_harness::cluster::ControlPlane;
use sluice_tests::{BoxError, binary};
use tokio::process::{Child, Command};

/// A controller as a process under its own ServiceAccount.
pub(crate) struct Controller {
    name: &'static str,
    pub(super) arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
    kubeconfig: PathBuf,
    log: PathBuf,
    child: Option<Child>,
}

impl Controller {
    /// Sets a variable of its environment, which has no others than paths.
    pub(crate) fn set_variable(&mut self, name: &'static str, value: &str) {
        self.variables.push((name, value.to_owned()));
    }

    pub(crate) fn start(&mut self) -> Result<(), BoxError> {
        let log: File = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let child = Command::new(binary("sluice")?)
            .arg(self.name)
            .args(&self.arguments)
            .env_clear()
            .env("PATH", cli::search_path()?)
            .env("KUBECONFIG", &self.kubeconfig)
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        self.child = Some(child);
        Ok(())
    }

    /// Kills it (SIGKILL). Fails if it had ended before.
    pub(crate) async fn kill(&mut self) -> Result<(), BoxError> {
        if let Some(mut child) = self.child.take() {
            if let Some(status) = child.try_wait()? {
                return Err(format!("{} ended by itself with {status}\n{}", self.name, self.tail()).into());
            }
            child.kill().await?;
        }
        Ok(())
    }

    /// Kills it (SIGKILL) and starts it again on the same data. Fails if it had ended before.
    pub(crate) async fn kill_and_start(&mut self) -> Result<(), BoxError> {
        self.kill().await?;
        self.start()
    }

    /// Returns its process id while it runs.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.as_ref()?.id()
    }

    /// Ends it by SIGTERM and waits.
    pub(crate) async fn end(&mut self) -> Result<(), BoxError> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        let id = child
            .id()
            .and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
        if let Some(id) = id {
            rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
        }
        let status = tokio::time::timeout(std::time::Duration::from_secs(30), child.wait()).await??;
        if status.success() {
            Ok(())
        } else {
            Err(format!("{} ended with {status}\n{}", self.name, self.tail()).into())
        }
    }

    /// Ends it and asserts that the API server refused none of its requests.
    pub(crate) async fn end_without_refusal(&mut self) {
        self.end().await.unwrap();
        assert_no_refusal(&self.log());
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        format!(
            "{}:\n{}",
            self.name,
            lines[lines.len().saturating_sub(30)..].join("\n")
        )
    }
}

/// Asserts that the roles in `config` suffice for the program with this log.
pub(crate) fn assert_no_refusal(log: &str) {
    let refused: Vec<_> = log.lines().filter(|line| line.contains("forbidden")).collect();
    assert!(
        refused.is_empty(),
        "the roles in config lack permissions: {refused:#?}"
    );
}

/// Returns a controller with its account, which is not started.
pub(crate) async fn controller(
    plane: &ControlPlane,
    (namespace, name): (&str, &'static str),
    arguments: Vec<String>,
    folder: &Path,
) -> Controller {
    // Account and roles are those that config installs; no role is added.
    let access = plane.service_account(namespace, name, "").await.unwrap();
    let kubeconfig = folder.join(format!("{name}.kubeconfig"));
    std::fs::write(&kubeconfig, access.kubeconfig()).unwrap();
    Controller {
        name,
        arguments,
        variables: Vec::new(),
        kubeconfig,
        log: folder.join(format!("{name}.log")),
        child: None,
    }
}
