//! Roles, and requests of a user in them. The user is impersonated; the name is one of the suite.

use serde_json::{Value, json};

use crate::case::{Case, Step, case, get, merge, post, put, until};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";
const GROUP: &str = "rbac.authorization.k8s.io";

fn role(name: &str, rules: &Value) -> Value {
    json!({ "apiVersion": format!("{GROUP}/v1"), "kind": "Role", "metadata": { "name": name }, "rules": rules })
}

fn binding(name: &str, role: &Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "RoleBinding", "metadata": { "name": name },
        "roleRef": role, "subjects": [{ "kind": "User", "name": "sluice-suite" }],
    })
}

/// Sends the request as the user of the suite.
fn as_user(step: Step) -> Step {
    match step {
        Step::Send {
            method,
            path,
            mut headers,
            body,
        } => {
            headers.push(("impersonate-user", "sluice-suite"));
            Step::Send {
                method,
                path,
                headers,
                body,
            }
        }
        other => other,
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = objects();
    cases.extend(users());
    cases
}

fn objects() -> Vec<Case> {
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] }]);
    let to = |name: &str| json!({ "kind": "Role", "name": name });
    let invalid = |rules: &Value| post(ROLES, &role("r", rules));
    vec![
        case(
            "role: made and read",
            [
                post(ROLES, &role("r", &rules)),
                get(&format!("{ROLES}/r")),
                get(ROLES),
            ],
        ),
        case(
            "role: created by an update",
            [
                put(&format!("{ROLES}/r"), &role("r", &rules)),
                put(&format!("{ROLES}/r"), &role("r", &rules)),
                put(&format!("{BINDINGS}/b"), &binding("b", &to("r"))),
            ],
        ),
        case(
            "field selector: roles by namespace and by rules",
            [
                post(ROLES, &role("r", &rules)),
                get(&format!("{ROLES}?fieldSelector=metadata.namespace%3D{{ns}}")),
                get(&format!("{ROLES}?fieldSelector=rules%3Dx")),
                get(&format!("{CLUSTER_ROLES}?fieldSelector=metadata.namespace%3Dx")),
            ],
        ),
        case(
            "role: invalid rules",
            [
                invalid(&json!([{ "apiGroups": [""], "resources": ["a"], "verbs": [] }])),
                invalid(&json!([{ "resources": ["a"], "verbs": ["get"] }])),
                invalid(&json!([{ "nonResourceURLs": ["/a"], "verbs": ["get"] }])),
                post(
                    CLUSTER_ROLES,
                    &json!({ "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole",
                        "metadata": { "name": "a/b" }, "rules": rules }),
                ),
            ],
        ),
        case(
            "role binding: defaults, and its role is immutable",
            [
                post(BINDINGS, &binding("b", &to("r"))),
                get(&format!("{BINDINGS}/b")),
                merge(
                    &format!("{BINDINGS}/b"),
                    &json!({ "roleRef": { "apiGroup": GROUP, "kind": "Role", "name": "other" } }),
                ),
            ],
        ),
        case(
            "role binding: invalid",
            [
                post(BINDINGS, &binding("b", &json!({ "kind": "Group", "name": "r" }))),
                post(BINDINGS, &binding("b", &json!({ "kind": "Role", "name": "" }))),
            ],
        ),
    ]
}

fn users() -> Vec<Case> {
    let rule = |resource: &str, verbs: &[&str]| json!({ "apiGroups": ["", GROUP], "resources": [resource], "verbs": verbs });
    let own = json!([rule("configmaps", &["get", "list"]), rule("roles", &["create"])]);
    let wider = json!([rule("secrets", &["get", "list"])]);
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" } });
    vec![
        case(
            "user: what a role permits",
            [
                post(ROLES, &role("own", &own)),
                post(
                    BINDINGS,
                    &binding("own", &json!({ "kind": "Role", "name": "own" })),
                ),
                post(MAPS, &map),
                until(200, as_user(get(&format!("{MAPS}/m")))),
                as_user(post(MAPS, &map)),
                as_user(get(&format!("{MAPS}/m?watch=true"))),
                as_user(get("/api/v1/configmaps")),
                as_user(get("/metrics")),
            ],
        ),
        case(
            "user: a role with more than the user has",
            [
                post(ROLES, &role("own", &own)),
                post(
                    BINDINGS,
                    &binding("own", &json!({ "kind": "Role", "name": "own" })),
                ),
                until(404, as_user(get(&format!("{MAPS}/m")))),
                as_user(post(ROLES, &role("wider", &wider))),
            ],
        ),
    ]
}
