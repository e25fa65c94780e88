//! The `scale` subresource of custom resources.

use serde_json::{Value, json};

use crate::definitions::{DEFINITIONS, TOOLS, definition, tool};
use crate::fixture::{call, ok, server};
use crate::kubectl::KubectlFixture;

/// Returns a definition whose objects are scaled by their size.
fn scaled_definition() -> Value {
    let mut definition = definition();
    definition["spec"]["versions"][0]["subresources"] = json!({
        "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
    });
    definition
}

#[tokio::test]
async fn a_scale_reads_and_writes_the_replicas_of_an_object() {
    let client = server().client();
    ok(&client, "POST", DEFINITIONS, Some(&scaled_definition())).await;
    ok(&client, "POST", TOOLS, Some(&tool("a"))).await;
    let path = format!("{TOOLS}/a/scale");
    let mut scale = ok(&client, "GET", &path, None).await;
    assert_eq!(
        (&scale["kind"], &scale["apiVersion"]),
        (&json!("Scale"), &json!("autoscaling/v1"))
    );
    assert_eq!(
        (&scale["spec"], &scale["status"]),
        (&json!({"replicas": 1}), &json!({"replicas": 0}))
    );
    scale["spec"]["replicas"] = 4.into();
    let written = ok(&client, "PUT", &path, Some(&scale)).await;
    assert_eq!(written["spec"]["replicas"], 4);
    let stored = ok(&client, "GET", &format!("{TOOLS}/a"), None).await;
    assert_eq!(
        (&stored["spec"]["size"], &stored["metadata"]["generation"]),
        (&json!(4), &json!(2))
    );
    let outdated = call(&client, "PUT", &path, Some(&scale)).await;
    assert_eq!(outdated.code, 409, "{outdated:?}");
    let patched = ok(&client, "PATCH", &path, Some(&json!({"spec": {"replicas": 5}}))).await;
    assert_eq!(patched["spec"]["replicas"], 5);
    for replicas in [json!(-1), json!(11)] {
        let refused = call(
            &client,
            "PATCH",
            &path,
            Some(&json!({"spec": {"replicas": replicas}})),
        )
        .await;
        assert_eq!(refused.code, 422, "{refused:?}");
    }
    for (replicas, code) in [(json!("5"), 422), (json!(5), 200)] {
        let change = json!({"spec": {"replicas": replicas}});
        assert_eq!(call(&client, "PATCH", &path, Some(&change)).await.code, code);
    }
    assert_eq!(call(&client, "DELETE", &path, None).await.code, 405);
    let discovery = ok(&client, "GET", "/apis/tools.dev/v1", None).await;
    let entry = &discovery["resources"][1];
    assert_eq!(
        (&entry["name"], &entry["group"], &entry["kind"]),
        (&json!("tools/scale"), &json!("autoscaling"), &json!("Scale"))
    );
}

#[tokio::test]
async fn an_object_without_replicas_has_no_scale_until_they_are_set() {
    let client = server().client();
    ok(&client, "POST", DEFINITIONS, Some(&scaled_definition())).await;
    let object = json!({"apiVersion": "tools.dev/v1", "kind": "Tool", "metadata": {"name": "a"}});
    ok(&client, "POST", TOOLS, Some(&object)).await;
    let path = format!("{TOOLS}/a/scale");
    let missing = call(&client, "GET", &path, None).await;
    assert_eq!(
        (missing.code, &missing.body["reason"]),
        (500, &json!("InternalError"))
    );
    let unchanged = call(&client, "PATCH", &path, Some(&json!({}))).await;
    assert_eq!(unchanged.code, 400, "{unchanged:?}");
    let set = ok(&client, "PATCH", &path, Some(&json!({"spec": {"replicas": 2}}))).await;
    assert_eq!(set["spec"]["replicas"], 2);
}

#[tokio::test]
async fn a_definition_with_paths_outside_of_spec_and_status_is_refused() {
    let client = server().client();
    let mut definition = scaled_definition();
    definition["spec"]["versions"][0]["subresources"]["scale"]["specReplicasPath"] = ".metadata.size".into();
    let refused = call(&client, "POST", DEFINITIONS, Some(&definition)).await;
    assert_eq!(refused.code, 422);
    let cause = &refused.body["details"]["causes"][0];
    assert_eq!(cause["field"], "spec.subresources.scale.specReplicasPath");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_scales_a_custom_resource() {
    let Some(kubectl) = KubectlFixture::open().await else {
        return;
    };
    kubectl.write("definition.json", &scaled_definition().to_string());
    kubectl.write("tool.json", &tool("a").to_string());
    kubectl.run("apply -f definition.json").await;
    kubectl.run("apply -f tool.json").await;
    kubectl.run("scale tool a --replicas=3").await;
    assert_eq!(kubectl.run("get tool a -o jsonpath={.spec.size}").await, "3");
    let (success, output) = kubectl
        .try_run("scale tool a --current-replicas=7 --replicas=4")
        .await;
    assert!(!success, "{output}");
    kubectl
        .run("scale tool a --current-replicas=3 --replicas=4")
        .await;
    let replicas = kubectl
        .run("get tool a --subresource=scale -o jsonpath={.spec.replicas}")
        .await;
    assert_eq!(replicas, "4");
}
