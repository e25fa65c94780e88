//! Applying manifests: a field removed from a file is removed from the object.

#![expect(clippy::unwrap_used, reason = "this crate is tests")]

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice::apply::apply;
use sluice::manifests::{Location, Manifest};
use sluice::three_way::LAST_APPLIED;
use sluice_embedded::ApiServer;

fn client() -> Client {
    ApiServer::builder()
        .crds(sluice_api::crds())
        .build()
        .unwrap()
        .client()
}

async fn apply_manifest(client: &Client, manifest: &Value) {
    let manifest = Manifest {
        location: Location {
            file: "a.yaml".into(),
            document: 1,
        },
        object: serde_json::from_value(manifest.clone()).unwrap(),
    };
    assert_eq!(apply(client, vec![manifest]).await, vec![]);
}

fn stack(spec: &Value) -> Value {
    json!({"apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
        "metadata": {"name": "a", "namespace": "default"}, "spec": spec})
}

fn guarded_spec() -> Value {
    json!({"interval": "1m", "path": "./", "approvePlan": "auto", "destroyResourcesOnDeletion": true,
        "sourceRef": {"kind": "GitRepository", "name": "a"}})
}

fn stacks(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("infra.contrib.fluxcd.io", "v1alpha2", "Terraform");
    Api::namespaced_with(client.clone(), "default", &ApiResource::from_gvk(&kind))
}

async fn read(client: &Client) -> Value {
    serde_json::to_value(stacks(client).get("a").await.unwrap()).unwrap()
}

#[tokio::test]
async fn a_field_removed_from_the_file_is_removed_from_the_object() {
    let client = client();
    apply_manifest(&client, &stack(&guarded_spec())).await;
    let before = read(&client).await;
    assert_eq!(before["spec"]["approvePlan"], "auto");
    let mut spec = guarded_spec();
    spec.as_object_mut().unwrap().remove("approvePlan");
    spec.as_object_mut().unwrap().remove("destroyResourcesOnDeletion");
    apply_manifest(&client, &stack(&spec)).await;
    let after = read(&client).await;
    assert_ne!(after["spec"]["approvePlan"], "auto", "{after}");
    assert_ne!(after["spec"]["destroyResourcesOnDeletion"], true, "{after}");
    apply_manifest(&client, &stack(&spec)).await;
    let again = read(&client).await;
    assert_eq!(
        again["metadata"]["resourceVersion"],
        after["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn fields_of_other_writers_stay_and_the_annotation_of_kubectl_is_used() {
    let client = client();
    apply_manifest(&client, &stack(&guarded_spec())).await;
    // The result of `kubectl apply` of a manifest with one more field, of `kubectl annotate` and of suspending.
    let mut manifest = stack(&guarded_spec());
    manifest["spec"]["retryInterval"] = "20s".into();
    let patch = json!({
        "metadata": {"annotations": {LAST_APPLIED: format!("{manifest}\n"), "example.dev/by": "me"}},
        "spec": {"retryInterval": "20s", "suspend": true},
    });
    stacks(&client)
        .patch("a", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    apply_manifest(&client, &stack(&guarded_spec())).await;
    let after = read(&client).await;
    assert!(after["spec"]["retryInterval"].is_null(), "{after}");
    assert_eq!(after["spec"]["suspend"], true);
    assert_eq!(after["metadata"]["annotations"]["example.dev/by"], "me");
}
