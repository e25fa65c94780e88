//! kubectl's commands for users. Skipped with a message where there is no kubectl.

use crate::kubectl::KubectlFixture;

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_creates_roles_accounts_and_tokens() {
    let Some(kubectl) = KubectlFixture::open().await else {
        return;
    };
    kubectl.run("create serviceaccount viewer").await;
    kubectl
        .run("create role reader --verb=get,list --resource=configmaps")
        .await;
    kubectl
        .run("create rolebinding viewer --role=reader --serviceaccount=default:viewer")
        .await;
    let bindings = kubectl.run("get rolebindings").await;
    assert!(bindings.contains("Role/reader"), "{bindings}");
    let account = "system:serviceaccount:default:viewer";
    let (allowed, _) = kubectl
        .try_run(&format!("auth can-i list configmaps --as={account}"))
        .await;
    assert!(allowed);
    let (allowed, output) = kubectl
        .try_run(&format!("auth can-i list secrets --as={account}"))
        .await;
    assert!(!allowed && output.contains("no"), "{output}");
    let token = kubectl.run("create token viewer --duration=1h").await;
    assert_eq!(token.trim().split('.').count(), 3);
    kubectl
        .run("create clusterrole all-views --aggregation-rule=rbac.authorization.k8s.io/aggregate-to-view=true")
        .await;
    assert!(kubectl.run("get clusterroles").await.contains("system:discovery"));
}
