//! The default roles of kube-apiserver (`plugin/pkg/auth/authorizer/rbac/bootstrappolicy`), as far as their kinds are served.

use serde_json::{Value, json};

use super::{AUTHENTICATED, GROUP};

/// The annotation by which a user keeps the server from updating a default role or binding: `"false"`.
pub(super) const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

/// Returns the roles and bindings that a new server has.
pub(crate) fn default_roles() -> Vec<Value> {
    let mut roles = vec![
        role(
            "cluster-admin",
            json!([
                {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
                {"nonResourceURLs": ["*"], "verbs": ["*"]},
            ]),
        ),
        role("system:discovery", discovery()),
        role("system:basic-user", basic_user()),
        role("system:auth-delegator", auth_delegator()),
    ];
    for (name, to, rules) in [
        ("admin", None, admin()),
        ("edit", Some("admin"), edit()),
        ("view", Some("edit"), view()),
    ] {
        let mut aggregated = labelled("ClusterRole", name);
        let selector = json!({"matchLabels": {aggregate_to(name): "true"}});
        aggregated["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
        if let Some(to) = to {
            aggregated["metadata"]["labels"][aggregate_to(to)] = "true".into();
        }
        let mut source = role(&format!("system:aggregate-to-{name}"), rules);
        source["metadata"]["labels"][aggregate_to(name)] = "true".into();
        roles.extend([aggregated, source]);
    }
    roles.extend([
        binding("cluster-admin", "system:masters"),
        binding("system:discovery", AUTHENTICATED),
        binding("system:basic-user", AUTHENTICATED),
    ]);
    roles
}

fn discovery() -> Value {
    let urls = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    json!([{"nonResourceURLs": urls, "verbs": ["get"]}])
}

fn basic_user() -> Value {
    let access = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
    json!([
        {"apiGroups": ["authorization.k8s.io"], "resources": access, "verbs": ["create"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
    ])
}

/// Returns the rules of a server that asks this API about its clients.
fn auth_delegator() -> Value {
    json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ])
}

fn read_write() -> Vec<&'static str> {
    READ.into_iter().chain(WRITE).collect()
}

fn admin() -> Value {
    let verbs = read_write();
    json!([
        {"apiGroups": ["authorization.k8s.io"], "resources": ["localsubjectaccessreviews"], "verbs": ["create"]},
        {"apiGroups": [GROUP], "resources": ["rolebindings", "roles"], "verbs": verbs},
    ])
}

fn edit() -> Value {
    let verbs = read_write();
    json!([
        {"apiGroups": [""], "resources": ["secrets"], "verbs": READ},
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]},
        {"apiGroups": [""], "resources": ["configmaps", "events", "secrets", "serviceaccounts"], "verbs": WRITE},
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs},
    ])
}

fn view() -> Value {
    let resources = [
        "configmaps",
        "events",
        "namespaces",
        "namespaces/status",
        "serviceaccounts",
    ];
    json!([
        {"apiGroups": [""], "resources": resources, "verbs": READ},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": READ},
    ])
}

fn aggregate_to(role: &str) -> String {
    format!("{GROUP}/aggregate-to-{role}")
}

fn labelled(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": {
            "name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}, "annotations": {AUTO_UPDATE: "true"},
        },
    })
}

fn role(name: &str, rules: Value) -> Value {
    let mut role = labelled("ClusterRole", name);
    role["rules"] = rules;
    role
}

/// Binds the ClusterRole of this name to a group.
fn binding(name: &str, group: &str) -> Value {
    let mut binding = labelled("ClusterRoleBinding", name);
    binding["roleRef"] = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": name});
    binding["subjects"] = json!([{"apiGroup": GROUP, "kind": "Group", "name": group}]);
    binding
}
