use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn object<K: DeserializeOwned>(object: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(object).unwrap())
}

fn namespace(name: &str) -> Arc<Namespace> {
    let labels = json!({ "kubernetes.io/metadata.name": name });
    object(json!({ "metadata": { "name": name, "labels": labels } }))
}

fn pod(namespace: &str, app: &str, address: &str) -> Value {
    json!({
        "metadata": { "namespace": namespace, "name": app, "labels": { "app": app } },
        "spec": { "containers": [{ "name": "manager", "ports": [
            { "name": "http", "containerPort": 9090 },
            { "name": "http", "containerPort": 9091, "protocol": "UDP" },
        ] }] },
        "status": { "phase": "Running", "podIP": address },
    })
}

fn policy(namespace: &str, app: &str, types: &[&str], rules: &Value) -> Arc<NetworkPolicy> {
    let mut spec = rules.clone();
    spec["podSelector"] = json!({ "matchLabels": { "app": app } });
    spec["policyTypes"] = json!(types);
    object(json!({ "metadata": { "namespace": namespace, "name": app }, "spec": spec }))
}

/// Two pods in the namespace `system`, and two in `team`.
fn cluster(policies: Vec<Arc<NetworkPolicy>>) -> Cluster {
    Cluster {
        namespaces: vec![namespace("system"), namespace("team")],
        pods: vec![
            object(pod("team", "run", "10.244.0.12")),
            object(pod("system", "source", "10.244.0.10")),
            object(pod("system", "stacks", "10.244.0.11")),
            object(pod("team", "other", "10.244.0.13")),
        ],
        policies,
    }
}

/// Returns the rules of a chain.
fn chain_of<'p>(program: &'p str, name: &str) -> Vec<&'p str> {
    let start = format!("chain {name} {{\n");
    let (_, rest) = program.split_once(&start).unwrap();
    let (rules, _) = rest.split_once("\n}").unwrap();
    rules.lines().collect()
}

#[test]
fn the_program_has_a_chain_for_each_restricted_direction_of_a_pod() {
    let to_source = json!({ "to": [{
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "system" } },
        "podSelector": { "matchLabels": { "app": "source" } },
    }], "ports": [{ "port": "http", "protocol": "TCP" }] });
    let cluster = cluster(vec![policy(
        "team",
        "run",
        &["Ingress", "Egress"],
        &json!({ "egress": [to_source] }),
    )]);
    let expected = "add table ip network-policies
delete table ip network-policies
table ip network-policies {
chain egress-10.244.0.12 {
ip daddr 10.244.0.10 tcp dport 9090 return
drop
}
chain ingress-10.244.0.12 {
drop
}
chain forward {
type filter hook forward priority filter; policy accept;
ct state established,related accept
ip saddr 10.244.0.12 ip daddr != 10.244.0.12 jump egress-10.244.0.12
ip daddr 10.244.0.12 ip saddr != 10.244.0.12 jump ingress-10.244.0.12
}
chain input {
type filter hook input priority filter; policy accept;
ct state established,related accept
ip saddr 10.244.0.12 jump egress-10.244.0.12
}
}
";
    assert_eq!(cluster.program(), expected);
}

/// Checks the rules for the packets that the pod 10.244.0.10 receives, with a policy that has these `ingress`.
fn check_ingress(case: &str, ingress: &Value, expected: &[&str]) {
    let rules = json!({ "ingress": ingress });
    let program = cluster(vec![policy("system", "source", &["Ingress"], &rules)]).program();
    let expected = [expected, &["drop"]].concat();
    assert_eq!(chain_of(&program, "ingress-10.244.0.10"), expected, "{case}");
    assert!(!program.contains("egress"), "{case}: {program}");
}

#[test]
fn a_rule_permits_its_peers() {
    let runs = json!({ "namespaceSelector": {}, "podSelector": { "matchLabels": { "app": "run" } } });
    let not_runs = json!({ "namespaceSelector": {}, "podSelector": { "matchExpressions": [
        { "key": "app", "operator": "NotIn", "values": ["run"] }] } });
    let block =
        json!({ "ipBlock": { "cidr": "0.0.0.0/0", "except": ["169.254.169.254/32", "10.244.0.8/29"] } });
    let block_6 = json!({ "ipBlock": { "cidr": "::/0", "except": ["fd00:ec2::254/128"] } });
    let cases: [(&str, Value, &[&str]); 5] = [
        ("no rule", json!([]), &[]),
        ("everything", json!([{}]), &["return"]),
        (
            "the own namespace",
            json!([{ "from": [{ "podSelector": {} }] }]),
            &["ip saddr 10.244.0.10 return", "ip saddr 10.244.0.11 return"],
        ),
        (
            "pods of all namespaces by their labels",
            json!([{ "from": [runs] }, { "from": [not_runs], "ports": [{ "port": 80 }] }]),
            &[
                "ip saddr 10.244.0.10 tcp dport 80 return",
                "ip saddr 10.244.0.11 tcp dport 80 return",
                "ip saddr 10.244.0.12 return",
                "ip saddr 10.244.0.13 tcp dport 80 return",
            ],
        ),
        (
            "addresses",
            json!([{ "from": [block, block_6] }]),
            &["ip saddr 0.0.0.0/0 ip saddr != 169.254.169.254/32 ip saddr != 10.244.0.8/29 return"],
        ),
    ];
    for (case, ingress, expected) in cases {
        check_ingress(case, &ingress, expected);
    }
}

#[test]
fn a_rule_permits_its_ports() {
    let cases: [(Value, &[&str]); 6] = [
        (json!({ "port": 80 }), &["tcp dport 80 return"]),
        (json!({ "port": 80, "endPort": 90 }), &["tcp dport 80-90 return"]),
        (json!({ "protocol": "UDP" }), &["meta l4proto udp return"]),
        (json!({ "port": "http" }), &["tcp dport 9090 return"]),
        (
            json!({ "port": "http", "protocol": "UDP" }),
            &["udp dport 9091 return"],
        ),
        (json!({ "port": "healthz" }), &[]),
    ];
    for (port, expected) in cases {
        let case = port.to_string();
        check_ingress(&case, &json!([{ "ports": [port] }]), expected);
    }
}

#[test]
fn an_egress_rule_names_ports_of_the_pods_that_it_selects() {
    let mut cluster = cluster(Vec::new());
    let mut renamed = pod("system", "source", "10.244.0.10");
    renamed["spec"]["containers"][0]["ports"] = json!([{ "name": "http", "containerPort": 8080 }]);
    cluster.pods[1] = object(renamed);
    let rules = json!({ "egress": [
        { "to": [{ "namespaceSelector": {} }, { "ipBlock": { "cidr": "10.0.0.0/8" } }], "ports": [{ "port": "http" }] },
        { "ports": [{ "port": 53, "protocol": "UDP" }, { "port": "http" }] },
    ] });
    cluster.policies = vec![policy("team", "run", &["Egress"], &rules)];
    let expected = [
        "ip daddr 10.244.0.10 tcp dport 8080 return",
        "ip daddr 10.244.0.11 tcp dport 9090 return",
        "ip daddr 10.244.0.12 tcp dport 9090 return",
        "ip daddr 10.244.0.13 tcp dport 9090 return",
        "udp dport 53 return",
        "drop",
    ];
    assert_eq!(chain_of(&cluster.program(), "egress-10.244.0.12"), expected);
}

/// The address of a pod that has ended may be another pod's.
#[test]
fn pods_without_an_address_of_their_own_have_no_rules() {
    let ended = |phase: &str| {
        let mut pod = pod("system", "source", "10.244.0.10");
        pod["status"]["phase"] = json!(phase);
        pod
    };
    let mut on_host = pod("system", "source", "10.244.0.1");
    on_host["spec"]["hostNetwork"] = json!(true);
    let mut pending = pod("system", "source", "10.244.0.10");
    pending["status"] = json!({ "phase": "Pending" });
    for without in [ended("Succeeded"), ended("Failed"), on_host, pending] {
        let rules = json!({ "ingress": [{ "from": [{ "podSelector": {} }] }] });
        let mut cluster = cluster(vec![
            policy("system", "source", &["Ingress"], &rules),
            policy("system", "stacks", &["Ingress"], &rules),
        ]);
        cluster.pods[1] = object(without);
        let program = cluster.program();
        let expected = ["ip saddr 10.244.0.11 return", "drop"];
        assert_eq!(chain_of(&program, "ingress-10.244.0.11"), expected);
        assert!(
            !program.contains("10.244.0.10") && !program.contains("10.244.0.1 "),
            "{program}"
        );
    }
}
