//! kubectl with an API of its own.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use sluice_embedded::{ApiServer, TlsServer};
use sluice_harness::{cli, skip};
use tempfile::TempDir;
use tokio::process::Command;

use crate::fixture::{serve, server};

/// Finds kubectl on PATH. Under CI, where nothing may be skipped, it is built otherwise; elsewhere the test is skipped.
async fn program() -> Option<PathBuf> {
    if let Some(path) = cli::on_path("kubectl") {
        return Some(path);
    }
    if skip::is_ci() {
        return Some(tokio::task::spawn_blocking(cli::kubectl).await.unwrap().unwrap());
    }
    skip::skip("no kubectl is on PATH").unwrap();
    None
}

/// A served API, a directory with manifests, and a home directory for kubectl's caches.
pub(crate) struct KubectlFixture {
    program: PathBuf,
    pub(super) dir: TempDir,
    pub(super) embedded: ApiServer,
    serving: TlsServer,
}

impl KubectlFixture {
    /// Returns `None` without a kubectl, except under CI.
    pub(crate) async fn open() -> Option<Self> {
        let program = program().await?;
        let dir = tempfile::tempdir().unwrap();
        let embedded = server();
        let serving = serve(&embedded, dir.path()).await;
        Some(Self {
            program,
            dir,
            embedded,
            serving,
        })
    }

    /// Returns the command of kubectl with these arguments, which spaces separate.
    pub(super) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments.split(' '))
            .current_dir(self.dir.path())
            .env("KUBECONFIG", &self.serving.kubeconfig_path)
            .env("HOME", self.dir.path())
            .env("KUBECACHEDIR", self.dir.path().join("cache"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs kubectl: whether it succeeded, and its output.
    pub(crate) async fn try_run(&self, arguments: &str) -> (bool, String) {
        let output = tokio::time::timeout(Duration::from_mins(1), self.command(arguments).output());
        let output = output.await.expect("kubectl ends in time").unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    /// Runs kubectl, which must succeed.
    pub(crate) async fn run(&self, arguments: &str) -> String {
        let (success, output) = self.try_run(arguments).await;
        assert!(success, "kubectl {arguments}: {output}");
        output
    }

    /// Writes a manifest into the directory.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }
}
