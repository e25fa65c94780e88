//! Writes of roles and bindings by users.

use kube::Client;
use serde_json::{Value, json};

use super::{BINDINGS, ROLES, Served, binding, forbidden, rule};
use crate::definitions::DEFINITIONS;
use crate::fixture::{call, ok, send, server};

const CLUSTER_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// Creates an account that may read ConfigMaps, and write roles and bindings.
async fn owner(served: &Served) -> Client {
    let all = ["get", "list", "create", "update", "patch"];
    let rules = json!([
        rule("", "configmaps", &["get"]),
        rule("rbac.authorization.k8s.io", "roles", &all),
        rule("rbac.authorization.k8s.io", "rolebindings", &all),
    ]);
    served.account("owner", &rules).await
}

fn role(name: &str, verb: &str) -> Value {
    json!({"metadata": {"name": name}, "rules": [rule("", "configmaps", &[verb])]})
}

#[tokio::test]
async fn no_user_writes_a_role_with_more_rules_than_the_user_has() {
    let served = Served::start().await;
    let client = owner(&served).await;
    ok(&client, "POST", ROLES, Some(&role("reader", "get"))).await;
    let message = forbidden(&client, "POST", ROLES, Some(&role("writer", "create"))).await;
    assert!(
        message.ends_with("is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"create\"]}"),
        "{message}"
    );
    let wider = json!({"rules": [rule("", "configmaps", &["get", "delete"])]});
    forbidden(&client, "PATCH", &format!("{ROLES}/reader"), Some(&wider)).await;
    forbidden(
        &client,
        "PUT",
        &format!("{ROLES}/reader"),
        Some(&role("reader", "delete")),
    )
    .await;
    let applied = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "applied"},
        "rules": [rule("", "secrets", &["get"])]});
    let headers = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{ROLES}/applied?fieldManager=t");
    let response = send(
        &client,
        "PATCH",
        &path,
        &headers,
        applied.to_string().into_bytes(),
    )
    .await;
    assert_eq!(response.code, 403, "{response:?}");
    served.stop().await;
}

#[tokio::test]
async fn no_user_binds_a_role_with_more_rules_than_the_user_has() {
    let served = Served::start().await;
    let client = owner(&served).await;
    ok(&served.admin, "POST", ROLES, Some(&role("reader", "get"))).await;
    let jane = json!({"kind": "User", "name": "jane"});
    ok(
        &client,
        "POST",
        BINDINGS,
        Some(&binding("b", "Role", "reader", &jane)),
    )
    .await;
    let wide = binding("c", "ClusterRole", "cluster-admin", &jane);
    forbidden(&client, "POST", BINDINGS, Some(&wide)).await;
    forbidden(&client, "POST", CLUSTER_BINDINGS, Some(&wide)).await;
    ok(&served.admin, "POST", BINDINGS, Some(&wide)).await;
    let other =
        json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}});
    let response = call(&served.admin, "PATCH", &format!("{BINDINGS}/c"), Some(&other)).await;
    assert_eq!(response.code, 422, "roleRef is immutable: {response:?}");
    assert!(
        response.body["message"]
            .as_str()
            .unwrap()
            .contains("cannot change roleRef")
    );
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_with_a_forged_status_adds_no_version_of_roles() {
    let client = server().client();
    let name = "roles.rbac.authorization.k8s.io";
    let names = json!({"plural": "roles", "singular": "role", "kind": "Role", "listKind": "RoleList"});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "annotations": {"api-approved.kubernetes.io": "unapproved"}},
        "spec": {
            "group": "rbac.authorization.k8s.io", "scope": "Namespaced", "names": names,
            "versions": [{"name": "v2", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    ok(&client, "POST", DEFINITIONS, Some(&definition)).await;
    let status = json!({"status": {"acceptedNames": names, "conditions": [{
        "type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    ok(
        &client,
        "PATCH",
        &format!("{DEFINITIONS}/{name}/status"),
        Some(&status),
    )
    .await;
    let path = "/apis/rbac.authorization.k8s.io/v2/namespaces/default/roles";
    assert_eq!(call(&client, "GET", path, None).await.code, 404);
}
