//! What the story is told in: a repository on a real Git server, and, for the tests on a cluster, the control plane with
//! both controllers as processes.

use serde_json::Value;
use sluice_harness::{
    cli,
    cluster::ControlPlane,
    git::{GitServer, Repository},
};
use sluice_tests::{
    Failed, binary,
    story::{Commit, Story},
};
use std::{
    fs::{File, OpenOptions},
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// A repository with the first commit, served over HTTP.
pub(crate) struct Origin {
    pub(crate) repository: Repository,
    pub(crate) url: String,
    _server: GitServer,
}

impl Origin {
    pub(crate) async fn start() -> Self {
        let repository = Repository::create().unwrap();
        Commit::First.make(&repository).unwrap();
        let server = GitServer::start().await.unwrap();
        let url = server.serve("shop", &repository);
        Self {
            repository,
            url,
            _server: server,
        }
    }
}

/// The command lines of processes that name this folder.
pub(crate) fn leftovers(folder: &Path) -> Vec<String> {
    let folder = folder.display().to_string();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(&folder))
        .collect()
}

/// A port of loopback that is free now.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// One of the two controllers, as a process under its own ServiceAccount.
pub(crate) struct Controller {
    name: &'static str,
    arguments: Vec<String>,
    kubeconfig: PathBuf,
    log: PathBuf,
    child: Option<Child>,
}

impl Controller {
    pub(crate) fn start(&mut self) -> Result<(), Failed> {
        let log: File = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let child = Command::new(binary(&format!("sluice-{}", self.name))?)
            .args(&self.arguments)
            .env_clear()
            .env("PATH", cli::search_path()?)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        self.child = Some(child);
        Ok(())
    }

    /// SIGKILL, and a start on what it left. It must have been alive.
    pub(crate) async fn kill_and_start(&mut self) -> Result<(), Failed> {
        if let Some(mut child) = self.child.take() {
            if let Some(status) = child.try_wait()? {
                return Err(format!("{} ended by itself with {status}\n{}", self.name, self.tail()).into());
            }
            child.kill().await?;
        }
        self.start()
    }

    /// SIGTERM; it ends in order.
    pub(crate) async fn end(&mut self) -> Result<(), Failed> {
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

/// A control plane with what `config` installs, and both controllers.
pub(crate) struct World {
    pub(crate) sources: Controller,
    pub(crate) stacks: Controller,
    pub(crate) plane: ControlPlane,
    pub(crate) folder: TempDir,
}

impl World {
    /// Installs as a user does, `kubectl apply -k` of the overlay `standalone` and its setup, and starts the controllers. The Deployments start
    /// nothing here, since no node and no kubelet is there: the processes stand in for them.
    pub(crate) async fn start() -> Self {
        let plane = ControlPlane::start().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("admin"), plane.admin().kubeconfig()).unwrap();
        for overlay in ["overlays/standalone/setup", "overlays/standalone"] {
            kubectl(folder.path(), &["apply", "-k", &config(overlay)]).await;
        }
        kubectl(
            folder.path(),
            &[
                "wait",
                "--for=condition=Established",
                "crd",
                "--all",
                "--timeout=60s",
            ],
        )
        .await;
        // Now that the kinds are there: the garbage collector looks for new ones only twice a minute.
        plane.start_controllers().unwrap();
        let sources = source_controller(&plane, folder.path()).await;
        let stacks = tf_controller(&plane, folder.path()).await;
        Self {
            sources,
            stacks,
            plane,
            folder,
        }
    }

    /// Lets both controllers stand for their Leases, as the Deployments of `config` do. Not for kills: who comes after a
    /// kill waits for the end of the Lease.
    pub(crate) fn elect_leaders(&mut self) {
        for controller in [&mut self.sources, &mut self.stacks] {
            let flags = ["--enable-leader-election", "--runtime-namespace=flux-system"];
            controller.arguments.extend(flags.map(str::to_owned));
        }
    }

    /// Lets stored plans be sealed, with a key that an administrator made where the controllers are.
    pub(crate) async fn seal_plans(&mut self) {
        let key = format!("--from-literal=2026-01={}", "0123456789abcdef".repeat(4));
        let made = [
            "-n",
            "flux-system",
            "create",
            "secret",
            "generic",
            "plan-keys",
            &key,
        ];
        kubectl(self.folder.path(), &made).await;
        let flags = [
            "--plan-encryption-secret=plan-keys",
            "--runtime-namespace=flux-system",
        ];
        self.stacks.arguments.extend(flags.map(str::to_owned));
    }

    pub(crate) fn start_controllers(&mut self) {
        self.sources.start().unwrap();
        self.stacks.start().unwrap();
    }

    /// As a person with all rights looks at it: only the suites do.
    pub(crate) async fn story(&self) -> Story {
        Story::new(self.plane.client().await.unwrap())
    }

    pub(crate) fn logs(&self) -> String {
        format!("{}\n{}", self.sources.tail(), self.stacks.tail())
    }
}

pub(crate) async fn source_controller(plane: &ControlPlane, folder: &Path) -> Controller {
    let storage = folder.join("artifacts");
    std::fs::create_dir(&storage).unwrap();
    let arguments = vec![
        format!("--storage-path={}", storage.display()),
        format!("--storage-addr=127.0.0.1:{}", free_port()),
        "--metrics-addr=0".to_owned(),
        "--health-addr=0".to_owned(),
    ];
    controller(plane, "source-controller", arguments, folder).await
}

async fn tf_controller(plane: &ControlPlane, folder: &Path) -> Controller {
    let runner = binary("tf-runner").unwrap();
    let arguments = vec![
        "--executor=process".to_owned(),
        format!("--runner={}", runner.display()),
        format!("--work-root={}", folder.join("work").display()),
        "--metrics-addr=0".to_owned(),
        "--health-addr=0".to_owned(),
    ];
    controller(plane, "tf-controller", arguments, folder).await
}

pub(crate) async fn controller(
    plane: &ControlPlane,
    name: &'static str,
    arguments: Vec<String>,
    folder: &Path,
) -> Controller {
    // The account and its roles are those that config installed: no role is added here.
    let access = plane.service_account("flux-system", name, "").await.unwrap();
    let kubeconfig = folder.join(format!("{name}.kubeconfig"));
    std::fs::write(&kubeconfig, access.kubeconfig()).unwrap();
    Controller {
        name,
        arguments,
        kubeconfig,
        log: folder.join(format!("{name}.log")),
        child: None,
    }
}

/// A folder below `config`.
pub(crate) fn config(folder: &str) -> String {
    format!("{}/../config/{folder}", env!("CARGO_MANIFEST_DIR"))
}

/// Runs the real kubectl as an administrator of the control plane.
pub(crate) async fn kubectl(folder: &Path, arguments: &[&str]) -> String {
    let program = cli::kubectl().unwrap();
    let output = Command::new(program)
        .args(arguments)
        .env("KUBECONFIG", folder.join("admin"))
        .output()
        .await
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "kubectl {arguments:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// `status reason message` of `Ready`.
pub(crate) fn ready(object: &Value) -> String {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let found = conditions
        .into_iter()
        .flatten()
        .find(|one| one["type"] == "Ready");
    found.map_or_else(String::new, |one| {
        ["status", "reason", "message"]
            .map(|field| one[field].as_str().unwrap_or_default())
            .join(" ")
    })
}
