//! A real Kubernetes control plane on loopback: etcd and kube-apiserver, with RBAC on and keys of its own.
//!
//! No node, no scheduler: what is tested is how programs talk to the API. Ports are free ones; a port that another
//! process took in between makes the start try again. Everything ends with the value, or with the test process.

mod access;
mod parts;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::sync::OnceCell;

pub use access::{Access, AccessError};

use crate::gobuild::{self, BuildError, Tool};
use crate::process::Process;
use crate::tls::CertificateError;
use parts::{Keys, Ports};

/// A part that is not ready by then never will be, on the slowest machine that builds this.
const READY: Duration = Duration::from_secs(180);
/// How often a start is tried when its ports were taken.
const STARTS: u32 = 5;

/// Why there is no control plane.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A program could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// No certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// A file or process of the control plane.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It could not be reached with its own kubeconfig.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A part ended, or did not answer in time.
    #[error("{part} {how}; its last words:\n{log}")]
    NotReady {
        /// The program.
        part: &'static str,
        /// Whether it ended or was too late.
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
    // In the order in which they are dropped: the clients of a part before the part.
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
    /// Starts etcd and kube-apiserver and waits until the API says that it is ready. The programs are built first when
    /// they are not there yet.
    ///
    /// # Errors
    /// When a program cannot be built or started, or does not become ready.
    pub async fn start() -> Result<Self, ClusterError> {
        let built = tokio::task::spawn_blocking(build_both).await;
        let (etcd, _) = built.map_err(|error| system("build the programs")(error.into()))??;
        let mut tried = 0;
        loop {
            tried += 1;
            match Self::start_at(Ports::free().map_err(system("find free ports"))?, &etcd).await {
                Err(ClusterError::NotReady { log, .. })
                    if tried < STARTS && log.contains("address already in use") => {}
                ended => return ended,
            }
        }
    }

    /// One control plane for all tests of a process; use a namespace per test.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub async fn shared() -> Result<&'static Self, ClusterError> {
        static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start).await
    }

    async fn start_at(ports: Ports, etcd: &Path) -> Result<Self, ClusterError> {
        let folder = TempDir::with_prefix("control-plane-").map_err(system("make a folder"))?;
        let keys = Keys::create(folder.path())?;
        let data = folder.path().join("etcd");
        let log = folder.path().join("etcd.log");
        let scratch = Some(folder.path());
        let etcd =
            Process::start(etcd, &parts::etcd(ports, &data), &log, scratch).map_err(system("start etcd"))?;
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

    /// Starts kube-apiserver again after [`ControlPlane::kill_api`], at the same address, and waits until it is ready.
    ///
    /// # Errors
    /// When it cannot be started or does not become ready.
    pub async fn start_api(&self) -> Result<(), ClusterError> {
        let program = gobuild::place(Tool::KubeApiserver)?;
        let arguments = parts::apiserver(self.ports, self.folder.path());
        let log = self.folder.path().join("apiserver.log");
        let process =
            Process::start(&program, &arguments, &log, None).map_err(system("start kube-apiserver"))?;
        *lock(&self.api) = Some(process);
        self.ready().await
    }

    async fn ready(&self) -> Result<(), ClusterError> {
        let client = self.admin().client().await?;
        let started = Instant::now();
        loop {
            let request = http::Request::get("/readyz").body(Vec::new());
            let Ok(request) = request else {
                return Err(system("ask")(io::Error::other("no request")));
            };
            let asked = tokio::time::timeout(Duration::from_secs(5), client.request_text(request)).await;
            if matches!(asked, Ok(Ok(answer)) if answer == "ok") {
                return Ok(());
            }
            let late = started.elapsed() > READY;
            if let Some(api) = lock(&self.api).as_mut() {
                let ended = api.has_ended();
                if ended || late {
                    let how = if ended { "ended" } else { "was not ready in time" };
                    return Err(ClusterError::NotReady {
                        part: "kube-apiserver",
                        how,
                        log: api.last_words(20),
                    });
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Kills kube-apiserver; what it stored stays.
    pub fn kill_api(&self) {
        lock(&self.api).take();
    }

    /// Stops kube-apiserver where it is (SIGSTOP): connections stay open and nothing answers.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause_api(&self) -> Result<(), ClusterError> {
        self.signal_api(Signal::STOP)
    }

    /// Lets kube-apiserver go on after [`ControlPlane::pause_api`].
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume_api(&self) -> Result<(), ClusterError> {
        self.signal_api(Signal::CONT)
    }

    fn signal_api(&self, signal: Signal) -> Result<(), ClusterError> {
        let gone = || io::Error::other("it does not run");
        let api = lock(&self.api);
        let sent = api.as_ref().ok_or_else(gone).and_then(|api| api.signal(signal));
        sent.map_err(system("signal kube-apiserver"))
    }

    /// Starts Kubernetes' garbage collector and namespace controller, for tests of deletion. Does nothing when they run.
    ///
    /// # Errors
    /// When kube-controller-manager cannot be built or started.
    pub fn start_controllers(&self) -> Result<(), ClusterError> {
        let mut controllers = lock(&self.controllers);
        if controllers.is_some() {
            return Ok(());
        }
        let program = built(Tool::KubeControllerManager)?;
        let kubeconfig = self.folder.path().join("admin.conf");
        let written = std::fs::write(&kubeconfig, self.admin().kubeconfig());
        written.map_err(system("write the kubeconfig of the controllers"))?;
        let arguments = parts::controllers(&kubeconfig);
        let log = self.folder.path().join("controllers.log");
        let started = Process::start(&program, &arguments, &log, None);
        *controllers = Some(started.map_err(system("start kube-controller-manager"))?);
        Ok(())
    }

    /// Access as a member of `system:masters`, to which RBAC refuses nothing.
    #[must_use]
    pub fn admin(&self) -> Access {
        Access::certificate(&self.url(), self.keys.authority.pem(), &self.keys.admin)
    }

    /// A client with the rights of [`ControlPlane::admin`]. Make one per test: a client belongs to the runtime it was
    /// first used in.
    ///
    /// # Errors
    /// When the kubeconfig is not understood.
    pub async fn client(&self) -> Result<Client, AccessError> {
        self.admin().client().await
    }

    /// Access as a service account, which is made (with its namespace) when it is not there. It may do what the roles
    /// in `rbac`, a stream of YAML documents, allow.
    ///
    /// # Errors
    /// When a document is refused, or no token is given.
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

    /// Creates or changes the objects of a stream of YAML documents by server-side apply; custom resource definitions
    /// are waited for until they are served.
    ///
    /// # Errors
    /// When a document is no object or is refused.
    pub async fn apply(&self, documents: &str) -> Result<(), AccessError> {
        access::apply(&self.client().await?, documents).await
    }

    /// Where the API is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.api)
    }

    /// The folder with keys and logs, which goes with the control plane.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

fn built(tool: Tool) -> Result<PathBuf, BuildError> {
    gobuild::build(tool, &mut |line| eprintln!("{line}"))
}

fn build_both() -> Result<(PathBuf, PathBuf), BuildError> {
    Ok((built(Tool::Etcd)?, built(Tool::KubeApiserver)?))
}

#[cfg(test)]
mod tests;
