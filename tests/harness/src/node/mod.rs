//! A real Kubernetes of one node: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy, `CoreDNS`,
//! containerd and runc.
//!
//! The node has its own mount, process and network namespaces (see [`sandbox`]), so it needs root, and nothing of the machine
//! changes. This process reaches the API at a forwarded port of loopback; pods reach servers of the tests at
//! [`Node::expose`]. Images are imported, since there is no registry. Pods cannot leave the machine. Network policies have an effect
//! only after [`Node::enforce_network_policies`].

mod components;
mod faults;
mod network_policy;
mod runtime;
mod sandbox;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

pub use components::ADDRESS;
use jiff::Timestamp;
use kube::Client;
pub use network_policy::PodNetwork;
use runtime::Runtime;
pub use sandbox::Network;
use sandbox::{Cgroups, Sandbox};
use sluice_images::archive::{self, ImageConfig, Reference};
use sluice_images::layer::Layer;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::control_plane::{
    self, Access, AccessError, ComponentError, Keys, LOG_LINES, POLL_INTERVAL, READY_TIMEOUT, lock, system,
};
use crate::gobuild::{self, BuildError, Tool};
use crate::process::Process;

/// Time limit of a command of the container runtime. The import of the largest image takes some seconds.
const CTR_TIMEOUT: Duration = Duration::from_mins(3);

/// The programs that a node needs.
pub const TOOLS: [Tool; 8] = [
    Tool::Pause,
    Tool::Etcd,
    Tool::KubeApiserver,
    Tool::KubeControllerManager,
    Tool::KubeScheduler,
    Tool::Kubelet,
    Tool::KubeProxy,
    Tool::Coredns,
];

/// A component that a test can kill and start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// The database of the API server.
    Etcd,
    /// The API server.
    ApiServer,
    /// The kubelet. Its pods continue without it.
    Kubelet,
    /// The container runtime. Containers continue without it.
    Runtime,
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    // In drop order: the sandbox ends every process that is left, then its cgroups are empty.
    components: Mutex<BTreeMap<Component, Process>>,
    others: Vec<Process>,
    network_policies: Mutex<Option<network_policy::Enforcement>>,
    sandbox: Sandbox,
    cgroups: Cgroups,
    runtime: Runtime,
    keys: Keys,
    /// The port of loopback that leads to the API.
    port: u16,
    folder: TempDir,
}

impl Node {
    /// Starts all components and waits until pods can be created. Builds the programs first if needed.
    ///
    /// # Errors
    /// When a program cannot be built or started, or does not become ready.
    pub async fn start() -> Result<Self, ComponentError> {
        let built = tokio::task::spawn_blocking(build_programs).await;
        built.map_err(|error| system("build the programs")(error.into()))??;
        let runtime = Runtime::find()?;
        let folder = TempDir::with_prefix("node-").map_err(system("make a folder"))?;
        let at = folder.path();
        let keys = components::create_keys(at)?;
        let pause = gobuild::binary_path(Tool::Pause)?;
        let address = format!("{}/24", components::ADDRESS);
        let sandbox = Sandbox::start(at, &address, &pause, runtime.environment())
            .map_err(system("make the namespaces of the node"))?;
        let cgroups = Cgroups::create(at).map_err(system("make the cgroup of the node"))?;
        let port = sandbox
            .forward(components::API)
            .map_err(system("forward a port to the API"))?;
        let mut node = Self {
            components: Mutex::default(),
            others: Vec::new(),
            network_policies: Mutex::default(),
            sandbox,
            cgroups,
            runtime,
            keys,
            port,
            folder,
        };
        node.start_components().await?;
        Ok(node)
    }

    /// Returns the node that all tests of a process share; use one namespace per test.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub async fn shared() -> Result<&'static Self, ComponentError> {
        static SHARED: OnceCell<Node> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start).await
    }

    async fn start_components(&mut self) -> Result<(), ComponentError> {
        let at = self.folder.path().to_owned();
        self.start_component(Component::Etcd)?;
        self.start_component(Component::ApiServer)?;
        self.start_component(Component::Runtime)?;
        self.wait_for("kube-apiserver", || self.is_api_ready()).await?;
        self.wait_for("containerd", || std::future::ready(self.has_runtime()))
            .await?;
        self.import(&pack_pause(&at)?).await?;
        self.start_in_network(
            "kube-controller-manager",
            Tool::KubeControllerManager,
            &components::controllers(&at),
        )?;
        self.start_in_network("kube-scheduler", Tool::KubeScheduler, &components::scheduler(&at))?;
        self.start_in_network("kube-proxy", Tool::KubeProxy, &components::proxy(&at)?)?;
        self.apply(components::DNS_ROLE).await?;
        self.start_in_network("coredns", Tool::Coredns, &components::dns(&at)?)?;
        self.start_component(Component::Kubelet)?;
        self.wait_for("kubelet", || self.can_create_pods()).await
    }

    fn start_in_network(&mut self, name: &str, tool: Tool, flags: &[String]) -> Result<(), ComponentError> {
        let program = gobuild::binary_path(tool)?;
        let started = self.sandbox.start_in_network(name, &program, flags);
        self.others.push(started.map_err(system("start a component"))?);
        Ok(())
    }

    /// Starts a component, again after [`Node::kill_component`]. Does not wait until it is ready.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_component(&self, component: Component) -> Result<(), ComponentError> {
        let at = self.folder.path();
        let started = match component {
            Component::Etcd => {
                let program = gobuild::binary_path(Tool::Etcd)?;
                self.sandbox
                    .start_in_network("etcd", &program, &components::etcd(at))
            }
            Component::ApiServer => return self.start_api_with(&[]),
            Component::Kubelet => {
                let program = gobuild::binary_path(Tool::Kubelet)?;
                let flags = components::kubelet(at, &self.cgroups.name)?;
                self.sandbox.start_inside("kubelet", &program, &flags)
            }
            Component::Runtime => {
                let flags = components::containerd(at, &self.runtime)?;
                let program = self.runtime.program("containerd");
                self.sandbox.start_inside("containerd", &program, &flags)
            }
        };
        let started = started.map_err(system("start a component"))?;
        lock(&self.components).insert(component, started);
        Ok(())
    }

    /// Returns the audit log so far: the requests of ServiceAccounts, one event of audit.k8s.io/v1 per line. Events are in it before their
    /// requests are answered.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn audit_log(&self) -> std::io::Result<String> {
        control_plane::audit_log(self.folder.path())
    }

    async fn wait_for<F: Future<Output = bool>>(
        &self,
        component: &'static str,
        ready: impl Fn() -> F,
    ) -> Result<(), ComponentError> {
        let deadline = Instant::now() + READY_TIMEOUT;
        while !ready().await {
            if Instant::now() > deadline {
                return Err(ComponentError::NotReady {
                    component,
                    how: "was not ready in time",
                    log: self.log_tail(component),
                });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    fn log_tail(&self, component: &str) -> String {
        let log = std::fs::read(self.folder.path().join(format!("{component}.log"))).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    async fn is_api_ready(&self) -> bool {
        matches!(self.get("/readyz").await.as_deref(), Some("ok"))
    }

    fn has_runtime(&self) -> bool {
        Path::new(&components::socket(self.folder.path())).exists()
    }

    /// Returns whether the node is ready and the default account exists, without which no pod is admitted.
    async fn can_create_pods(&self) -> bool {
        let node = self.get(&format!("/api/v1/nodes/{}", components::NAME)).await;
        let node: serde_json::Value = serde_json::from_str(&node.unwrap_or_default()).unwrap_or_default();
        let conditions = node["status"]["conditions"].as_array();
        let is_ready = conditions.is_some_and(|all| {
            all.iter()
                .any(|one| one["type"] == "Ready" && one["status"] == "True")
        });
        is_ready
            && self
                .get("/api/v1/namespaces/default/serviceaccounts/default")
                .await
                .is_some()
    }

    async fn get(&self, path: &str) -> Option<String> {
        control_plane::get(&self.client().await.ok()?, path).await
    }

    /// Imports the archive of an image into the container runtime, also over an image of that name. An image with a tag other than
    /// `latest` is never pulled.
    ///
    /// # Errors
    /// When the runtime refuses it.
    pub async fn import(&self, archive: &Path) -> Result<(), ComponentError> {
        let mut import = self.start_ctr(&["images", "import", &archive.display().to_string()])?;
        let ended = import.wait_at_most(CTR_TIMEOUT).await;
        let status = ended.map_err(system("wait for ctr"))?;
        if status.success() {
            return Ok(());
        }
        Err(ComponentError::Import {
            archive: archive.to_owned(),
            why: import.log_tail(5),
        })
    }

    /// Starts the client of the container runtime.
    fn start_ctr(&self, arguments: &[&str]) -> Result<Process, ComponentError> {
        let socket = components::socket(self.folder.path());
        let all: Vec<_> = [&["-a", &socket, "-n", "k8s.io"], arguments]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect();
        let program = self.runtime.program("ctr");
        let started = self.sandbox.start_inside("ctr", &program, &all);
        started.map_err(system("start ctr"))
    }

    /// Makes a server of this machine reachable for pods. Returns its address in the network of the node.
    ///
    /// # Errors
    /// When the network of the node cannot be entered.
    pub fn expose(&self, server: SocketAddr) -> Result<String, ComponentError> {
        let port = self
            .sandbox
            .expose(server)
            .map_err(system("listen in the network of the node"))?;
        Ok(format!("{}:{port}", components::ADDRESS))
    }

    /// Returns access as a member of `system:masters`, which bypasses RBAC.
    #[must_use]
    pub fn admin(&self) -> Access {
        Access::certificate(&self.url(), self.keys.authority.pem(), &self.keys.admin)
    }

    /// Returns a client with the rights of [`Node::admin`]. Create one per test.
    ///
    /// # Errors
    /// When the kubeconfig is invalid.
    pub async fn client(&self) -> Result<Client, AccessError> {
        self.admin().client().await
    }

    /// Applies the objects of a stream of YAML documents by server-side apply; waits until custom resource definitions are
    /// served.
    ///
    /// # Errors
    /// When a document is not an object or is refused.
    pub async fn apply(&self, documents: &str) -> Result<(), AccessError> {
        control_plane::apply(&self.client().await?, documents).await
    }

    /// Returns the URL of the API for this process.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Returns the folder with keys and logs; it is removed with the node.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.sandbox.kill();
    }
}

/// Packs the image that the container runtime starts for each pod.
fn pack_pause(folder: &Path) -> Result<PathBuf, ComponentError> {
    let mut layer = Layer::default();
    layer.file("/pause", &gobuild::binary_path(Tool::Pause)?)?;
    let layer = layer.write(&folder.join("pause-layer.tar"))?;
    let config = ImageConfig {
        user: 65534,
        entrypoint: "/pause".to_owned(),
        environment: BTreeMap::new(),
        labels: BTreeMap::new(),
    };
    let name = Reference::new("localhost/pause", "1")?;
    let archive = folder.join("pause.tar");
    archive::write(&name, &config, &[&layer], Timestamp::UNIX_EPOCH, &archive)?;
    Ok(archive)
}

fn build_programs() -> Result<(), BuildError> {
    for tool in TOOLS {
        gobuild::build(tool, &mut |line| eprintln!("{line}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
