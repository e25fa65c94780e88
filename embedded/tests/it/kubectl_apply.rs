//! `kubectl apply` with `--server-side` and `--prune`, `kubectl diff`, and deletion with its options. Skipped with a message where
//! there is no kubectl.

use crate::kubectl::KubectlFixture;

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies_and_compares_on_the_server_side() {
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

#[tokio::test(flavor = "multi_thread")]
async fn pruned_objects_are_of_kinds_that_are_served() {
    let Some(kubectl) = KubectlFixture::open().await else {
        return;
    };
    let map = |name: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{set: x}}}}\n")
    };
    kubectl.write("set.yaml", &format!("{}---\n{}", map("a"), map("b")));
    kubectl.run("apply -f set.yaml").await;
    kubectl.write("set.yaml", &map("a"));
    // Without the list, kubectl needs Endpoints, Pods and other kinds.
    let prune = "apply -f set.yaml --prune -l set=x";
    let (success, output) = kubectl.try_run(prune).await;
    assert!(!success && output.contains("no matches for kind"), "{output}");
    let output = kubectl
        .run(&format!("{prune} --prune-allowlist core/v1/ConfigMap"))
        .await;
    assert!(output.contains("configmap/b pruned"), "{output}");
    let left = kubectl.run("get configmaps -l set=x -o name").await;
    assert_eq!(left, "configmap/a\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_in_chunks_by_field_and_deletion_without_dependents() {
    let Some(kubectl) = KubectlFixture::open().await else {
        return;
    };
    for name in ["a", "b", "c"] {
        kubectl.run(&format!("create configmap {name}")).await;
    }
    let names = kubectl.run("get configmaps --chunk-size=1 -o name").await;
    assert_eq!(names, "configmap/a\nconfigmap/b\nconfigmap/c\n");
    let selected = kubectl
        .run("get configmaps --field-selector metadata.name!=b -o name")
        .await;
    assert_eq!(selected, "configmap/a\nconfigmap/c\n");
    let uid = kubectl.run("get configmap a -o jsonpath={.metadata.uid}").await;
    let owner = format!(
        "{{\"metadata\":{{\"ownerReferences\":[{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"name\":\"a\",\"uid\":\"{uid}\"}}]}}}}"
    );
    kubectl.run(&format!("patch configmap b -p {owner}")).await;
    kubectl
        .run("delete configmap a --cascade=orphan --timeout=30s")
        .await;
    let owners = kubectl
        .run("get configmap b -o jsonpath={.metadata.ownerReferences}")
        .await;
    assert_eq!(owners, "");
    let dry = kubectl.run("delete configmap b --dry-run=server").await;
    assert!(dry.contains("(server dry run)"), "{dry}");
    kubectl
        .run("delete configmaps --field-selector metadata.name=b")
        .await;
    assert_eq!(kubectl.run("get configmaps -o name").await, "configmap/c\n");
}
