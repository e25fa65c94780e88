//! The real programs with their logs: the controller, and a runner with full logging.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::environment::{TIMEOUT, TestEnvironment};

/// The controller program. Dropping it ends the process.
pub(super) struct Programs {
    log: PathBuf,
    metrics: String,
    child: Child,
    // Outside the environment's folder, which is searched for logs of runners.
    _folder: tempfile::TempDir,
}

impl Programs {
    /// Starts it on the environment's API, with the environment's variables for itself and its runs.
    pub(super) async fn start(env: &TestEnvironment) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("controller.log");
        let file = File::create(&log).unwrap();
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let metrics = free.local_addr().unwrap().to_string();
        drop(free);
        let child = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .arg("tf-controller")
            .args(["--executor=process", "--health-addr=0", "--log-level=trace"])
            .arg(format!("--metrics-addr={metrics}"))
            .arg("--concurrent=3")
            .arg(format!("--runner={}", runner(env, folder.path()).display()))
            .arg(format!("--work-root={}", env.path("runs").display()))
            .arg(format!("--kubeconfig={}", env.kubeconfig.display()))
            .env_clear()
            .env("PATH", sluice_harness::cli::search_path().unwrap())
            .env("DISABLE_WEBHOOK_TLS_VERIFY", "1")
            .env("CHECKPOINT_DISABLE", "1")
            .envs(&env.environment)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut programs = Self {
            log,
            metrics,
            child,
            _folder: folder,
        };
        let serving = async {
            while programs.metrics().is_empty() {
                assert!(programs.child.try_wait().unwrap().is_none(), "{}", programs.log());
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        let serves = tokio::time::timeout(TIMEOUT, serving).await;
        serves.unwrap_or_else(|_| panic!("no metrics"));
        programs
    }

    /// Returns its log.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Returns its metrics; empty if it does not serve them.
    pub(super) fn metrics(&self) -> String {
        let mut text = String::new();
        if let Ok(mut stream) = TcpStream::connect(&self.metrics) {
            let sent = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
            // A partial response is detected by the missing marker.
            drop(sent.and_then(|()| stream.read_to_string(&mut text)));
        }
        text
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = std::fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            for line in &lines[lines.len().saturating_sub(20)..] {
                eprintln!("{}", line.chars().take(300).collect::<String>());
            }
        }
    }
}

/// Returns a script that starts `tf-runner` with full logging and the environment's variables.
fn runner(env: &TestEnvironment, folder: &Path) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_sluice"));
    let path = folder.join("runner");
    let variables: String = env
        .environment
        .iter()
        .flat_map(|(name, value)| ["export ", name, "='", value, "'\n"])
        .collect();
    let text = format!(
        "#!/bin/sh\n{variables}exec '{}' tf-runner --log-level=trace \"$@\"\n",
        program.display()
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}
