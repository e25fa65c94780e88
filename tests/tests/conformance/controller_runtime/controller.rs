//! The program of the example as a child process.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sluice_tests::scenario::TIMEOUT;
use tokio::process::{Child, Command};

/// Interval between two reads of the log.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running controller.
pub(super) struct Controller {
    child: Child,
    log: PathBuf,
}

/// Whether a controller is one of several candidates for the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaderElection {
    Enabled,
    Disabled,
}

impl Controller {
    /// Starts the program. It logs its requests, because of `-v=6`, to a file in the folder.
    pub(super) fn start(
        program: &Path,
        kubeconfig: &Path,
        folder: &Path,
        instance: &str,
        election: LeaderElection,
    ) -> Self {
        let log = folder.join(format!("{instance}.log"));
        let file = std::fs::File::create(&log).unwrap();
        let mut command = Command::new(program);
        command
            .arg(format!("-instance={instance}"))
            .arg("-v=6")
            .current_dir(folder)
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .kill_on_drop(true);
        if election == LeaderElection::Enabled {
            command.arg("-leader-elect");
        }
        let child = command.spawn().unwrap();
        Self { child, log }
    }

    pub(super) fn log(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the log contains a text.
    pub(super) async fn wait_for_log(&self, text: &str) {
        let mut tick = tokio::time::interval(POLL_INTERVAL);
        let found = async {
            while !self.log().contains(text) {
                tick.tick().await;
            }
        };
        let in_time = tokio::time::timeout(TIMEOUT, found).await.is_ok();
        assert!(in_time, "{text:?} is missing in\n{}", self.log());
    }

    /// Ends it by SIGTERM, as a kubelet does, and expects success. Returns its log.
    pub(super) async fn end(mut self) -> String {
        let id = self.child.id().unwrap();
        let process = Pid::from_raw(id.cast_signed()).unwrap();
        kill_process(process, Signal::TERM).unwrap();
        let ended = tokio::time::timeout(TIMEOUT, self.child.wait()).await;
        let status = ended.expect("it ends in time").unwrap();
        assert!(status.success(), "{status}\n{}", self.log());
        self.log()
    }

    /// Kills it (SIGKILL).
    pub(super) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}
