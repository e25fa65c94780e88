//! A source-controller as a separate process, ours or Flux's, with an API server in this process; and what it costs.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use sluice_embedded::{ApiServer, TlsServer};
use sluice_harness::gobuild::{self, Tool};
use sluice_tests::{BoxError, binary};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::usage::{self, Usage};

/// Timeout of a start.
const TIMEOUT: Duration = Duration::from_mins(1);

/// What a part of the measurement cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// How long it took.
    pub(crate) time: Duration,
    /// CPU time of the controller.
    pub(crate) cpu: Duration,
    /// Requests of the controller to the API server, without watches that are still open.
    pub(crate) requests: u64,
    /// Those of them that change an object (PATCH, PUT). Events are created.
    pub(crate) writes: u64,
    /// Reconciliations that have ended.
    pub(crate) reconciliations: u64,
}

impl Cost {
    /// Returns the cost of a part that began with these counters and took this time.
    pub(crate) const fn since(&self, before: &Self, time: Duration) -> Self {
        Self {
            time,
            cpu: self.cpu.saturating_sub(before.cpu),
            requests: self.requests.saturating_sub(before.requests),
            writes: self.writes.saturating_sub(before.writes),
            reconciliations: self.reconciliations.saturating_sub(before.reconciliations),
        }
    }

    /// Returns the cost of one of several equal parts.
    pub(crate) fn divided_by(&self, parts: u32) -> Self {
        Self {
            time: self.time / parts,
            cpu: self.cpu / parts,
            requests: self.requests / u64::from(parts),
            writes: self.writes / u64::from(parts),
            reconciliations: self.reconciliations / u64::from(parts),
        }
    }
}

/// A running controller.
pub(crate) struct Controller {
    program: Vec<PathBuf>,
    /// Address of its file server.
    pub(crate) artifacts: SocketAddr,
    metrics: SocketAddr,
    health: SocketAddr,
    served: TlsServer,
    sources: Api<DynamicObject>,
    child: Child,
}

/// Returns the program of this build: the file and its subcommand.
pub(crate) fn own_program() -> Result<Vec<PathBuf>, BoxError> {
    Ok(vec![binary("sluice")?, "source-controller".into()])
}

/// Returns the definitions that both controllers need: those of Flux where Go can download them, else ours.
pub(crate) fn definitions() -> Result<Vec<CustomResourceDefinition>, BoxError> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/crd/bases");
    let folder = gobuild::package_folder(Tool::FluxSourceController)
        .map_or(own, |module| module.join("config/crd/bases"));
    let mut definitions = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let text = std::fs::read_to_string(entry?.path())?;
        let definition: CustomResourceDefinition = serde_yaml_ng::from_str(&text)?;
        if definition.spec.group == "source.toolkit.fluxcd.io" {
            definitions.push(definition);
        }
    }
    Ok(definitions)
}

impl Controller {
    /// Starts the program (the first of its arguments) with its storage in `folder`.
    pub(crate) async fn start(
        program: &[PathBuf],
        folder: &Path,
        definitions: Vec<CustomResourceDefinition>,
    ) -> Result<Self, BoxError> {
        let api = ApiServer::builder().crds(definitions).build()?;
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        for name in ["api", "storage"] {
            std::fs::create_dir_all(folder.join(name))?;
        }
        let served = api.serve(anywhere, &folder.join("api")).await?;
        let kind = GroupVersionKind::gvk("source.toolkit.fluxcd.io", "v1", "GitRepository");
        let kind = ApiResource::from_gvk_with_plural(&kind, "gitrepositories");
        let sources = Api::namespaced_with(api.client(), "default", &kind);
        let addresses = [free_address()?, free_address()?, free_address()?];
        let child = spawn(program, folder, &served.kubeconfig_path, addresses)?;
        let [artifacts, metrics, health] = addresses;
        let controller = Self {
            program: program.to_vec(),
            artifacts,
            metrics,
            health,
            served,
            sources,
            child,
        };
        controller.wait_until_started().await?;
        Ok(controller)
    }

    /// Returns the sources in its API.
    pub(crate) const fn sources(&self) -> &Api<DynamicObject> {
        &self.sources
    }

    /// Kills it.
    pub(crate) async fn kill(&mut self) -> Result<(), BoxError> {
        Ok(self.child.kill().await?)
    }

    /// Starts it on the same storage and API.
    pub(crate) async fn start_again(&mut self, folder: &Path) -> Result<(), BoxError> {
        let addresses = [self.artifacts, self.metrics, self.health];
        self.child = spawn(&self.program, folder, &self.served.kubeconfig_path, addresses)?;
        self.wait_until_started().await
    }

    /// Ends it.
    pub(crate) async fn end(mut self) -> Result<(), BoxError> {
        self.kill().await
    }

    /// Returns the id of the process.
    pub(crate) fn id(&self) -> Result<u32, BoxError> {
        Ok(self.child.id().ok_or("the controller has ended")?)
    }

    /// Returns CPU time and memory of the process.
    pub(crate) fn usage(&self) -> Result<Usage, BoxError> {
        usage::of_process(self.id()?)
    }

    /// Returns the time of all reconciliations of a source since the start, in seconds.
    pub(crate) async fn reconciliation_time(&self, name: &str) -> Result<f64, BoxError> {
        let page = get(self.metrics, "/metrics").await?;
        let label = format!("name=\"{name}\"");
        let mut sums = page
            .lines()
            .filter(|line| line.starts_with("gotk_reconcile_duration_seconds_sum{"));
        let sum = sums.find(|line| line.contains(&label));
        let number = sum.and_then(|line| line.rsplit_once(' '));
        let (_, number) = number.ok_or_else(|| format!("no reconciliation of {name}"))?;
        Ok(number.parse()?)
    }

    /// Returns its counters since its start.
    pub(crate) async fn cost(&self) -> Result<Cost, BoxError> {
        let page = get(self.metrics, "/metrics").await?;
        let (mut counts, mut reconciliations) = (Vec::new(), Vec::new());
        for line in page.lines() {
            if line.starts_with("rest_client_requests_total{") {
                counts.push(line);
            } else if line.starts_with("gotk_reconcile_duration_seconds_count{") {
                reconciliations.push(line);
            }
        }
        // Counters are written as floating-point numbers by some libraries.
        let number = |line: &str| line.rsplit_once(' ')?.1.split('.').next()?.parse::<u64>().ok();
        let is_write = |line: &str| {
            ["PATCH", "PUT"]
                .iter()
                .any(|method| line.contains(&format!("method=\"{method}\"")))
        };
        let writes = counts.iter().filter(|line| is_write(line));
        Ok(Cost {
            time: Duration::ZERO,
            cpu: self.usage()?.cpu,
            requests: counts.iter().filter_map(|line| number(line)).sum(),
            writes: writes.filter_map(|line| number(line)).sum(),
            reconciliations: reconciliations.iter().filter_map(|line| number(line)).sum(),
        })
    }

    async fn wait_until_started(&self) -> Result<(), BoxError> {
        let started = async {
            while get(self.metrics, "/metrics").await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, started)
            .await
            .map_err(|_| "the controller did not start")?;
        Ok(())
    }
}

fn spawn(
    program: &[PathBuf],
    folder: &Path,
    kubeconfig: &Path,
    [artifacts, metrics, health]: [SocketAddr; 3],
) -> Result<Child, BoxError> {
    let (file, arguments) = program.split_first().ok_or("no program")?;
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("log"))?;
    let child = Command::new(file)
        .args(arguments)
        .arg(format!("--storage-path={}", folder.join("storage").display()))
        .arg(format!("--storage-addr={artifacts}"))
        .arg(format!("--storage-adv-addr={artifacts}"))
        .arg(format!("--metrics-addr={metrics}"))
        .arg(format!("--health-addr={health}"))
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()?;
    Ok(child)
}

/// Returns an address with a free port.
pub(crate) fn free_address() -> Result<SocketAddr, BoxError> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Returns the page at an address. HTTP/1.0 has no chunks, whose boundaries would be in the middle of lines.
async fn get(address: SocketAddr, path: &str) -> Result<String, BoxError> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response)
}
