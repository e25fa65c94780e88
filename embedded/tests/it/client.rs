//! Reads and writes of single objects.

use serde_json::{Value, json};

use crate::fixture::{CONFIGMAPS, SECRETS, WIDGETS, call, ok, send, server, widget};

#[tokio::test]
async fn creation_sets_server_fields() {
    let client = server().client();
    let mut object = widget("a", 3);
    object["status"] = json!({"phase": "Invented"});
    let created = ok(&client, "POST", WIDGETS, Some(&object)).await;
    let metadata = &created["metadata"];
    assert_eq!(metadata["generation"], 1);
    assert_eq!(metadata["namespace"], "default");
    assert!(metadata["uid"].is_string() && metadata["creationTimestamp"].is_string());
    assert_eq!(
        created["spec"],
        json!({"size": 3, "color": "red"}),
        "the default is applied"
    );
    assert_eq!(created["status"], Value::Null, "status is a subresource");
    assert_eq!(ok(&client, "GET", &format!("{WIDGETS}/a"), None).await, created);
}

#[tokio::test]
async fn only_spec_changes_increment_the_generation() {
    let client = server().client();
    ok(&client, "POST", WIDGETS, Some(&widget("a", 3))).await;
    let path = format!("{WIDGETS}/a");
    let generation = |object: &Value| object["metadata"]["generation"].as_i64().unwrap();

    let labelled = ok(
        &client,
        "PATCH",
        &path,
        Some(&json!({"metadata": {"labels": {"a": "b"}}})),
    )
    .await;
    assert_eq!(generation(&labelled), 1);
    let grown = ok(
        &client,
        "PATCH",
        &path,
        Some(&json!({"spec": {"size": 4}, "status": {"phase": "x"}})),
    )
    .await;
    assert_eq!((generation(&grown), &grown["status"]), (2, &Value::Null));
    let report = json!({"spec": {"size": 9}, "metadata": {"labels": null}, "status": {"phase": "Done"}});
    let reported = ok(&client, "PATCH", &format!("{path}/status"), Some(&report)).await;
    assert_eq!((generation(&reported), &reported["spec"]["size"]), (2, &json!(4)));
    assert_eq!(
        (&reported["status"]["phase"], &reported["metadata"]["labels"]["a"]),
        (&json!("Done"), &json!("b"))
    );
}

#[tokio::test]
async fn a_write_without_changes_keeps_the_version() {
    let client = server().client();
    let created = ok(&client, "POST", WIDGETS, Some(&widget("a", 3))).await;
    let path = format!("{WIDGETS}/a");
    assert_eq!(ok(&client, "PUT", &path, Some(&created)).await, created);
    assert_eq!(
        ok(&client, "PATCH", &path, Some(&json!({"spec": {"size": 3}}))).await,
        created
    );
}

#[tokio::test]
async fn a_stale_version_conflicts() {
    let client = server().client();
    let stale = ok(&client, "POST", WIDGETS, Some(&widget("a", 3))).await;
    let path = format!("{WIDGETS}/a");
    ok(&client, "PATCH", &path, Some(&json!({"spec": {"size": 4}}))).await;
    let response = call(&client, "PUT", &path, Some(&stale)).await;
    assert_eq!(
        (response.code, response.body["reason"].as_str()),
        (409, Some("Conflict"))
    );
    assert_eq!(
        response.body["message"],
        "Operation cannot be fulfilled on widgets.example.dev \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
    let version =
        json!({"metadata": {"resourceVersion": stale["metadata"]["resourceVersion"]}, "spec": {"size": 5}});
    assert_eq!(
        call(&client, "PATCH", &path, Some(&version)).await.code,
        409,
        "a patch can also require a version"
    );
    assert_eq!(
        call(&client, "PUT", &path, Some(&widget("a", 5))).await.code,
        422,
        "a custom resource needs a version"
    );
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}});
    ok(&client, "POST", CONFIGMAPS, Some(&map)).await;
    ok(&client, "PUT", &format!("{CONFIGMAPS}/c"), Some(&map)).await;
}

#[tokio::test]
async fn generated_names_differ() {
    let client = server().client();
    let map = json!({"metadata": {"generateName": "run-"}});
    let first = ok(&client, "POST", CONFIGMAPS, Some(&map)).await;
    let second = ok(&client, "POST", CONFIGMAPS, Some(&map)).await;
    assert_ne!(first["metadata"]["name"], second["metadata"]["name"]);
    assert!(first["metadata"]["name"].as_str().unwrap().starts_with("run-"));
}

#[tokio::test]
async fn secrets_accept_string_data_and_enforce_immutability() {
    let client = server().client();
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "hello"}, "immutable": true});
    let created = ok(&client, "POST", SECRETS, Some(&secret)).await;
    assert_eq!(
        (&created["data"]["a"], &created["type"]),
        (&json!("aGVsbG8="), &json!("Opaque"))
    );
    assert_eq!(created["stringData"], Value::Null);
    let response = call(
        &client,
        "PATCH",
        &format!("{SECRETS}/s"),
        Some(&json!({"data": {"a": "eA=="}})),
    )
    .await;
    assert_eq!(response.code, 422);
    assert_eq!(
        response.body["message"],
        "Secret \"s\" is invalid: data: Forbidden: field is immutable when `immutable` is set"
    );
}

#[tokio::test]
async fn each_type_of_patch_changes_an_object() {
    let client = server().client();
    let map = json!({"metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}});
    ok(&client, "POST", CONFIGMAPS, Some(&map)).await;
    let path = format!("{CONFIGMAPS}/c");
    let send_as = |type_: &'static str, patch: Value| {
        let (client, path) = (client.clone(), path.clone());
        async move {
            send(
                &client,
                "PATCH",
                &path,
                &[("content-type", type_)],
                patch.to_string().into_bytes(),
            )
            .await
        }
    };
    let json_patch =
        json!([{"op": "test", "path": "/data/a", "value": "1"}, {"op": "remove", "path": "/data/a"}]);
    assert_eq!(
        send_as("application/json-patch+json", json_patch.clone())
            .await
            .body["data"],
        json!({"b": "2"})
    );
    assert_eq!(
        send_as("application/json-patch+json", json_patch).await.code,
        422,
        "the test fails now"
    );
    let merge = json!({"data": {"c": "3", "b": null}});
    assert_eq!(
        send_as("application/merge-patch+json", merge).await.body["data"],
        json!({"c": "3"})
    );
    let strategic = json!({"data": {"d": "4"}});
    let response = send_as("application/strategic-merge-patch+json", strategic).await;
    assert_eq!(response.body["data"], json!({"c": "3", "d": "4"}));
}

#[tokio::test]
async fn finalizers_delay_deletion() {
    let client = server().client();
    let mut object = widget("a", 1);
    object["metadata"]["finalizers"] = json!(["example.dev/hold"]);
    ok(&client, "POST", WIDGETS, Some(&object)).await;
    let path = format!("{WIDGETS}/a");
    let marked = ok(&client, "DELETE", &path, None).await;
    assert!(marked["metadata"]["deletionTimestamp"].is_string(), "{marked}");
    assert_eq!(
        (
            &marked["metadata"]["generation"],
            &marked["metadata"]["deletionGracePeriodSeconds"]
        ),
        (&json!(2), &json!(0))
    );
    let more = json!({"metadata": {"finalizers": ["example.dev/hold", "example.dev/more"]}});
    assert_eq!(call(&client, "PATCH", &path, Some(&more)).await.code, 422);
    let released = ok(
        &client,
        "PATCH",
        &path,
        Some(&json!({"metadata": {"finalizers": null}})),
    )
    .await;
    assert_eq!(released["kind"], "Widget");
    assert_eq!(call(&client, "GET", &path, None).await.code, 404);
}

#[tokio::test]
async fn deletion_checks_preconditions() {
    let client = server().client();
    let created = ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    let path = format!("{WIDGETS}/a");
    let with = |preconditions: Value| json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
    assert_eq!(
        call(&client, "DELETE", &path, Some(&with(json!({"uid": "other"}))))
            .await
            .code,
        409
    );
    assert_eq!(
        call(
            &client,
            "DELETE",
            &path,
            Some(&with(json!({"resourceVersion": "1"})))
        )
        .await
        .code,
        409
    );
    let status = ok(
        &client,
        "DELETE",
        &path,
        Some(&with(json!({"uid": created["metadata"]["uid"]}))),
    )
    .await;
    assert_eq!(
        (&status["kind"], &status["status"]),
        (&json!("Status"), &json!("Success"))
    );
    assert_eq!(status["details"]["uid"], created["metadata"]["uid"]);
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let client = server().client();
    let created = ok(
        &client,
        "POST",
        &format!("{WIDGETS}?dryRun=All"),
        Some(&widget("a", 1)),
    )
    .await;
    assert_eq!(created["spec"]["color"], "red");
    assert_eq!(
        call(&client, "GET", &format!("{WIDGETS}/a"), None).await.code,
        404
    );
    ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    ok(
        &client,
        "DELETE",
        &format!("{WIDGETS}/a"),
        Some(&json!({"dryRun": ["All"]})),
    )
    .await;
    ok(&client, "GET", &format!("{WIDGETS}/a"), None).await;
}

#[tokio::test]
async fn a_deprecated_version_serves_the_same_objects_with_a_warning() {
    let client = server().client();
    ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    let path = WIDGETS.replace("/v1/", "/v1alpha1/");
    let response = call(&client, "GET", &format!("{path}/a"), None).await;
    assert_eq!(response.body["apiVersion"], "example.dev/v1alpha1");
    assert_eq!(
        response.warnings,
        ["299 - \"v1alpha1 Widget is deprecated, upgrade to v1\""]
    );
    let patched = ok(
        &client,
        "PATCH",
        &format!("{path}/a"),
        Some(&json!({"spec": {"size": 2}})),
    )
    .await;
    assert_eq!(
        (&patched["apiVersion"], &patched["metadata"]["generation"]),
        (&json!("example.dev/v1alpha1"), &json!(2))
    );
    assert_eq!(
        ok(&client, "GET", &format!("{WIDGETS}/a"), None).await["apiVersion"],
        "example.dev/v1"
    );
}

#[tokio::test]
async fn unknown_fields_are_pruned_reported_or_rejected() {
    let client = server().client();
    let mut object = widget("a", 1);
    object["spec"]["sise"] = json!(2);
    let response = call(
        &client,
        "POST",
        &format!("{WIDGETS}?fieldValidation=Strict"),
        Some(&object),
    )
    .await;
    assert_eq!(response.code, 400);
    assert_eq!(
        response.body["message"],
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.sise\""
    );
    let response = call(&client, "POST", WIDGETS, Some(&object)).await;
    assert_eq!(
        (response.code, &response.body["spec"]),
        (201, &json!({"size": 1, "color": "red"}))
    );
    assert_eq!(response.warnings, ["299 - \"unknown field \\\"spec.sise\\\"\""]);
}

#[tokio::test]
async fn metadata_that_clients_cannot_decode_is_rejected() {
    let client = server().client();
    let owner = json!({"apiVersion": "v1", "kind": "A", "name": "b", "uid": "c", "controller": "yes"});
    for (field, value) in [
        ("ownerReferences", json!([owner])),
        ("managedFields", json!([{"manager": 1}])),
        ("finalizers", json!([1])),
    ] {
        let mut object = widget("a", 1);
        object["metadata"][field] = value;
        let response = call(&client, "POST", WIDGETS, Some(&object)).await;
        assert_eq!(response.code, 400, "{response:?}");
        let message = response.body["message"].as_str().unwrap();
        assert!(
            message.contains("cannot unmarshal") && message.contains(field),
            "{message}"
        );
    }
}

#[tokio::test]
async fn the_schema_and_its_rules_are_enforced() {
    let client = server().client();
    let mut wrong = widget("a", 0);
    wrong["spec"]["color"] = json!("blue");
    let response = call(&client, "POST", WIDGETS, Some(&wrong)).await;
    assert_eq!(
        (response.code, response.body["reason"].as_str()),
        (422, Some("Invalid"))
    );
    let fields: Vec<&str> = response.body["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["field"].as_str().unwrap())
        .collect();
    assert!(
        fields.contains(&"spec.size") && fields.contains(&"spec.color"),
        "{fields:?}"
    );
    let mut named = widget("a", 1);
    named["spec"]["name"] = json!("first");
    ok(&client, "POST", WIDGETS, Some(&named)).await;
    let response = call(
        &client,
        "PATCH",
        &format!("{WIDGETS}/a"),
        Some(&json!({"spec": {"name": "second"}})),
    )
    .await;
    assert_eq!(response.code, 422);
    assert!(
        response.body["message"]
            .as_str()
            .unwrap()
            .contains("name is immutable"),
        "{}",
        response.body
    );
}
