//! The shell in which the commands of the pages run.

use std::fs::{File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::Stdio;

use sluice_harness::cli;
use sluice_tests::binary;
use sluice_tests::page::SAMPLE_ADDRESS;
use sluice_tests::scenario::TIMEOUT;
use tokio::process::{Child, Command};

/// A folder with the files of the repository that the README's commands use.
pub(crate) struct DocsShell {
    pub(crate) folder: tempfile::TempDir,
    path: String,
}

impl DocsShell {
    /// Creates the folder; `editor` is a script that edits the given files in place of the user, `address` replaces that of the samples.
    pub(crate) fn create(editor: &str, address: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let samples = sluice_harness::gobuild::workspace().join("config/samples");
        let copies = folder.path().join("config/samples");
        std::fs::create_dir_all(&copies).unwrap();
        for sample in std::fs::read_dir(samples).unwrap() {
            let sample = sample.unwrap();
            if sample.path().is_dir() {
                continue; // that of a tenant
            }
            let text = std::fs::read_to_string(sample.path()).unwrap();
            std::fs::write(
                copies.join(sample.file_name()),
                text.replace(SAMPLE_ADDRESS, address),
            )
            .unwrap();
        }
        let release = folder.path().join("target/release");
        std::fs::create_dir_all(&release).unwrap();
        symlink(binary("sluice").unwrap(), release.join("sluice")).unwrap();
        let program = folder.path().join("editor");
        std::fs::write(&program, editor).unwrap();
        std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let kubectl = cli::kubectl().unwrap();
        let path = format!(
            "{}:{}:{}",
            kubectl.parent().unwrap().display(),
            release.display(),
            cli::search_path().unwrap()
        );
        Self { folder, path }
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("state/api/kubeconfig")
    }

    /// Starts a shell that exits at the first failing command.
    pub(super) fn spawn(&self, commands: &str, log: &str) -> Child {
        let log = File::create(self.folder.path().join(log)).unwrap();
        Command::new("bash")
            .args(["-euo", "pipefail", "-c", commands])
            .current_dir(self.folder.path())
            .env("PATH", &self.path)
            .env("HOME", self.folder.path())
            .env("EDITOR", self.folder.path().join("editor"))
            .env("KUBECONFIG", self.kubeconfig())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    pub(super) fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    /// Runs commands, which must succeed; returns their output.
    pub(crate) async fn run(&self, commands: &str) -> String {
        let ended = tokio::time::timeout(TIMEOUT, self.spawn(commands, "commands").wait()).await;
        let log = self.log("commands");
        let ended = ended.unwrap_or_else(|_| panic!("timeout after {TIMEOUT:?}:\n{commands}\n{log}"));
        assert!(ended.unwrap().success(), "{commands}\n{log}");
        log
    }
}
