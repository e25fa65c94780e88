//! The default roles and bindings after a restart.

use kube::Client;
use serde_json::{Value, json};
use sluice_embedded::Store;

use crate::fixture::{ok, server_on};
use crate::restart::open_when_released;

const GROUP: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn patch(client: &Client, path: &str, change: &Value) {
    ok(client, "PATCH", &format!("{GROUP}/{path}"), Some(change)).await;
}

#[tokio::test]
async fn a_start_adds_what_default_roles_and_bindings_lack() {
    const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("objects.redb");
    let own = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jane"});
    let team = json!({"matchLabels": {"team": "a"}});
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]});
    {
        let client = server_on(Store::file(&path).unwrap()).client();
        patch(
            &client,
            "clusterroles/edit",
            &json!({"aggregationRule": {"clusterRoleSelectors": [team]}}),
        )
        .await;
        patch(
            &client,
            "clusterroles/system:discovery",
            &json!({"rules": [rule]}),
        )
        .await;
        patch(
            &client,
            "clusterrolebindings/system:discovery",
            &json!({"subjects": [own]}),
        )
        .await;
        let fixed = json!({"metadata": {"annotations": {AUTO_UPDATE: "false"}}, "subjects": []});
        patch(&client, "clusterrolebindings/system:basic-user", &fixed).await;
        let binding = format!("{GROUP}/clusterrolebindings/cluster-admin");
        ok(&client, "DELETE", &binding, None).await;
        let other = json!({"metadata": {"name": "cluster-admin"}, "roleRef": {"kind": "ClusterRole", "name": "view"}});
        ok(
            &client,
            "POST",
            &format!("{GROUP}/clusterrolebindings"),
            Some(&other),
        )
        .await;
    }
    let client = server_on(open_when_released(&path).await).client();
    let get = async |path: &str| ok(&client, "GET", &format!("{GROUP}/{path}"), None).await;
    let edit = get("clusterroles/edit").await;
    let selectors = &edit["aggregationRule"]["clusterRoleSelectors"];
    let default = json!({"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}});
    assert_eq!(*selectors, json!([team, default]));
    let discovery = get("clusterroles/system:discovery").await;
    assert_eq!(discovery["rules"][0], rule, "the rule of a user remains");
    assert!(
        discovery["rules"].to_string().contains("/openapi/*"),
        "{discovery}"
    );
    let discovery = get("clusterrolebindings/system:discovery").await;
    let subjects = &discovery["subjects"];
    assert_eq!(subjects[0], own);
    assert_eq!(subjects[1]["name"], "system:authenticated");
    let fixed = get("clusterrolebindings/system:basic-user").await;
    assert!(fixed["subjects"][0].is_null(), "{fixed}");
    let admin = get("clusterrolebindings/cluster-admin").await;
    assert_eq!(admin["roleRef"]["name"], "cluster-admin");
    assert_eq!(admin["subjects"][0]["name"], "system:masters");
}
