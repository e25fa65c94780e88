//! A real Kubernetes control plane on loopback: etcd and kube-apiserver with RBAC and its own keys.
//!
//! There is no node and no scheduler: the suites test how programs use the API. Ports are free ones; the start is repeated
//! if another process takes one first. All processes end with the value, or with the test process.

mod components;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use components::Ports;
use kube::Client;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::control_plane::{
    self, Access, AccessError, ComponentError, Durability, Keys, LOG_LINES, POLL_INTERVAL, READY_TIMEOUT,
    lock, system,
};
use crate::gobuild::{self, BuildError, Tool};
use crate::process::Process;

/// Maximum number of starts when ports are taken.
const MAX_STARTS: u32 = 5;
/// First part of the name of the folder of a control plane.
const FOLDER_PREFIX: &str = "control-plane-";

/// A running control plane.
#[derive(Debug)]
pub struct ControlPlane {
    // In drop order: clients of a component before the component.
    controllers: Mutex<Option<Process>>,
    job_controller: Mutex<Option<Process>>,
    api: Mutex<Option<Process>>,
    etcd: Process,
    ports: Ports,
    keys: Keys,
    folder: TempDir,
    has_audit_log: bool,
}

/// How a control plane differs from that of most tests.
#[derive(Clone, Copy, Debug, Default)]
struct Options<'a> {
    has_audit_log: bool,
    /// The directory of its files if etcd syncs its writes; otherwise they are in the temporary directory.
    durable_in: Option<&'a Path>,
}

impl Options<'_> {
    /// Creates the folder of its files.
    fn create_folder(&self) -> io::Result<TempDir> {
        match self.durable_in {
            Some(parent) => TempDir::with_prefix_in(FOLDER_PREFIX, parent),
            None => TempDir::with_prefix(FOLDER_PREFIX),
        }
    }

    const fn durability(&self) -> Durability {
        match self.durable_in {
            Some(_) => Durability::Disk,
            None => Durability::Process,
        }
    }
}

impl ControlPlane {
    /// Starts etcd and kube-apiserver and waits until the API is ready. Builds the programs first if needed.
    ///
    /// # Errors
    /// When a program cannot be built or started, or does not become ready.
    pub async fn start() -> Result<Self, ComponentError> {
        Self::start_with(Options::default()).await
    }

    /// As [`ControlPlane::start`], with an audit log of the requests of ServiceAccounts: [`ControlPlane::audit_log`].
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub async fn start_with_audit_log() -> Result<Self, ComponentError> {
        let has_audit_log = true;
        Self::start_with(Options {
            has_audit_log,
            ..Options::default()
        })
        .await
    }

    /// As [`ControlPlane::start`], with files in this directory and an etcd that syncs each write to the disk, for measurements. The
    /// temporary directory may be in memory, where a sync costs nothing.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub async fn start_durable(parent: &Path) -> Result<Self, ComponentError> {
        let durable_in = Some(parent);
        Self::start_with(Options {
            durable_in,
            ..Options::default()
        })
        .await
    }

    async fn start_with(options: Options<'_>) -> Result<Self, ComponentError> {
        let built = tokio::task::spawn_blocking(build_programs).await;
        let (etcd, _) = built.map_err(|error| system("build the programs")(error.into()))??;
        let mut tried = 0;
        loop {
            tried += 1;
            let ports = Ports::free().map_err(system("find free ports"))?;
            match Self::start_on_ports(ports, &etcd, options).await {
                Err(ComponentError::NotReady { log, .. })
                    if tried < MAX_STARTS && log.contains("address already in use") => {}
                ended => return ended,
            }
        }
    }

    /// Returns the control plane that all tests of a process share; use one namespace per test.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub async fn shared() -> Result<&'static Self, ComponentError> {
        static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start).await
    }

    async fn start_on_ports(ports: Ports, etcd: &Path, options: Options<'_>) -> Result<Self, ComponentError> {
        let folder = options.create_folder().map_err(system("make a folder"))?;
        let keys = Keys::create(folder.path(), &components::HOSTS)?;
        let log = folder.path().join("etcd.log");
        let scratch = Some(folder.path());
        let flags = components::etcd(ports, folder.path(), options.durability());
        let etcd = Process::start(etcd, &flags, &log, scratch).map_err(system("start etcd"))?;
        let plane = Self {
            controllers: Mutex::new(None),
            job_controller: Mutex::new(None),
            api: Mutex::new(None),
            etcd,
            ports,
            keys,
            folder,
            has_audit_log: options.has_audit_log,
        };
        plane.start_api().await?;
        Ok(plane)
    }

    /// Starts kube-apiserver again after [`ControlPlane::kill_api`] at the same address, and waits until it is ready.
    ///
    /// # Errors
    /// When it cannot be started or does not become ready.
    pub async fn start_api(&self) -> Result<(), ComponentError> {
        let program = gobuild::binary_path(Tool::KubeApiserver)?;
        let mut arguments = components::apiserver(self.ports, self.folder.path());
        if self.has_audit_log {
            arguments.extend(control_plane::audit(self.folder.path())?);
        }
        let log = self.folder.path().join("apiserver.log");
        let process =
            Process::start(&program, &arguments, &log, None).map_err(system("start kube-apiserver"))?;
        *lock(&self.api) = Some(process);
        self.wait_until_ready().await
    }

    async fn wait_until_ready(&self) -> Result<(), ComponentError> {
        let client = self.admin().client().await?;
        let started = Instant::now();
        while control_plane::get(&client, "/readyz").await.as_deref() != Some("ok") {
            let late = started.elapsed() > READY_TIMEOUT;
            if let Some(api) = lock(&self.api).as_mut() {
                let ended = api.has_ended();
                if ended || late {
                    let how = if ended { "ended" } else { "was not ready in time" };
                    return Err(ComponentError::NotReady {
                        component: "kube-apiserver",
                        how,
                        log: api.log_tail(LOG_LINES),
                    });
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Returns the process ids of etcd and of kube-apiserver, unless that is killed.
    #[must_use]
    pub fn process_ids(&self) -> Vec<u32> {
        let api = lock(&self.api);
        let processes = std::iter::once(&self.etcd).chain(api.as_ref());
        processes.map(Process::id).collect()
    }

    /// Kills kube-apiserver; its data stays in etcd.
    pub fn kill_api(&self) {
        lock(&self.api).take();
    }

    /// Pauses kube-apiserver (SIGSTOP): connections stay open but get no response.
    ///
    /// # Errors
    /// When it is not running.
    pub fn pause_api(&self) -> Result<(), ComponentError> {
        control_plane::signal_api(lock(&self.api).as_ref(), Process::stop)
    }

    /// Resumes kube-apiserver after [`ControlPlane::pause_api`].
    ///
    /// # Errors
    /// When it is not running.
    pub fn resume_api(&self) -> Result<(), ComponentError> {
        control_plane::signal_api(lock(&self.api).as_ref(), |api| api.signal(Signal::CONT))
    }

    /// Starts the garbage collector and the namespace controller of Kubernetes, for tests of deletion. Idempotent.
    ///
    /// # Errors
    /// When kube-controller-manager cannot be built or started.
    pub fn start_controllers(&self) -> Result<(), ComponentError> {
        self.start_controller_manager(&self.controllers, "controllers", components::DELETION_CONTROLLERS)
    }

    /// Starts the Job controller of Kubernetes, which creates the pods of Jobs. Without a node, the test plays the kubelet. Idempotent.
    ///
    /// # Errors
    /// When kube-controller-manager cannot be built or started.
    pub fn start_job_controller(&self) -> Result<(), ComponentError> {
        self.start_controller_manager(&self.job_controller, "job-controller", components::JOB_CONTROLLER)
    }

    /// Starts a kube-controller-manager with these controllers, unless `process` runs. `name` is that of its log.
    fn start_controller_manager(
        &self,
        process: &Mutex<Option<Process>>,
        name: &str,
        controllers: &str,
    ) -> Result<(), ComponentError> {
        let mut process = lock(process);
        if process.is_some() {
            return Ok(());
        }
        let program = build_tool(Tool::KubeControllerManager)?;
        let kubeconfig = self.folder.path().join("admin.conf");
        let written = std::fs::write(&kubeconfig, self.admin().kubeconfig());
        written.map_err(system("write the kubeconfig of the controllers"))?;
        let arguments = components::controllers(&kubeconfig, controllers);
        let log = self.folder.path().join(format!("{name}.log"));
        let started = Process::start(&program, &arguments, &log, None);
        *process = Some(started.map_err(system("start kube-controller-manager"))?);
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
        let token = control_plane::token(&client, namespace, name, rbac).await?;
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
        control_plane::apply(&self.client().await?, documents).await
    }

    /// Returns the URL of the API.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.api)
    }

    /// Returns the audit log so far: one event of audit.k8s.io/v1 per line. Events are in it before their requests are answered.
    ///
    /// # Errors
    /// When the control plane was started without one, or it cannot be read.
    pub fn audit_log(&self) -> io::Result<String> {
        control_plane::audit_log(self.folder.path())
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
