//! Writes and reads of single objects.

use serde_json::{Value, json};

use crate::fixture::{CONFIGMAPS, SECRETS, WIDGETS, call, ok, send, server, widget};

#[tokio::test]
async fn a_created_object_has_what_the_server_gives() {
    let client = server().client();
    let mut wanted = widget("a", 3);
    wanted["status"] = json!({"phase": "Invented"});
    let made = ok(&client, "POST", WIDGETS, Some(&wanted)).await;
    let metadata = &made["metadata"];
    assert_eq!(metadata["generation"], 1);
    assert_eq!(metadata["namespace"], "default");
    assert!(metadata["uid"].is_string() && metadata["creationTimestamp"].is_string());
    assert_eq!(
        made["spec"],
        json!({"size": 3, "color": "red"}),
        "the default is set"
    );
    assert_eq!(made["status"], Value::Null, "status is written apart");
    assert_eq!(ok(&client, "GET", &format!("{WIDGETS}/a"), None).await, made);
}

#[tokio::test]
async fn generation_moves_with_the_spec_only() {
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
async fn a_write_that_changes_nothing_makes_no_version() {
    let client = server().client();
    let made = ok(&client, "POST", WIDGETS, Some(&widget("a", 3))).await;
    let path = format!("{WIDGETS}/a");
    assert_eq!(ok(&client, "PUT", &path, Some(&made)).await, made);
    assert_eq!(
        ok(&client, "PATCH", &path, Some(&json!({"spec": {"size": 3}}))).await,
        made
    );
}

#[tokio::test]
async fn a_stale_version_conflicts() {
    let client = server().client();
    let stale = ok(&client, "POST", WIDGETS, Some(&widget("a", 3))).await;
    let path = format!("{WIDGETS}/a");
    ok(&client, "PATCH", &path, Some(&json!({"spec": {"size": 4}}))).await;
    let answer = call(&client, "PUT", &path, Some(&stale)).await;
    assert_eq!(
        (answer.code, answer.body["reason"].as_str()),
        (409, Some("Conflict"))
    );
    assert_eq!(
        answer.body["message"],
        "Operation cannot be fulfilled on widgets.example.dev \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
    let version =
        json!({"metadata": {"resourceVersion": stale["metadata"]["resourceVersion"]}, "spec": {"size": 5}});
    assert_eq!(
        call(&client, "PATCH", &path, Some(&version)).await.code,
        409,
        "a patch can insist, too"
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
async fn secrets_take_plain_text_and_know_immutability() {
    let client = server().client();
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "hello"}, "immutable": true});
    let made = ok(&client, "POST", SECRETS, Some(&secret)).await;
    assert_eq!(
        (&made["data"]["a"], &made["type"]),
        (&json!("aGVsbG8="), &json!("Opaque"))
    );
    assert_eq!(made["stringData"], Value::Null);
    let answer = call(
        &client,
        "PATCH",
        &format!("{SECRETS}/s"),
        Some(&json!({"data": {"a": "eA=="}})),
    )
    .await;
    assert_eq!(answer.code, 422);
    assert_eq!(
        answer.body["message"],
        "Secret \"s\" is invalid: data: Forbidden: field is immutable when `immutable` is set"
    );
}

#[tokio::test]
async fn three_kinds_of_patch_change_an_object() {
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
    let answer = send_as("application/strategic-merge-patch+json", strategic).await;
    assert_eq!(answer.body["data"], json!({"c": "3", "d": "4"}));
}

#[tokio::test]
async fn finalizers_hold_a_deleted_object() {
    let client = server().client();
    let mut held = widget("a", 1);
    held["metadata"]["finalizers"] = json!(["example.dev/hold"]);
    ok(&client, "POST", WIDGETS, Some(&held)).await;
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
async fn deletion_can_insist_on_identity() {
    let client = server().client();
    let made = ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
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
        Some(&with(json!({"uid": made["metadata"]["uid"]}))),
    )
    .await;
    assert_eq!(
        (&status["kind"], &status["status"]),
        (&json!("Status"), &json!("Success"))
    );
    assert_eq!(status["details"]["uid"], made["metadata"]["uid"]);
}

#[tokio::test]
async fn a_dry_run_answers_and_keeps_nothing() {
    let client = server().client();
    let made = ok(
        &client,
        "POST",
        &format!("{WIDGETS}?dryRun=All"),
        Some(&widget("a", 1)),
    )
    .await;
    assert_eq!(made["spec"]["color"], "red");
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
async fn a_deprecated_version_shows_the_same_objects_and_warns() {
    let client = server().client();
    ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    let path = WIDGETS.replace("/v1/", "/v1alpha1/");
    let answer = call(&client, "GET", &format!("{path}/a"), None).await;
    assert_eq!(answer.body["apiVersion"], "example.dev/v1alpha1");
    assert_eq!(
        answer.warnings,
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
async fn unknown_fields_are_dropped_named_or_refused() {
    let client = server().client();
    let mut odd = widget("a", 1);
    odd["spec"]["sise"] = json!(2);
    let answer = call(
        &client,
        "POST",
        &format!("{WIDGETS}?fieldValidation=Strict"),
        Some(&odd),
    )
    .await;
    assert_eq!(answer.code, 400);
    assert_eq!(
        answer.body["message"],
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.sise\""
    );
    let answer = call(&client, "POST", WIDGETS, Some(&odd)).await;
    assert_eq!(
        (answer.code, &answer.body["spec"]),
        (201, &json!({"size": 1, "color": "red"}))
    );
    assert_eq!(answer.warnings, ["299 - \"unknown field \\\"spec.sise\\\"\""]);
}

#[tokio::test]
async fn the_schema_and_its_rules_are_enforced() {
    let client = server().client();
    let mut wrong = widget("a", 0);
    wrong["spec"]["color"] = json!("blue");
    let answer = call(&client, "POST", WIDGETS, Some(&wrong)).await;
    assert_eq!(
        (answer.code, answer.body["reason"].as_str()),
        (422, Some("Invalid"))
    );
    let fields: Vec<&str> = answer.body["details"]["causes"]
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
    let answer = call(
        &client,
        "PATCH",
        &format!("{WIDGETS}/a"),
        Some(&json!({"spec": {"name": "second"}})),
    )
    .await;
    assert_eq!(answer.code, 422);
    assert!(
        answer.body["message"]
            .as_str()
            .unwrap()
            .contains("name is immutable"),
        "{}",
        answer.body
    );
}
