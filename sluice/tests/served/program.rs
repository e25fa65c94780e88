//! The controller as a separate process, with a mounted volume.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::runtime::wait::await_condition;
use sluice_api::source::GitRepository;
use sluice_embedded::{ApiServer, TlsServer};
use tokio::process::{Child, Command};

use crate::fixture::LIMIT;

/// The program in its own mount namespace.
pub(crate) struct Program {
    child: Child,
    log: PathBuf,
    _api: TlsServer,
}

impl Program {
    /// Starts the program; `mount` is a shell command that mounts the storage path `$1`.
    pub(crate) async fn start(api: &ApiServer, directory: &Path, storage: &Path, mount: &str) -> Self {
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let served = api.serve(anywhere, directory).await.unwrap();
        let log = directory.join("log");
        let child = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
            .arg(format!("{mount} && shift && exec \"$@\""))
            .arg("sh")
            .arg(storage)
            .args([env!("CARGO_BIN_EXE_sluice"), "source-controller"])
            .arg(format!("--storage-path={}", storage.display()))
            .args([
                "--storage-addr=127.0.0.1:0",
                "--storage-adv-addr=",
                "--metrics-addr=0",
                "--health-addr=0",
            ])
            .env("KUBECONFIG", &served.kubeconfig_path)
            // Its mirrors are there while the storage path is not writable.
            .env("TMPDIR", directory)
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .kill_on_drop(true)
            .spawn()
            .expect("unshare is part of every Linux");
        Self {
            child,
            log,
            _api: served,
        }
    }

    /// Returns the peak memory of the program in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = format!("/proc/{}/status", self.child.id().unwrap());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().unwrap();
        kibibytes * 1024
    }

    /// Returns the path of a file within the program's mount namespace.
    pub(crate) fn path_of(&self, file: &Path) -> PathBuf {
        let process = format!("/proc/{}/root", self.child.id().unwrap());
        Path::new(&process).join(file.strip_prefix("/").unwrap())
    }

    /// Waits until the `Ready` condition of an object fulfils the condition.
    pub(crate) async fn wait_for(
        &self,
        objects: &Api<GitRepository>,
        name: &str,
        expected: impl Fn(&Condition) -> bool,
    ) {
        let there = |object: Option<&GitRepository>| {
            let status = object.and_then(|object| object.status.as_ref());
            status.is_some_and(|status| {
                status
                    .conditions
                    .iter()
                    .any(|c| c.type_ == "Ready" && expected(c))
            })
        };
        let waiting = await_condition(objects.clone(), name, there);
        let found = tokio::time::timeout(LIMIT, waiting).await;
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        assert!(
            found.is_ok_and(|found| found.is_ok()),
            "{name} is not as wanted; log of the program:\n{log}"
        );
    }
}
