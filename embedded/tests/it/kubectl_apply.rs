//! `kubectl apply --server-side` and `kubectl diff --server-side`. Skipped with a message where there is no kubectl.

use crate::kubectl::KubectlFixture;

#[tokio::test(flavor = "multi_thread")]
async fn server_side_apply() {
    let Some(kubectl) = KubectlFixture::open().await else {
        return;
    };
    let manifest =
        |data: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: shared\ndata:\n{data}");
    kubectl.write("shared.yaml", &manifest("  a: one\n  b: two\n"));
    kubectl.run("apply -f shared.yaml").await;
    kubectl.write("shared.yaml", &manifest("  a: three\n"));
    // What `kubectl apply` wrote is taken over without a conflict.
    kubectl.run("apply --server-side -f shared.yaml").await;
    let data = kubectl.run("get configmap shared -o jsonpath={.data}").await;
    assert_eq!(data, r#"{"a":"three"}"#);
    let (success, output) = kubectl
        .try_run("apply --server-side --field-manager other -f shared.yaml")
        .await;
    assert!(success, "{output}");
    kubectl.write("shared.yaml", &manifest("  a: four\n"));
    let other = "apply --server-side --field-manager third -f shared.yaml";
    let (success, output) = kubectl.try_run(other).await;
    assert!(
        !success && output.contains("conflicts with \"kubectl\"") && output.contains("- .data.a"),
        "{output}"
    );
    let (_, output) = kubectl
        .try_run("diff --server-side --force-conflicts --field-manager third -f shared.yaml")
        .await;
    assert!(
        output.contains("-  a: three") && output.contains("+  a: four"),
        "{output}"
    );
    kubectl.run(&format!("{other} --force-conflicts")).await;
    let data = kubectl.run("get configmap shared -o jsonpath={.data}").await;
    assert_eq!(data, r#"{"a":"four"}"#);
}
