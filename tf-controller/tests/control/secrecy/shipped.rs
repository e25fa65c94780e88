//! The programs as they are shipped, each with its log: the controller, and a runner that logs all it can.

use crate::world::{DEADLINE, World};
use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};
use tokio::process::{Child, Command};

/// The controller as a program. It ends with this value.
pub(super) struct Shipped {
    log: PathBuf,
    metrics: String,
    child: Child,
    // Beside the world's folder, where the logs of runners are looked for.
    _folder: tempfile::TempDir,
}

impl Shipped {
    /// Starts it on the world's API, with the world's environment for itself and for its runs.
    pub(super) async fn start(world: &World) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("controller.log");
        let file = File::create(&log).unwrap();
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let metrics = free.local_addr().unwrap().to_string();
        drop(free);
        let child = Command::new(env!("CARGO_BIN_EXE_sluice-tf-controller"))
            .args(["--executor=process", "--health-addr=0", "--log-level=trace"])
            .arg(format!("--metrics-addr={metrics}"))
            .arg("--concurrent=3")
            .arg(format!("--runner={}", runner(world, folder.path()).display()))
            .arg(format!("--work-root={}", world.path("runs").display()))
            .arg(format!("--kubeconfig={}", world.kubeconfig.display()))
            .env_clear()
            .env("PATH", sluice_harness::cli::search_path().unwrap())
            .env("DISABLE_WEBHOOK_TLS_VERIFY", "1")
            .env("CHECKPOINT_DISABLE", "1")
            .envs(&world.environment)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut shipped = Self {
            log,
            metrics,
            child,
            _folder: folder,
        };
        let serving = async {
            while shipped.metrics().is_empty() {
                assert!(shipped.child.try_wait().unwrap().is_none(), "{}", shipped.log());
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        let serves = tokio::time::timeout(DEADLINE, serving).await;
        serves.unwrap_or_else(|_| panic!("no metrics"));
        shipped
    }

    /// All that it has logged.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// What it measures; empty as long as it does not serve.
    pub(super) fn metrics(&self) -> String {
        let mut text = String::new();
        if let Ok(mut stream) = TcpStream::connect(&self.metrics) {
            let asked = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
            // Half an answer is found out by what is missing in it.
            drop(asked.and_then(|()| stream.read_to_string(&mut text)));
        }
        text
    }
}

impl Drop for Shipped {
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

/// `tf-runner` beside the other programs, with all that it can log and with the world's environment.
fn runner(world: &World, folder: &Path) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_sluice-tf-controller")).with_file_name("tf-runner");
    assert!(
        program.is_file(),
        "{} is not built: run `cargo build -p sluice-tf-runner --bins` first",
        program.display()
    );
    let path = folder.join("runner");
    let variables: String = world
        .environment
        .iter()
        .flat_map(|(name, value)| ["export ", name, "='", value, "'\n"])
        .collect();
    let text = format!(
        "#!/bin/sh\n{variables}exec '{}' --log-level=trace \"$@\"\n",
        program.display()
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}
