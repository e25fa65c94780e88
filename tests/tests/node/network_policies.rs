//! The network policies of `multi-tenant`, of the components `repo-controller` and `flux-network-policy` and of the sample of a tenant, on a
//! node that enforces them before the controllers start: connections from pods, with the policies and without them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::ListParams;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_harness::node::{Node, PodNetwork};
use sluice_harness::skip::without_cluster;
use sluice_tests::scenario::TIMEOUT;
use sluice_tests::wait_for_definitions;

use crate::attacks::new_tenant;
use crate::faults::pods::container_id;
use crate::install::{Installation, NAMESPACE, config};

/// The namespace of a tenant with the policy of the sample.
const TENANT: &str = "network-a";
/// The namespace of a tenant whose policy excludes the addresses of pods too.
const STRICT: &str = "network-b";
/// A namespace without policies.
const OBSERVERS: &str = "observers";
/// The namespace of Flux, with a pod in place of its source-controller.
const FLUX: &str = "flux-system";
/// The account of the pods from which connections start. It has no role.
const ACCOUNT: &str = "caller";
/// The addresses of pods on the node, which are those of its network from 10.244.0.10 on.
const PODS: [&str; 5] = [
    "10.244.0.8/29",
    "10.244.0.16/28",
    "10.244.0.32/27",
    "10.244.0.64/26",
    "10.244.0.128/25",
];
/// Maximum time for the answer to a connection: a lost packet is repeated after a second.
const ANSWER: Duration = Duration::from_secs(2);
/// Pause between two rounds of connections.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Key and value of a label.
type Label = (&'static str, &'static str);

/// The label of the pods of runs.
const RUN: Option<Label> = Some(("app.kubernetes.io/name", "tf-runner"));
/// The pods beside the controllers: namespace, name and label.
const CALLERS: [(&str, &str, Option<Label>); 6] = [
    (NAMESPACE, "consumer", None),
    (OBSERVERS, "observer", None),
    (FLUX, "flux-sources", Some(("app", "source-controller"))),
    (TENANT, "run", RUN),
    (TENANT, "neighbour", None),
    (STRICT, "strict-run", RUN),
];

/// The connections of a pod that policies permit, and those that they deny: 9090 is for artifacts, 8080 for metrics and 9440 for probes.
/// Nothing listens in the pods of [`CALLERS`] and on `metadata`, where a cloud has the metadata service of a node.
struct Connections {
    from: &'static str,
    permitted: &'static [&'static str],
    denied: &'static [&'static str],
}

const CONNECTIONS: &[Connections] = &[
    // A consumer in the namespace of the controllers.
    Connections {
        from: "consumer",
        permitted: &[
            "source-controller:9090",
            "source-service:80",
            "source-controller:8080",
            "tf-controller:8080",
            "repo-controller:8080",
            "neighbour:70",
        ],
        denied: &[
            "source-controller:9440",
            "tf-controller:9440",
            "repo-controller:9440",
            "flux-sources:9090",
            "run:70",
            "strict-run:70",
        ],
    },
    // Prometheus in a namespace of its own, or any other pod.
    Connections {
        from: "observer",
        permitted: &[
            "source-controller:8080",
            "tf-controller:8080",
            "repo-controller:8080",
            "api-service:443",
            "metadata:80",
        ],
        denied: &[
            "source-controller:9090",
            "source-service:80",
            "source-controller:9440",
            "tf-controller:9440",
            "repo-controller:9440",
            "flux-sources:9090",
            "run:70",
            "strict-run:70",
        ],
    },
    Connections {
        from: "run",
        permitted: &[
            "source-controller:9090",
            "source-service:80",
            "source-controller:8080",
            "tf-controller:8080",
            "node:6443",
            "api-service:443",
            "node:53",
            "neighbour:70",
            "observer:70",
            "flux-sources:9090",
        ],
        denied: &[
            "source-controller:9440",
            "tf-controller:9440",
            "flux-sources:8080",
            "strict-run:70",
            "metadata:80",
        ],
    },
    // Another pod of the tenant.
    Connections {
        from: "neighbour",
        permitted: &["source-controller:8080", "api-service:443", "metadata:80"],
        denied: &[
            "source-controller:9090",
            "source-service:80",
            "flux-sources:9090",
            "run:70",
        ],
    },
    Connections {
        from: "strict-run",
        permitted: &[
            "source-controller:9090",
            "source-service:80",
            "node:6443",
            "api-service:443",
            "node:53",
        ],
        denied: &[
            "source-controller:8080",
            "tf-controller:8080",
            "flux-sources:9090",
            "neighbour:70",
            "observer:70",
            "run:70",
            "metadata:80",
        ],
    },
];

fn caller(namespace: &str, name: &str, label: Option<(&str, &str)>) -> Value {
    let labels: BTreeMap<_, _> = label.into_iter().collect();
    let security = json!({ "allowPrivilegeEscalation": false, "runAsNonRoot": true,
        "capabilities": { "drop": ["ALL"] }, "seccompProfile": { "type": "RuntimeDefault" } });
    json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace, "labels": labels },
        "spec": {
            "serviceAccountName": ACCOUNT,
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "pause", "image": "localhost/pause:1", "imagePullPolicy": "Never",
                "ports": [{ "name": "http", "containerPort": 9090 }], "securityContext": security }],
        } })
}

/// Creates the namespaces and the pods from which connections start.
async fn start_callers(installation: &Installation<'_>) {
    let node = installation.node;
    for name in [OBSERVERS, FLUX] {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        node.apply(&namespace.to_string()).await.unwrap();
    }
    let component = config("components/flux-network-policy");
    let component =
        json!({ "namespace": FLUX, "components": [installation.relative(Path::new(&component))] });
    installation
        .apply_kustomization("flux-network-policy", &component)
        .await;
    installation.apply_sample(STRICT).await;
    // As the comment of the sample advises.
    let block = "/spec/egress/2/to/0/ipBlock";
    let except = [&["169.254.169.254/32"], &PODS[..]].concat();
    let patch = json!([
        { "op": "test", "path": format!("{block}/cidr"), "value": "0.0.0.0/0" },
        { "op": "replace", "path": format!("{block}/except"), "value": except },
    ]);
    let patch = patch.to_string();
    let patch = ["patch", "networkpolicy", "tf-runner", "--type=json", "-p", &patch];
    installation
        .kubectl(&[&["-n", STRICT], &patch[..]].concat())
        .await;
    for namespace in [NAMESPACE, OBSERVERS, FLUX, TENANT, STRICT] {
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": ACCOUNT, "namespace": namespace } });
        node.apply(&account.to_string()).await.unwrap();
    }
    for (namespace, name, label) in CALLERS {
        let pod = caller(namespace, name, label);
        node.apply(&pod.to_string()).await.unwrap();
    }
}

fn address_of(pod: &Pod) -> Option<IpAddr> {
    pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}

/// The pods from which connections start, and the addresses to which they go.
struct Network {
    callers: BTreeMap<&'static str, PodNetwork>,
    addresses: BTreeMap<&'static str, IpAddr>,
}

impl Network {
    /// Waits until the pods have addresses.
    async fn of(node: &Node) -> Self {
        let client = node.client().await.unwrap();
        let mut network = Self {
            callers: BTreeMap::new(),
            addresses: BTreeMap::new(),
        };
        for (namespace, name, _) in CALLERS {
            let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
            let has_started = |pod: Option<&Pod>| {
                pod.is_some_and(|pod| container_id(pod).is_some() && address_of(pod).is_some())
            };
            let started = tokio::time::timeout(TIMEOUT, await_condition(pods, name, has_started)).await;
            let pod = started.unwrap().unwrap().unwrap();
            let caller = node.pod_network(container_id(&pod).unwrap()).unwrap();
            network.callers.insert(name, caller);
            network.addresses.insert(name, address_of(&pod).unwrap());
        }
        network.add_controllers(&client).await;
        network.add_services(&client).await;
        network
    }

    /// Adds the addresses of the controllers and of their node.
    async fn add_controllers(&mut self, client: &Client) {
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        for app in ["source-controller", "tf-controller", "repo-controller"] {
            let selected = ListParams::default().labels(&format!("app={app}"));
            let pods = pods.list(&selected).await.unwrap().items;
            assert_eq!(pods.len(), 1, "{app}");
            self.addresses.insert(app, address_of(&pods[0]).unwrap());
            let status = pods[0].status.as_ref().unwrap();
            let node: IpAddr = status.host_ip.as_ref().unwrap().parse().unwrap();
            self.addresses.insert("node", node);
        }
        let metadata = IpAddr::from([169, 254, 169, 254]);
        self.addresses.insert("metadata", metadata);
    }

    async fn add_services(&mut self, client: &Client) {
        let services = [
            ("source-service", NAMESPACE, "source-controller"),
            ("api-service", "default", "kubernetes"),
        ];
        for (key, namespace, name) in services {
            let services: Api<Service> = Api::namespaced(client.clone(), namespace);
            let spec = services.get(name).await.unwrap().spec.unwrap();
            let address: IpAddr = spec.cluster_ip.unwrap().parse().unwrap();
            self.addresses.insert(key, address);
        }
    }

    /// Makes a connection. Returns how it differs from what is expected.
    async fn fault(&self, from: &str, to: &str, is_expected: bool) -> Option<String> {
        let (host, port) = to.split_once(':').unwrap();
        let address = SocketAddr::new(self.addresses[host], port.parse().unwrap());
        match self.callers[from].connect(address, ANSWER).await {
            Ok(is_answered) if is_answered == is_expected => None,
            Ok(true) => Some(format!("{from} reaches {to}")),
            Ok(false) => Some(format!("{from} does not reach {to} ({address})")),
            Err(error) => Some(format!("{from} to {to} ({address}): {error}")),
        }
    }

    /// Makes all connections at once. Returns those that differ from what is expected.
    async fn faults(&self, is_enforced: bool) -> Vec<String> {
        let connections = CONNECTIONS.iter().flat_map(|connections| {
            let from = connections.from;
            let permitted = connections.permitted.iter().map(move |to| (from, *to, true));
            let denied = connections.denied.iter();
            permitted.chain(denied.map(move |to| (from, *to, !is_enforced)))
        });
        let results = connections.map(|(from, to, is_expected)| self.fault(from, to, is_expected));
        join_all(results).await.into_iter().flatten().collect()
    }

    /// Repeats all connections until each is as expected: a policy has an effect a moment after its change.
    async fn check(&self, installation: &Installation<'_>, when: &str, is_enforced: bool) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let faults = self.faults(is_enforced).await;
            if faults.is_empty() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{when}: {faults:#?}\n{}",
                installation.describe_pods().await
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Returns the policies of a namespace as they can be applied again, and asserts that these are all.
async fn policies(installation: &Installation<'_>, namespace: &str, names: &[&str]) -> Vec<Value> {
    let list = ["-n", namespace, "get", "networkpolicies", "-ojson"];
    let list: Value = serde_json::from_str(&installation.kubectl(&list).await).unwrap();
    let items = list["items"].as_array().unwrap();
    let found: Vec<_> = items.iter().map(|item| &item["metadata"]["name"]).collect();
    assert_eq!(found, names, "{namespace}");
    let policy = |item: &Value| {
        json!({ "apiVersion": item["apiVersion"], "kind": item["kind"], "spec": item["spec"],
            "metadata": { "name": item["metadata"]["name"], "namespace": namespace } })
    };
    items.iter().map(policy).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_permit_what_runs_and_consumers_need_and_nothing_else() {
    if without_cluster().unwrap() {
        return;
    }
    let installation = Installation::multi_tenant().await;
    let node = installation.node;
    let definition = config("components/repo-controller/crd");
    installation
        .kubectl(&["apply", "--server-side", "-k", &definition])
        .await;
    wait_for_definitions(node.client().await.unwrap()).await.unwrap();
    installation.add_component("repo-controller").await;
    let tenant = new_tenant(installation, TENANT).await;
    tenant.add_stack("net", &json!({ "approvePlan": "auto" })).await;
    start_callers(installation).await;
    // The kubelet reaches the probes.
    installation.wait_until_available().await;
    let network = Network::of(node).await;
    network.check(installation, "with the policies", true).await;
    // A run downloads its artifact, and reaches name servers and the API.
    let ready = [
        "-n",
        TENANT,
        "wait",
        "--for=condition=Ready",
        "terraform/net",
        "--timeout=120s",
    ];
    installation.kubectl(&ready).await;

    let of_controllers = ["repo-controller", "source-controller", "tf-controller"];
    let mut shipped = Vec::new();
    for (namespace, names) in [
        (NAMESPACE, of_controllers.as_slice()),
        (FLUX, &["source-controller-runs"]),
        (TENANT, &["tf-runner"]),
        (STRICT, &["tf-runner"]),
    ] {
        shipped.extend(policies(installation, namespace, names).await);
        let delete = ["-n", namespace, "delete", "networkpolicies", "--all"];
        installation.kubectl(&delete).await;
    }
    network.check(installation, "without policies", false).await;
    for policy in shipped {
        node.apply(&policy.to_string()).await.unwrap();
    }
    network.check(installation, "with the policies again", true).await;
}
