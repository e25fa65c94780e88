//! Network policies as rules of nftables.
//!
//! Each pod has a chain for each direction that a policy restricts. A packet returns from it if a rule of one of these policies permits the
//! packet, and is dropped at its end.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};

/// What the rules depend on.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) namespaces: Vec<Arc<Namespace>>,
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) policies: Vec<Arc<NetworkPolicy>>,
}

/// A pod with an address of its own.
struct Endpoint<'c> {
    address: Ipv4Addr,
    pod: &'c Pod,
    /// Its namespace. A watch of namespaces may lag behind.
    namespace: Option<&'c Namespace>,
}

/// A direction of connections, seen from the pod that a policy selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Ingress,
    Egress,
}

/// A rule of a policy. Without peers or ports it permits all.
struct Rule<'c> {
    peers: &'c [NetworkPolicyPeer],
    ports: &'c [NetworkPolicyPort],
}

/// Who is at the other end of a connection.
enum Peer<'c> {
    Any,
    Block(&'c IPBlock),
    Pod(&'c Endpoint<'c>),
}

impl Cluster {
    /// Returns the program of nft that replaces all rules. Its text is the same for the same objects.
    pub(super) fn program(&self) -> String {
        let endpoints = self.endpoints();
        let (mut chains, mut forward, mut input) = (Vec::new(), Vec::new(), Vec::new());
        for endpoint in &endpoints {
            let own = endpoint.address;
            // A pod always reaches itself, also by a Service.
            if let Some(permitted) = self.permitted(endpoint, Direction::Egress, &endpoints) {
                chains.push(chain(&format!("egress-{own}"), &permitted));
                forward.push(format!("ip saddr {own} ip daddr != {own} jump egress-{own}"));
                input.push(format!("ip saddr {own} jump egress-{own}"));
            }
            if let Some(permitted) = self.permitted(endpoint, Direction::Ingress, &endpoints) {
                chains.push(chain(&format!("ingress-{own}"), &permitted));
                forward.push(format!("ip daddr {own} ip saddr != {own} jump ingress-{own}"));
            }
        }
        // The first two lines work whether the table exists or not.
        format!(
            "add table ip network-policies\ndelete table ip network-policies\ntable ip network-policies {{\n{}{}{}}}\n",
            chains.concat(),
            base_chain("forward", &forward),
            base_chain("input", &input),
        )
    }

    /// Returns the pods whose packets the rules can tell apart, in the order of their addresses.
    fn endpoints(&self) -> Vec<Endpoint<'_>> {
        let mut endpoints: Vec<_> = self.pods.iter().filter_map(|pod| self.endpoint(pod)).collect();
        endpoints.sort_by_key(|endpoint| endpoint.address);
        endpoints
    }

    fn endpoint<'c>(&'c self, pod: &'c Pod) -> Option<Endpoint<'c>> {
        let status = pod.status.as_ref()?;
        // The address of a pod that has ended may be another pod's.
        let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let is_on_host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
        if has_ended || is_on_host {
            return None;
        }
        let name = pod.metadata.namespace.as_deref();
        let mut namespaces = self.namespaces.iter();
        Some(Endpoint {
            address: status.pod_ip.as_ref()?.parse().ok()?,
            pod,
            namespace: namespaces
                .find(|namespace| namespace.metadata.name.as_deref() == name)
                .map(|namespace| &**namespace),
        })
    }

    /// Returns the rules for the packets that a pod may receive or send; `None` if no policy restricts it.
    fn permitted(
        &self,
        own: &Endpoint<'_>,
        direction: Direction,
        endpoints: &[Endpoint<'_>],
    ) -> Option<Vec<String>> {
        let mut permitted = Vec::new();
        let mut is_restricted = false;
        for policy in self.policies.iter().filter(|policy| own.is_subject_of(policy)) {
            let Some(spec) = policy.spec.as_ref().filter(|spec| direction.is_restricted(spec)) else {
                continue;
            };
            is_restricted = true;
            for rule in direction.rules(spec) {
                for peer in rule.peers(own, endpoints) {
                    permitted.extend(rule.matches(&peer, own, direction));
                }
            }
        }
        // Policies and pods have no order.
        permitted.sort();
        permitted.dedup();
        is_restricted.then_some(permitted)
    }
}

impl Endpoint<'_> {
    fn is_subject_of(&self, policy: &NetworkPolicy) -> bool {
        let selector = policy.spec.as_ref().and_then(|spec| spec.pod_selector.as_ref());
        self.pod.metadata.namespace == policy.metadata.namespace && selects(selector, self.pod.labels())
    }

    /// Returns whether a rule of a policy of this namespace names the pod.
    fn is_peer(&self, peer: &NetworkPolicyPeer, namespace: Option<&str>) -> bool {
        let is_in_namespace = match (&peer.namespace_selector, self.namespace) {
            (None, _) => self.pod.metadata.namespace.as_deref() == namespace,
            (Some(selector), Some(own)) => selects(Some(selector), own.labels()),
            (Some(_), None) => false,
        };
        is_in_namespace && selects(peer.pod_selector.as_ref(), self.pod.labels())
    }

    /// Returns the number of a port that a container of the pod declares.
    fn port(&self, name: &str, protocol: &str) -> Option<i32> {
        let containers = self.pod.spec.iter().flat_map(|spec| &spec.containers);
        let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
        let port = ports.find(|port| {
            port.name.as_deref() == Some(name) && port.protocol.as_deref().unwrap_or("TCP") == protocol
        })?;
        Some(port.container_port)
    }
}

impl Direction {
    /// Returns whether a policy restricts this direction. The API server has set the field.
    fn is_restricted(self, spec: &NetworkPolicySpec) -> bool {
        let name = match self {
            Self::Ingress => "Ingress",
            Self::Egress => "Egress",
        };
        let mut types = spec.policy_types.iter().flatten();
        types.any(|restricted| restricted == name)
    }

    fn rules(self, spec: &NetworkPolicySpec) -> Vec<Rule<'_>> {
        match self {
            Self::Ingress => {
                let rules = spec.ingress.iter().flatten();
                rules
                    .map(|rule| Rule::new(rule.from.as_deref(), rule.ports.as_deref()))
                    .collect()
            }
            Self::Egress => {
                let rules = spec.egress.iter().flatten();
                rules
                    .map(|rule| Rule::new(rule.to.as_deref(), rule.ports.as_deref()))
                    .collect()
            }
        }
    }
}

impl<'c> Rule<'c> {
    fn new(peers: Option<&'c [NetworkPolicyPeer]>, ports: Option<&'c [NetworkPolicyPort]>) -> Self {
        Self {
            peers: peers.unwrap_or_default(),
            ports: ports.unwrap_or_default(),
        }
    }

    /// Returns the other ends of the connections of a pod that the rule permits.
    fn peers<'e>(&self, own: &Endpoint<'_>, endpoints: &'e [Endpoint<'e>]) -> Vec<Peer<'e>>
    where
        'c: 'e,
    {
        if self.peers.is_empty() {
            return vec![Peer::Any];
        }
        let namespace = own.pod.metadata.namespace.as_deref();
        let mut peers = Vec::new();
        for peer in self.peers {
            if let Some(block) = &peer.ip_block {
                peers.push(Peer::Block(block));
            } else {
                let selected = endpoints.iter().filter(|other| other.is_peer(peer, namespace));
                peers.extend(selected.map(Peer::Pod));
            }
        }
        peers
    }

    /// Returns the rules for the packets between a pod and a peer.
    fn matches(&self, peer: &Peer<'_>, own: &Endpoint<'_>, direction: Direction) -> Vec<String> {
        let (side, receiver) = match (direction, peer) {
            (Direction::Ingress, _) => ("saddr", Some(own)),
            (Direction::Egress, Peer::Pod(endpoint)) => ("daddr", Some(*endpoint)),
            (Direction::Egress, Peer::Any | Peer::Block(_)) => ("daddr", None),
        };
        let Some(address) = peer.matches(side) else {
            return Vec::new();
        };
        if self.ports.is_empty() {
            return vec![format!("{address}return")];
        }
        let ports = self.ports.iter().filter_map(|port| match_port(port, receiver));
        ports.map(|port| format!("{address}{port}return")).collect()
    }
}

impl Peer<'_> {
    /// Returns the match of its addresses; `None` if it has none of IPv4, the only one of the pods.
    fn matches(&self, side: &str) -> Option<String> {
        match self {
            Self::Any => Some(String::new()),
            Self::Pod(endpoint) => Some(format!("ip {side} {} ", endpoint.address)),
            Self::Block(block) if block.cidr.contains(':') => None,
            Self::Block(block) => {
                let except = block.except.iter().flatten();
                let except: String = except
                    .flat_map(|range| ["ip ", side, " != ", range.as_str(), " "])
                    .collect();
                Some(format!("ip {side} {} {except}", block.cidr))
            }
        }
    }
}

/// Returns the match of a port; `None` if the receiver declares none of this name, or the rule does not select pods.
fn match_port(port: &NetworkPolicyPort, receiver: Option<&Endpoint<'_>>) -> Option<String> {
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let number = match &port.port {
        None => return Some(format!("meta l4proto {} ", protocol.to_lowercase())),
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => receiver?.port(name, protocol)?,
    };
    let range = port.end_port.map(|end| format!("-{end}")).unwrap_or_default();
    Some(format!("{} dport {number}{range} ", protocol.to_lowercase()))
}

/// Returns whether a selector selects an object with these labels. The API server has checked it. An absent one selects all.
fn selects(selector: Option<&LabelSelector>, labels: &BTreeMap<String, String>) -> bool {
    let Some(selector) = selector else {
        return true;
    };
    Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
}

/// Returns a chain that drops what these rules do not permit.
fn chain(name: &str, permitted: &[String]) -> String {
    format!("chain {name} {{\n{}drop\n}}\n", lines(permitted))
}

/// Returns a chain through which the kernel sends packets. Answers belong to a connection that was permitted.
fn base_chain(hook: &str, rules: &[String]) -> String {
    format!(
        "chain {hook} {{\ntype filter hook {hook} priority filter; policy accept;\nct state established,related accept\n{}}}\n",
        lines(rules)
    )
}

fn lines(rules: &[String]) -> String {
    rules.iter().flat_map(|rule| [rule.as_str(), "\n"]).collect()
}

#[cfg(test)]
mod tests;
