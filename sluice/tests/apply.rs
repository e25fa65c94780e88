//! Manifests against the API: what is taken out of a file is taken out of the object.

#![expect(clippy::unwrap_used, reason = "this crate is tests")]

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};
use sluice::{
    apply::apply,
    manifests::{Manifest, Place},
    three_way::LAST_APPLIED,
};
use sluice_embedded::Server;

fn client() -> Client {
    Server::builder()
        .crds(sluice_api::crds())
        .build()
        .unwrap()
        .client()
}

async fn put(client: &Client, manifest: &Value) {
    let manifest = Manifest {
        place: Place {
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

fn guarded() -> Value {
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
async fn a_field_that_is_taken_out_of_the_file_is_removed() {
    let client = client();
    put(&client, &stack(&guarded())).await;
    let before = read(&client).await;
    assert_eq!(before["spec"]["approvePlan"], "auto");
    let mut spec = guarded();
    spec.as_object_mut().unwrap().remove("approvePlan");
    spec.as_object_mut().unwrap().remove("destroyResourcesOnDeletion");
    put(&client, &stack(&spec)).await;
    let after = read(&client).await;
    assert_ne!(after["spec"]["approvePlan"], "auto", "{after}");
    assert_ne!(after["spec"]["destroyResourcesOnDeletion"], true, "{after}");
    put(&client, &stack(&spec)).await;
    let again = read(&client).await;
    assert_eq!(
        again["metadata"]["resourceVersion"],
        after["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn what_others_wrote_stays_and_kubectl_s_annotation_is_taken_over() {
    let client = client();
    put(&client, &stack(&guarded())).await;
    // As `kubectl apply` leaves it, of a manifest with one more field, and as `kubectl annotate` and `suspend` do.
    let mut manifest = stack(&guarded());
    manifest["spec"]["retryInterval"] = "20s".into();
    let patch = json!({
        "metadata": {"annotations": {LAST_APPLIED: format!("{manifest}\n"), "example.dev/by": "me"}},
        "spec": {"retryInterval": "20s", "suspend": true},
    });
    stacks(&client)
        .patch("a", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    put(&client, &stack(&guarded())).await;
    let after = read(&client).await;
    assert!(after["spec"]["retryInterval"].is_null(), "{after}");
    assert_eq!(after["spec"]["suspend"], true);
    assert_eq!(after["metadata"]["annotations"]["example.dev/by"], "me");
}
