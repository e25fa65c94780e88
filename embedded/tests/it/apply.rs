//! Server-side apply with a kube-rs client, and the field managers of other writes.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::fixture::{CONFIGMAPS, WIDGETS, ok, send, server, widget};

fn config_map(data: &Value) -> Patch<Value> {
    Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}))
}

#[tokio::test]
async fn a_client_applies_conflicts_and_forces() {
    let api: Api<ConfigMap> = Api::namespaced(server().client(), "default");
    let (one, two) = (PatchParams::apply("one"), PatchParams::apply("two"));
    let first = config_map(&json!({"a": "1", "b": "2"}));
    let created = api.patch("a", &one, &first).await.unwrap();
    let again = api.patch("a", &one, &first).await.unwrap();
    assert_eq!(created.metadata.resource_version, again.metadata.resource_version);

    let other = config_map(&json!({"a": "3"}));
    let error = api.patch("a", &two, &other).await.unwrap_err();
    let status = match error {
        kube::Error::Api(status) => status,
        other => panic!("{other}"),
    };
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert_eq!(
        status.message,
        "Apply failed with 1 conflict: conflict with \"one\": .data.a"
    );
    let forced = api.patch("a", &two.force(), &other).await.unwrap();
    assert_eq!(forced.data.unwrap()["a"], "3");
    let rest = api.patch("a", &one, &config_map(&json!({}))).await.unwrap();
    let data = json!(rest.data);
    assert_eq!(data, json!({"a": "3"}), "b had no other manager");
}

#[tokio::test]
async fn other_writes_are_recorded_under_the_name_in_the_user_agent() {
    let client = server().client();
    let headers = [
        ("content-type", "application/json"),
        ("user-agent", "editor/1.2 (x)"),
    ];
    let body = json!({"metadata": {"name": "a"}, "data": {"a": "1"}});
    let created = send(
        &client,
        "POST",
        CONFIGMAPS,
        &headers,
        body.to_string().into_bytes(),
    )
    .await;
    let entries = created.body["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0]["manager"], "editor");
    assert_eq!(entries[0]["operation"], "Update");
    assert_eq!(entries[0]["fieldsV1"], json!({"f:data": {".": {}, "f:a": {}}}));
}

#[tokio::test]
async fn malformed_managers_are_ignored_and_an_empty_list_resets_them() {
    let client = server().client();
    let created = ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    let path = format!("{WIDGETS}/a");
    let managers = |object: &Value| object["metadata"]["managedFields"].clone();
    let mut deep = json!({});
    for _ in 0..100 {
        deep = json!({ "f:a": deep });
    }
    for malformed in [
        json!([{"manager": "x", "operation": "Steal", "apiVersion": "example.dev/v1", "fieldsType": "FieldsV1"}]),
        json!([{"manager": "x", "operation": "Update", "apiVersion": "example.dev/v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"k:{": deep}}]),
    ] {
        let change = json!({"metadata": {"managedFields": malformed}});
        let patched = ok(&client, "PATCH", &path, Some(&change)).await;
        assert_eq!(managers(&patched), managers(&created));
    }
    let reset = json!({"metadata": {"managedFields": []}});
    let reset = ok(&client, "PATCH", &path, Some(&reset)).await;
    assert_eq!(managers(&reset), Value::Null);
}

#[tokio::test]
async fn keys_that_occur_twice_are_reported() {
    let client = server().client();
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: x}\ndata: {a: y}\n";
    let headers = [("content-type", "application/apply-patch+yaml")];
    let path = |validation: &str| format!("{CONFIGMAPS}/a?fieldManager=m&fieldValidation={validation}");
    let strict = send(&client, "PATCH", &path("Strict"), &headers, body.into()).await;
    assert_eq!(strict.code, 400);
    assert!(
        strict.body["message"]
            .as_str()
            .unwrap()
            .contains("strict decoding"),
        "{}",
        strict.body
    );
    let lenient = send(&client, "PATCH", &path("Warn"), &headers, body.into()).await;
    assert_eq!((lenient.code, lenient.warnings.len()), (201, 1), "{lenient:?}");
}
