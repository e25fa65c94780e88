//! Sources of other controllers and other namespaces: only their artifact is read, and only where it is allowed.

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::reference::CrossNamespace;

use crate::artifacts::{digest, pack};
use crate::environment::{NAMESPACE, SOURCE, TestEnvironment};
use crate::observe::{condition, pending};

const MODULE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

/// Returns a minimal definition.
fn definition(kind: &str, plural: &str, version: &str) -> Value {
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.source.toolkit.fluxcd.io") },
        "spec": { "group": "source.toolkit.fluxcd.io", "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List") },
            "versions": [{ "name": version, "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": any, "status": any } } } }] } })
}

fn resource(kind: &str, plural: &str, version: &str) -> ApiResource {
    let kinds = GroupVersionKind::gvk("source.toolkit.fluxcd.io", version, kind);
    ApiResource::from_gvk_with_plural(&kinds, plural)
}

/// Publishes a module as the artifact of a source.
async fn publish(env: &TestEnvironment, resource: &ApiResource, revision: &str, module: &str) {
    let api: Api<DynamicObject> = Api::namespaced_with(env.client.clone(), NAMESPACE, resource);
    if api.get_opt(SOURCE).await.unwrap().is_none() {
        let mut object = DynamicObject::new(SOURCE, resource);
        object.data = json!({ "spec": { "interval": "1h" } });
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    let bytes = pack(&[("main.tf", module)]);
    let file = format!(
        "{}.tar.gz",
        revision.replace(|c: char| !c.is_ascii_alphanumeric(), "-")
    );
    let status = json!({ "status": { "artifact": { "digest": digest(&bytes), "lastUpdateTime": "2026-01-01T00:00:00Z",
        "path": file, "revision": revision, "size": bytes.len(), "url": format!("{}/{file}", env.artifacts.url) } } });
    env.artifacts.put(&file, bytes);
    api.patch_status(SOURCE, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn buckets_and_oci_repositories_are_read_in_any_served_version() {
    let definitions = [
        definition("Bucket", "buckets", "v1beta2"),
        definition("OCIRepository", "ocirepositories", "v1"),
    ];
    let mut env = TestEnvironment::with_definitions(&definitions).await;
    env.start(4).await;
    let bucket = resource("Bucket", "buckets", "v1beta2");
    let images = resource("OCIRepository", "ocirepositories", "v1");
    let from = |kind: &str| json!({ "sourceRef": { "kind": kind, "name": SOURCE }, "approvePlan": "" });
    env.stack("bucket", from("Bucket")).await;
    env.stack("image", from("OCIRepository")).await;
    let missing = env.wait_ready("bucket", "False ArtifactFailed").await;
    assert!(
        condition(&missing, "Ready").contains("Bucket.source.toolkit.fluxcd.io \"code\" not found"),
        "{}",
        condition(&missing, "Ready")
    );
    let hash = "822c3dd335b6bd47ee1a6f83a0d4a4f1b6d6f7d8e0c3f1a9b2c4d5e6f7a8b9c0";
    publish(&env, &bucket, hash, MODULE).await;
    publish(
        &env,
        &images,
        &format!("v4.38.0@sha256:6033f3b9fb{}", "0".repeat(54)),
        MODULE,
    )
    .await;
    let planned = env
        .wait_ready("image", "Unknown TerraformPlannedWithChanges")
        .await;
    let id = pending(&planned);
    assert!(id.starts_with("plan-v4.38.0-6033f3b9fb-"), "{id}");
    let planned = env
        .wait_ready("bucket", "Unknown TerraformPlannedWithChanges")
        .await;
    let id = pending(&planned);
    assert!(id.starts_with("plan-822c3dd335-"), "{id}");
    for name in ["bucket", "image"] {
        env.edit(name, json!({ "approvePlan": "auto" })).await;
        env.wait_ready(name, "True TerraformAppliedSucceed").await;
    }

    // The watch reports a new artifact: the interval is an hour.
    let next = "a".repeat(64);
    publish(&env, &bucket, &next, &MODULE.replace("\"x\"", "\"y\"")).await;
    env.wait_for("bucket", "the new revision applied", |stack| {
        stack
            .status
            .as_ref()
            .is_some_and(|status| status.last_applied_revision == next)
    })
    .await;

    // It also reports other bytes under the same revision, as of a moved tag.
    publish(&env, &bucket, &next, &MODULE.replace("\"x\"", "\"z\"")).await;
    env.wait_run("bucket", "a run for the other bytes", |run| {
        run.spec.source.digest == digest(&pack(&[("main.tf", &MODULE.replace("\"x\"", "\"z\""))]))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_without_a_definition_is_reported_and_a_missing_source_awaited() {
    let env = TestEnvironment::new().await;
    for kind in ["Bucket", "OCIRepository"] {
        let name = kind.to_lowercase();
        env.stack(&name, json!({ "sourceRef": { "kind": kind, "name": "none" } }))
            .await;
        let failed = env.wait_ready(&name, "False ArtifactFailed").await;
        let text = condition(&failed, "Ready");
        assert!(
            text.contains(&format!("the API serves no {kind} of source.toolkit.fluxcd.io")),
            "{text}"
        );
        assert_eq!(condition(&failed, "Stalled"), "");
    }
    env.stack("git", json!({})).await;
    let failed = env.wait_ready("git", "False ArtifactFailed").await;
    assert!(
        condition(&failed, "Ready").contains("GitRepository.source.toolkit.fluxcd.io \"code\" not found"),
        "{}",
        condition(&failed, "Ready")
    );
    env.commit("a", &[("main.tf", MODULE)]).await;
    env.wait_ready("git", "True TerraformAppliedSucceed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_in_another_namespace_is_denied_until_the_flags_allow_it() {
    let mut env = TestEnvironment::without_controller().await;
    env.start(4).await;
    let other: Namespace = serde_json::from_value(json!({ "metadata": { "name": "other" } })).unwrap();
    Api::all(env.client.clone())
        .create(&PostParams::default(), &other)
        .await
        .unwrap();
    let revision = env.commit("a", &[("main.tf", MODULE)]).await;
    let stack = json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform", "metadata": { "name": "net" },
        "spec": { "interval": "1h", "approvePlan": "auto",
            "sourceRef": { "kind": "GitRepository", "name": SOURCE, "namespace": NAMESPACE } } });
    let stacks: Api<sluice_api::terraform::Terraform> = Api::namespaced(env.client.clone(), "other");
    stacks
        .create(&PostParams::default(), &serde_json::from_value(stack).unwrap())
        .await
        .unwrap();
    let wait_for = async |beginning: &'static str| {
        let met = kube::runtime::wait::await_condition(
            stacks.clone(),
            "net",
            move |stack: Option<&sluice_api::terraform::Terraform>| {
                stack.is_some_and(|stack| condition(stack, "Ready").starts_with(beginning))
            },
        );
        tokio::time::timeout(crate::environment::TIMEOUT, met)
            .await
            .unwrap()
            .unwrap()
            .unwrap()
    };
    let denied = wait_for("False AccessDenied").await;
    assert_eq!(
        condition(&denied, "Ready"),
        "False AccessDenied cannot access team/code, cross-namespace references have been disabled"
    );
    assert!(condition(&denied, "Stalled").starts_with("True AccessDenied"));
    env.stop().await;
    env.cross_namespace = CrossNamespace::Allowed;
    env.start(4).await;
    let applied = wait_for("True TerraformAppliedSucceed").await;
    assert_eq!(applied.status.unwrap().last_applied_revision, revision);
    // Drift detection handles a request; the generation is unchanged.
    let request = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "now" } } });
    stacks
        .patch("net", &PatchParams::default(), &Patch::Merge(request))
        .await
        .unwrap();
    let checked = wait_for("True NoDrift").await;
    let status = checked.status.unwrap();
    assert_eq!(status.last_handled_reconcile_at, "now");
    assert_eq!(status.observed_generation, checked.metadata.generation);
}
