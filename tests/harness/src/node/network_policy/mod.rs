//! Enforces network policies on a node, whose bridge enforces none, and connects from its pods.
//!
//! A thread watches policies, pods and namespaces. After each change it replaces the [rules](rules::Cluster::program) of nftables. Packets
//! between two pods of the bridge pass through them too (`bridge-nf-call-iptables`), after the addresses of Services are replaced.

mod rules;

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{self, LocalBoxStream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use rules::Cluster;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::sandbox::run_in_network;
use super::{Node, components, faults};
use crate::control_plane::{Access, ComponentError, lock, system};

/// The thread that enforces policies. It ends with this value.
#[derive(Debug)]
pub(super) struct Enforcement {
    _stop: oneshot::Sender<()>,
}

/// The network of a pod.
#[derive(Debug)]
pub struct PodNetwork(File);

impl Node {
    /// Enforces the network policies of the cluster from now on, each a moment after its change. Like a plugin of a real network, it
    /// restricts a pod when the pod has an address, and not what the node sends to its pods, such as probes. What pods send to the node
    /// is restricted, which Kubernetes leaves open.
    ///
    /// # Errors
    /// When the network of the node cannot be entered.
    pub fn enforce_network_policies(&self) -> Result<(), ComponentError> {
        // The thread is in the network of the node, where the API has its own address.
        let url = format!("https://{}", components::API);
        let access = Access::certificate(&url, self.keys.authority.pem(), &self.keys.admin);
        let environment = self.sandbox.environment().to_vec();
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = move || async move {
            tokio::select! {
                ended = enforce(&access, &environment) => ended,
                // The node has ended.
                _ = stopped => Ok(()),
            }
        };
        let started = self
            .sandbox
            .start_thread("the enforcement of network policies", serve);
        started.map_err(system("enforce network policies"))?;
        *lock(&self.network_policies) = Some(Enforcement { _stop: stop });
        Ok(())
    }

    /// Returns the network of the pod of a container; `id` is its `containerID` in the status of the pod, without the scheme.
    ///
    /// # Errors
    /// When the container does not run.
    pub fn pod_network(&self, id: &str) -> Result<PodNetwork, ComponentError> {
        let absent = || io::Error::other(format!("{id} has no process"));
        let network = faults::processes(id, None)
            .and_then(|processes| processes.first().copied().ok_or_else(absent))
            .and_then(|pid| File::open(format!("/proc/{}/ns/net", pid.as_raw_nonzero())));
        network
            .map(PodNetwork)
            .map_err(system("find the network of a container"))
    }
}

impl PodNetwork {
    /// Connects as a program in the pod does. Returns whether the other side answers within this time: also with a refusal, because
    /// nothing listens there. A policy drops packets, so nothing answers.
    ///
    /// # Errors
    /// When there is no route, or the pod has ended.
    pub async fn connect(&self, to: SocketAddr, limit: Duration) -> Result<bool, ComponentError> {
        let network = self.0.try_clone();
        let network = network.map_err(system("find the network of a container"))?;
        let connect = move || run_in_network(network, move || TcpStream::connect_timeout(&to, limit));
        let connected = tokio::task::spawn_blocking(connect).await;
        let connected = connected.map_err(|error| system("connect from a pod")(error.into()))?;
        let connected = connected.map_err(system("enter the network of a pod"))?;
        match connected {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(true),
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(false),
            Err(error) => Err(system("connect from a pod")(error)),
        }
    }
}

/// Loads the rules after each change of what they depend on.
async fn enforce(access: &Access, environment: &[String]) -> io::Result<()> {
    let client = access.client().await;
    let client = client.map_err(|error| io::Error::other(error.to_string()))?;
    let (namespaces, of_namespaces) = watch::<Namespace>(&client);
    let (pods, of_pods) = watch::<Pod>(&client);
    let (policies, of_policies) = watch::<NetworkPolicy>(&client);
    let mut changes = stream::select_all([of_namespaces, of_pods, of_policies]);
    let mut loaded = String::new();
    while changes.next().await.is_some() {
        let cluster = Cluster {
            namespaces: namespaces.state(),
            pods: pods.state(),
            policies: policies.state(),
        };
        let program = cluster.program();
        if program != loaded {
            load(environment, &program)?;
            loaded = program;
        }
    }
    Ok(())
}

/// Returns the objects of a kind, and an item for each change. The watch repeats failed requests.
fn watch<K>(client: &Client) -> (Store<K>, LocalBoxStream<'static, ()>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (objects, writer) = reflector::store();
    let changes = watcher(Api::<K>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .map(drop)
        .boxed_local();
    (objects, changes)
}

/// Runs a program of nft in the network of this thread.
fn load(environment: &[String], program: &str) -> io::Result<()> {
    let mut nft = Command::new("env")
        .args(environment)
        .args(["nft", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = nft.stdin.take() {
        input.write_all(program.as_bytes())?;
    }
    let ended = nft.wait_with_output()?;
    if ended.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&ended.stderr);
    Err(io::Error::other(format!("nft: {why}\n{program}")))
}
