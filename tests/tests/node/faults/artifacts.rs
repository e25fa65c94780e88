//! A gateway between source-controller and its consumers, tf-controller and runs. It can hold the downloads of a stack's runs.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use sluice_harness::git::Gate;
use sluice_harness::node::{self, Network, Node};
use sluice_runtime::sync::lock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::stack::failure;
use super::{LIMIT, POLL_INTERVAL, pods};
use crate::install;

/// The label of the pods of source-controller, and the port of artifacts in them.
const SOURCE_CONTROLLER: (&str, u16) = ("app=source-controller", 9090);
/// Time limit of a connection to source-controller, and of the request for its address.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Longest head of a request.
const HEAD_LIMIT: usize = 16 << 10;

/// A server in the network of the node that passes requests on to source-controller. Dropping it closes its port.
pub(super) struct ArtifactGateway {
    /// Its address for pods.
    pub(super) address: String,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// What the connections share.
struct Shared {
    network: Network,
    client: Client,
    /// The gates for the runs of stacks, by the part of the path that names the source.
    gates: Mutex<BTreeMap<String, Gate>>,
    /// The last known address of source-controller: the API may be away.
    source: Mutex<Option<SocketAddr>>,
}

impl ArtifactGateway {
    pub(super) async fn start(node: &Node) -> Result<Self, String> {
        let network = node.network().map_err(failure("open the network"))?;
        let listener = network.listen().map_err(failure("listen for pods"))?;
        let made = listener.set_nonblocking(true);
        let listener = made.and_then(|()| TcpListener::from_std(listener));
        let listener = listener.map_err(failure("listen for pods"))?;
        let port = listener.local_addr().map_err(failure("find the port"))?.port();
        let shared = Arc::new(Shared {
            network,
            client: node.client().await.map_err(failure("make a client"))?,
            gates: Mutex::default(),
            source: Mutex::default(),
        });
        Ok(Self {
            address: format!("{}:{port}", node::ADDRESS),
            accepting: tokio::spawn(accept(listener, Arc::clone(&shared))),
            shared,
        })
    }

    /// Returns a gate at which the downloads by runs of this stack wait. The source has the name of the stack.
    pub(super) fn hold(&self, namespace: &str, name: &str) -> Gate {
        let gate = Gate::default();
        lock(&self.shared.gates).insert(format!("/{namespace}/{name}/"), gate.clone());
        gate
    }
}

impl Drop for ArtifactGateway {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, peer)) = listener.accept().await else {
            continue;
        };
        let shared = Arc::clone(&shared);
        // A connection that cannot be forwarded is closed, as if nothing listened.
        tokio::spawn(async move { drop(shared.forward(client, peer.ip()).await) });
    }
}

impl Shared {
    async fn forward(&self, mut client: TcpStream, peer: IpAddr) -> io::Result<()> {
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < HEAD_LIMIT {
            if client.read_buf(&mut head).await? == 0 {
                return Ok(());
            }
        }
        if let Some(gate) = self.gate(&head)
            && !self.is_controller(peer, &gate).await
        {
            gate.pass().await;
        }
        let mut server = self.connect().await?;
        server.write_all(&head).await?;
        tokio::io::copy_bidirectional(&mut client, &mut server)
            .await
            .map(drop)
    }

    /// Returns the gate of the source that the first line of a request names.
    fn gate(&self, head: &[u8]) -> Option<Gate> {
        let head = String::from_utf8_lossy(head);
        let line = head.lines().next().unwrap_or_default();
        let gates = lock(&self.gates);
        let found = gates.iter().find(|(source, _)| line.contains(source.as_str()));
        found.map(|(_, gate)| gate.clone())
    }

    /// Returns whether this is the address of a pod of the controllers, as long as the gate is closed. The kubelet reports the address of a pod
    /// after its start.
    async fn is_controller(&self, peer: IpAddr, gate: &Gate) -> bool {
        let all: Api<Pod> = Api::all(self.client.clone());
        let own = ListParams::default().fields(&format!("status.podIP={peer}"));
        let deadline = Instant::now() + LIMIT;
        while !gate.is_open() && Instant::now() < deadline {
            let found = tokio::time::timeout(CONNECT_LIMIT, all.list(&own)).await;
            let found = found.ok().and_then(Result::ok);
            let mut found = found.map(|found| found.items).unwrap_or_default();
            found.retain(pods::is_running);
            if let Some(pod) = found.first() {
                return pod.namespace().as_deref() == Some(install::NAMESPACE);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        false
    }

    /// Connects to source-controller at its last known address, or at the one that the API returns.
    async fn connect(&self) -> io::Result<TcpStream> {
        let known = *lock(&self.source);
        if let Some(known) = known
            && let Ok(stream) = self.connect_to(known).await
        {
            return Ok(stream);
        }
        let absent = || io::Error::other("source-controller has no address");
        let found = tokio::time::timeout(CONNECT_LIMIT, self.find()).await;
        let found = found.ok().flatten().ok_or_else(absent)?;
        *lock(&self.source) = Some(found);
        self.connect_to(found).await
    }

    async fn find(&self) -> Option<SocketAddr> {
        let all: Api<Pod> = Api::namespaced(self.client.clone(), install::NAMESPACE);
        let selected = ListParams::default().labels(SOURCE_CONTROLLER.0);
        let found = all.list(&selected).await.ok()?.items;
        let stays = |pod: &&Pod| pods::is_running(pod) && pod.metadata.deletion_timestamp.is_none();
        let address = |pod: &Pod| pod.status.as_ref()?.pod_ip.as_deref()?.parse::<IpAddr>().ok();
        let address = found.iter().filter(stays).find_map(address)?;
        Some(SocketAddr::new(address, SOURCE_CONTROLLER.1))
    }

    async fn connect_to(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let network = self.network.clone();
        let connected = tokio::task::spawn_blocking(move || network.connect(address, CONNECT_LIMIT)).await;
        let stream = connected.map_err(io::Error::other)??;
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    }
}
