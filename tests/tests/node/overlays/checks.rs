//! What must hold for each overlay: its pods, its requests, and its deletion.

use sluice_tests::audit::{Permission, requests};

use super::kubectl;
use crate::install::{Installation, NAMESPACE};

/// Returns the names of the cluster-wide roles and bindings of the installation.
pub(super) async fn cluster_wide_roles(installation: &Installation<'_>) -> Vec<String> {
    let kinds = "clusterroles,clusterrolebindings";
    let names = installation.kubectl(&["get", kinds, "-oname"]).await;
    assert!(names.contains("/cluster-admin"), "{names}");
    let own = names.lines().filter(|name| name.contains("sluice"));
    own.map(str::to_owned).collect()
}

/// Deletes an overlay, as a user does. Namespaces, definitions, objects and states stay, and nothing else.
pub(super) async fn delete(installation: &Installation<'_>, overlay: &str) {
    installation.kubectl(&["delete", "-k", overlay]).await;
    let kinds = "deployments,services,serviceaccounts,roles,rolebindings,networkpolicies,resourcequotas,poddisruptionbudgets,persistentvolumeclaims";
    let left = kubectl(installation, NAMESPACE, &["get", kinds, "-oname"]).await;
    assert_eq!(left, "serviceaccount/default");
    let roles = cluster_wide_roles(installation).await;
    assert!(roles.is_empty(), "{roles:?}");
    let definitions = installation.kubectl(&["get", "crd", "-oname"]).await;
    assert_eq!(
        definitions.lines().count(),
        sluice_api::crds().len(),
        "{definitions}"
    );
    // `kubectl get` fails for one that is absent.
    let kept = [
        "get",
        "terraform/net",
        "gitrepository/code",
        "secret/tfstate-default-net",
        "-oname",
    ];
    kubectl(installation, NAMESPACE, &kept).await;
}

/// The API server refuses a pod that the profile `restricted` forbids. So those of the controllers and of the runs in the namespace satisfy it.
pub(super) async fn check_pod_security(installation: &Installation<'_>) {
    let privileged = [
        "-n",
        NAMESPACE,
        "run",
        "privileged",
        "--image=sluice.invalid/none:1",
        "--privileged",
        "--dry-run=server",
    ];
    let refused = installation.try_kubectl(&privileged).await.unwrap_err();
    assert!(refused.contains("violates PodSecurity \"restricted"), "{refused}");
}

/// Asserts that the API server has refused no request of the controllers and of their runs. It may refuse only the requests for the
/// definitions: tf-controller reads them in the `OpenAPI` document then.
pub(super) async fn assert_nothing_refused(installation: &Installation<'_>) {
    for controller in ["source-controller", "tf-controller"] {
        let log = ["logs", &format!("deployment/{controller}"), "--tail=-1"];
        let log = kubectl(installation, NAMESPACE, &log).await;
        assert!(log.contains("\"msg\""), "{controller} has no log: {log}");
        let refused: Vec<_> = log.lines().filter(|line| line.contains("forbidden")).collect();
        assert!(refused.is_empty(), "{controller}: {refused:#?}");
    }
    let definitions = Permission::new("apiextensions.k8s.io/customresourcedefinitions", "get");
    let own = format!("{NAMESPACE}:");
    let requests = requests(&installation.node.audit_log().unwrap()).unwrap();
    assert!(requests.iter().any(|request| request.account.starts_with(&own)));
    let refused: Vec<_> = requests
        .iter()
        .filter(|request| request.is_refused && request.account.starts_with(&own))
        .filter(|request| request.permission != definitions)
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}
