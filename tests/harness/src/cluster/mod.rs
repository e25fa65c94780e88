//! A real Kubernetes control plane on loopback: etcd and kube-apiserver with RBAC and its own keys.
//!
//! There is no node and no scheduler: the suites test how programs use the API. Ports are free ones; the start is repeated
//! if another process takes one first. All processes end with the value, or with the test process.

mod access;
mod components;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use access::apply;
pub use access::{Access, AccessError};
use components::{Keys, Ports};
use kube::Client;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::gobuild::{self, BuildError, Tool};
use crate::process::Process;
use crate::tls::CertificateError;

/// Start-up timeout of a component, long enough for the slowest build machine.
const READY_TIMEOUT: Duration = Duration::from_secs(180);
/// Maximum number of starts when ports are taken.
const MAX_STARTS: u32 = 5;

/// Why the control plane is not available.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A program could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A certificate cannot be created.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// An operation on a file or process of the control plane failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// Its own kubeconfig does not work.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A component ended, or was not ready in time.
    #[error("{component} {how}; the end of its log:\n{log}")]
    NotReady {
        /// The program.
        component: &'static str,
        /// `ended` or `was not ready in time`.
        how: &'static str,
        /// The end of its log.
        log: String,
    },
}

fn system(what: &'static str) -> impl Fn(io::Error) -> ClusterError {
    move |source| ClusterError::System { what, source }
}

/// A running control plane.
#[derive(Debug)]
pub struct ControlPlane {
    // In drop order: clients of a component before the component.
    controllers: Mutex<Option<Process>>,
    api: Mutex<Option<Process>>,
    _etcd: Process,
    ports: Ports,
    keys: Keys,
    folder: TempDir,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ControlPlane {
    /// Starts etcd and kube-apiserver and waits until the API is ready. Builds the programs first if needed.
    ///
    /// # Errors
    /// When a program cannot be built or started, or does not become ready.
    pub async fn start() -> Result<Self, ClusterError> {
        let built = tokio::task::spawn_blocking(build_programs).await;
        let (etcd, _) = built.map_err(|error| system("build the programs")(error.into()))??;
        let mut tried = 0;
        loop {
            tried += 1;
            match Self::start_on_ports(Ports::free().map_err(system("find free ports"))?, &etcd).await {
                Err(ClusterError::NotReady { log, .. })
                    if tried < MAX_STARTS && log.contains("address already in use") => {}
                ended => return ended,
            }
        }
    }

    /// Returns the control plane that all tests of a process share; use one namespace per test.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub async fn shared() -> Result<&'static Self, ClusterError> {
        static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start).await
    }

    async fn start_on_ports(ports: Ports, etcd: &Path) -> Result<Self, ClusterError> {
        let folder = TempDir::with_prefix("control-plane-").map_err(system("make a folder"))?;
        let keys = Keys::create(folder.path())?;
        let data = folder.path().join("etcd");
        let log = folder.path().join("etcd.log");
        let scratch = Some(folder.path());
        let etcd = Process::start(etcd, &components::etcd(ports, &data), &log, scratch)
            .map_err(system("start etcd"))?;
        let plane = Self {
            controllers: Mutex::new(None),
            api: Mutex::new(None),
            _etcd: etcd,
            ports,
            keys,
            folder,
        };
        plane.start_api().await?;
        Ok(plane)
    }

    /// Starts kube-apiserver again after [`ControlPlane::kill_api`] at the same address, and waits until it is ready.
    ///
    /// # Errors
    /// When it cannot be started or does not become ready.
    pub async fn start_api(&self) -> Result<(), ClusterError> {
        let program = gobuild::binary_path(Tool::KubeApiserver)?;
        let arguments = components::apiserver(self.ports, self.folder.path());
        let log = self.folder.path().join("apiserver.log");
        let process =
            Process::start(&program, &arguments, &log, None).map_err(system("start kube-apiserver"))?;
        *lock(&self.api) = Some(process);
        self.wait_until_ready().await
    }

    async fn wait_until_ready(&self) -> Result<(), ClusterError> {
        let client = self.admin().client().await?;
        let started = Instant::now();
        loop {
            let request = http::Request::get("/readyz").body(Vec::new());
            let Ok(request) = request else {
                return Err(system("query readiness")(io::Error::other("no request")));
            };
            let result = tokio::time::timeout(Duration::from_secs(5), client.request_text(request)).await;
            if matches!(result, Ok(Ok(answer)) if answer == "ok") {
                return Ok(());
            }
            let late = started.elapsed() > READY_TIMEOUT;
            if let Some(api) = lock(&self.api).as_mut() {
                let ended = api.has_ended();
                if ended || late {
                    let how = if ended { "ended" } else { "was not ready in time" };
                    return Err(ClusterError::NotReady {
                        component: "kube-apiserver",
                        how,
                        log: api.log_tail(20),
                    });
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Kills kube-apiserver; its data stays in etcd.
    pub fn kill_api(&self) {
        lock(&self.api).take();
    }

    /// Pauses kube-apiserver (SIGSTOP): connections stay open but get no response.
    ///
    /// # Errors
    /// When it is not running.
    pub fn pause_api(&self) -> Result<(), ClusterError> {
        self.with_api(Process::stop)
    }

    /// Resumes kube-apiserver after [`ControlPlane::pause_api`].
    ///
    /// # Errors
    /// When it is not running.
    pub fn resume_api(&self) -> Result<(), ClusterError> {
        self.with_api(|api| api.signal(Signal::CONT))
    }

    fn with_api(&self, act: impl FnOnce(&Process) -> io::Result<()>) -> Result<(), ClusterError> {
        let not_running = || io::Error::other("it is not running");
        let api = lock(&self.api);
        let sent = api.as_ref().ok_or_else(not_running).and_then(act);
        sent.map_err(system("signal kube-apiserver"))
    }

    /// Starts the garbage collector and the namespace controller of Kubernetes, for tests of deletion. Idempotent.
    ///
    /// # Errors
    /// When kube-controller-manager cannot be built or started.
    pub fn start_controllers(&self) -> Result<(), ClusterError> {
        let mut controllers = lock(&self.controllers);
        if controllers.is_some() {
            return Ok(());
        }
        let program = build_tool(Tool::KubeControllerManager)?;
        let kubeconfig = self.folder.path().join("admin.conf");
        let written = std::fs::write(&kubeconfig, self.admin().kubeconfig());
        written.map_err(system("write the kubeconfig of the controllers"))?;
        let arguments = components::controllers(&kubeconfig);
        let log = self.folder.path().join("controllers.log");
        let started = Process::start(&program, &arguments, &log, None);
        *controllers = Some(started.map_err(system("start kube-controller-manager"))?);
        Ok(())
    }

    /// Returns access as a member of `system:masters`, which bypasses RBAC.
    #[must_use]
    pub fn admin(&self) -> Access {
        Access::certificate(&self.url(), self.keys.authority.pem(), &self.keys.admin)
    }

    /// Returns a client with the rights of [`ControlPlane::admin`]. Create one per test: a client belongs to the runtime
    /// that first uses it.
    ///
    /// # Errors
    /// When the kubeconfig is invalid.
    pub async fn client(&self) -> Result<Client, AccessError> {
        self.admin().client().await
    }

    /// Returns access as a service account; creates the account and its namespace if needed. It has the permissions of the
    /// roles in `rbac`, a stream of YAML documents.
    ///
    /// # Errors
    /// When a document is refused, or no token is issued.
    pub async fn service_account(
        &self,
        namespace: &str,
        name: &str,
        rbac: &str,
    ) -> Result<Access, AccessError> {
        let client = self.client().await?;
        let token = access::token(&client, namespace, name, rbac).await?;
        Ok(Access::token(
            &self.url(),
            self.keys.authority.pem(),
            &token,
            namespace,
        ))
    }

    /// Applies the objects of a stream of YAML documents by server-side apply; waits until custom resource definitions are
    /// served.
    ///
    /// # Errors
    /// When a document is not an object or is refused.
    pub async fn apply(&self, documents: &str) -> Result<(), AccessError> {
        access::apply(&self.client().await?, documents).await
    }

    /// Returns the URL of the API.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.api)
    }

    /// Returns the folder with keys and logs; it is removed with the control plane.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

fn build_tool(tool: Tool) -> Result<PathBuf, BuildError> {
    gobuild::build(tool, &mut |line| eprintln!("{line}"))
}

fn build_programs() -> Result<(PathBuf, PathBuf), BuildError> {
    Ok((build_tool(Tool::Etcd)?, build_tool(Tool::KubeApiserver)?))
}

#[cfg(test)]
mod tests;
