//! Garbage collection, namespace deletion and the expiry of Events.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_embedded::{ApiServer, Store};

use crate::fixture::{CONFIGMAPS, SECRETS, WIDGETS, call, eventually, ok, server, server_on, widget};
use crate::git_store::{self, Checkout, git};
use crate::restart::open_when_released;

fn owned(name: &str, owners: &[&Value]) -> Value {
    let reference = |owner: &&Value| {
        json!({"apiVersion": "example.dev/v1", "kind": "Widget", "name": owner["metadata"]["name"],
               "uid": owner["metadata"]["uid"]})
    };
    let owners: Vec<Value> = owners.iter().map(reference).collect();
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

#[tokio::test]
async fn dependents_are_deleted_with_their_last_owner() {
    let client = server().client();
    let first = ok(&client, "POST", WIDGETS, Some(&widget("first", 1))).await;
    let second = ok(&client, "POST", WIDGETS, Some(&widget("second", 1))).await;
    ok(&client, "POST", CONFIGMAPS, Some(&owned("one", &[&first]))).await;
    ok(
        &client,
        "POST",
        CONFIGMAPS,
        Some(&owned("both", &[&first, &second])),
    )
    .await;
    ok(&client, "DELETE", &format!("{WIDGETS}/first"), None).await;
    let is_deleted = |name: &'static str| {
        let client = client.clone();
        async move {
            call(&client, "GET", &format!("{CONFIGMAPS}/{name}"), None)
                .await
                .code
                == 404
        }
    };
    eventually("the dependent of the only owner is deleted", || is_deleted("one")).await;
    eventually("the reference to the first owner is removed", || async {
        let both = ok(&client, "GET", &format!("{CONFIGMAPS}/both"), None).await;
        both["metadata"]["ownerReferences"].as_array().unwrap().len() == 1
    })
    .await;
    ok(&client, "DELETE", &format!("{WIDGETS}/second"), None).await;
    eventually("the dependent of the last owner is deleted", || {
        is_deleted("both")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_whose_file_is_not_valid_is_not_absent() {
    const FILE: &str = "apiVersion: example.dev/v1\nkind: Widget\nmetadata: {name: owner}\nspec: {size: 0}\n";
    let dir = tempfile::tempdir().unwrap();
    let repository = git_store::repository(dir.path());
    let checkout = Checkout::new(dir.path());
    checkout.write("owner.yaml", FILE);
    git(&checkout.0, &["add", "--all"]);
    git(&checkout.0, &["commit", "--quiet", "-m", "By hand"]);
    git(&checkout.0, &["push", "--quiet", "origin", "HEAD:main"]);
    let client = git_store::server(dir.path(), &repository).client();
    let owner = json!({"metadata": {"name": "owner", "uid": "00000000-0000-0000-0000-000000000001"}});
    let ghost = json!({"metadata": {"name": "ghost", "uid": "00000000-0000-0000-0000-000000000002"}});
    ok(&client, "POST", SECRETS, Some(&owned("kept", &[&owner]))).await;
    ok(&client, "POST", SECRETS, Some(&owned("deleted", &[&ghost]))).await;
    let code = |name: &'static str| {
        let client = client.clone();
        async move {
            call(&client, "GET", &format!("{SECRETS}/{name}"), None)
                .await
                .code
        }
    };
    // The collector examined the other Secret before.
    eventually("the owner of this Secret is absent", || async {
        code("deleted").await == 404
    })
    .await;
    assert_eq!(code("kept").await, 200);
    std::fs::remove_file(checkout.0.join("owner.yaml")).unwrap();
    checkout.push();
    eventually("the owner is absent without its file", || async {
        code("kept").await == 404
    })
    .await;
}

#[tokio::test]
async fn dependents_of_a_missing_owner_are_deleted() {
    let client = server().client();
    let ghost = json!({"metadata": {"name": "ghost", "uid": "00000000-0000-0000-0000-000000000000"}});
    ok(&client, "POST", CONFIGMAPS, Some(&owned("a", &[&ghost]))).await;
    eventually("the dependent is deleted", || async {
        call(&client, "GET", &format!("{CONFIGMAPS}/a"), None).await.code == 404
    })
    .await;
}

#[tokio::test]
async fn orphans_remain() {
    let client = server().client();
    let owner = ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    ok(&client, "POST", CONFIGMAPS, Some(&owned("b", &[&owner]))).await;
    ok(
        &client,
        "DELETE",
        &format!("{WIDGETS}/a?propagationPolicy=Orphan"),
        None,
    )
    .await;
    eventually("the owner is deleted", || async {
        call(&client, "GET", &format!("{WIDGETS}/a"), None).await.code == 404
    })
    .await;
    let orphan = ok(&client, "GET", &format!("{CONFIGMAPS}/b"), None).await;
    assert_eq!(orphan["metadata"]["ownerReferences"], Value::Null);
}

#[tokio::test]
async fn namespace_deletion_deletes_content_and_waits_for_finalizers() {
    let client = server().client();
    ok(
        &client,
        "POST",
        "/api/v1/namespaces",
        Some(&json!({"metadata": {"name": "n"}})),
    )
    .await;
    let (maps, widgets) = (
        CONFIGMAPS.replace("default", "n"),
        WIDGETS.replace("default", "n"),
    );
    ok(&client, "POST", &maps, Some(&json!({"metadata": {"name": "a"}}))).await;
    let mut object = widget("w", 1);
    object["metadata"]["finalizers"] = json!(["example.dev/hold"]);
    ok(&client, "POST", &widgets, Some(&object)).await;
    let marked = ok(&client, "DELETE", "/api/v1/namespaces/n", None).await;
    assert_eq!(marked["status"]["phase"], "Terminating");
    let response = call(&client, "POST", &maps, Some(&json!({"metadata": {"name": "b"}}))).await;
    assert_eq!(
        (response.code, response.body["reason"].as_str()),
        (403, Some("Forbidden"))
    );
    eventually("the content is terminating", || async {
        let widget = ok(&client, "GET", &format!("{widgets}/w"), None).await;
        widget["metadata"]["deletionTimestamp"].is_string()
            && call(&client, "GET", &format!("{maps}/a"), None).await.code == 404
    })
    .await;
    ok(&client, "GET", "/api/v1/namespaces/n", None).await;
    ok(
        &client,
        "PATCH",
        &format!("{widgets}/w"),
        Some(&json!({"metadata": {"finalizers": null}})),
    )
    .await;
    eventually("the namespace is deleted", || async {
        call(&client, "GET", "/api/v1/namespaces/n", None).await.code == 404
    })
    .await;
}

#[tokio::test]
async fn immortal_namespaces_cannot_be_deleted() {
    let client = server().client();
    ok(
        &client,
        "POST",
        CONFIGMAPS,
        Some(&json!({"metadata": {"name": "a"}})),
    )
    .await;
    for name in ["default", "kube-system"] {
        let response = call(&client, "DELETE", &format!("/api/v1/namespaces/{name}"), None).await;
        assert_eq!(
            (response.code, response.body["reason"].as_str()),
            (403, Some("Forbidden"))
        );
    }
    let response = call(&client, "DELETE", "/api/v1/namespaces", None).await;
    assert_eq!(response.code, 405);
    ok(&client, "GET", &format!("{CONFIGMAPS}/a"), None).await;
}

/// Returns a widget that blocks the foreground deletion of its owner.
fn blocking(name: &str, owner: &Value) -> Value {
    let mut widget = widget(name, 1);
    widget["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "example.dev/v1", "kind": "Widget", "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
    }]);
    widget
}

#[tokio::test]
async fn foreground_deletion_deletes_dependents_first() {
    let client = server().client();
    let owner = ok(&client, "POST", WIDGETS, Some(&widget("owner", 1))).await;
    let mut child = blocking("child", &owner);
    child["metadata"]["finalizers"] = json!(["example.dev/hold"]);
    let child = ok(&client, "POST", WIDGETS, Some(&child)).await;
    ok(&client, "POST", WIDGETS, Some(&blocking("grandchild", &child))).await;
    let path = format!("{WIDGETS}/owner?propagationPolicy=Foreground");
    let marked = ok(&client, "DELETE", &path, None).await;
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    eventually("the grandchild is deleted and the child waits", || async {
        let child = ok(&client, "GET", &format!("{WIDGETS}/child"), None).await;
        child["metadata"]["deletionTimestamp"].is_string()
            && call(&client, "GET", &format!("{WIDGETS}/grandchild"), None)
                .await
                .code
                == 404
    })
    .await;
    ok(&client, "GET", &format!("{WIDGETS}/owner"), None).await;
    let release = json!({"metadata": {"finalizers": null}});
    ok(&client, "PATCH", &format!("{WIDGETS}/child"), Some(&release)).await;
    eventually("the owner is deleted last", || async {
        call(&client, "GET", &format!("{WIDGETS}/owner"), None).await.code == 404
    })
    .await;
    assert_eq!(
        call(&client, "GET", &format!("{WIDGETS}/child"), None).await.code,
        404
    );
}

#[tokio::test]
async fn foreground_deletion_handles_cycles() {
    let client = server().client();
    let first = ok(&client, "POST", WIDGETS, Some(&widget("first", 1))).await;
    let second = ok(&client, "POST", WIDGETS, Some(&blocking("second", &first))).await;
    let third = ok(&client, "POST", WIDGETS, Some(&blocking("third", &second))).await;
    let owners = blocking("first", &third)["metadata"]["ownerReferences"].clone();
    let circle = json!({"metadata": {"ownerReferences": owners}});
    ok(&client, "PATCH", &format!("{WIDGETS}/first"), Some(&circle)).await;
    let path = format!("{WIDGETS}/first?propagationPolicy=Foreground");
    ok(&client, "DELETE", &path, None).await;
    eventually("all are deleted", || async {
        ok(&client, "GET", WIDGETS, None).await["items"] == json!([])
    })
    .await;
}

#[tokio::test]
async fn namespace_deletion_removes_objects_of_unserved_kinds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let server = server_on(Store::file(&path).unwrap());
    let client = server.client();
    let space = json!({"metadata": {"name": "n"}});
    ok(&client, "POST", "/api/v1/namespaces", Some(&space)).await;
    ok(
        &client,
        "POST",
        &WIDGETS.replace("default", "n"),
        Some(&widget("w", 1)),
    )
    .await;
    drop((client, server));
    let client = ApiServer::builder()
        .store(open_when_released(&path).await)
        .build()
        .unwrap()
        .client();
    ok(&client, "DELETE", "/api/v1/namespaces/n", None).await;
    eventually("the namespace is deleted", || async {
        call(&client, "GET", "/api/v1/namespaces/n", None).await.code == 404
    })
    .await;
}

#[tokio::test]
async fn events_expire() {
    let client = ApiServer::builder()
        .event_ttl(Duration::from_hours(1))
        .build()
        .unwrap()
        .client();
    let path = "/api/v1/namespaces/default/events";
    let event = |name: &str| json!({"metadata": {"name": name}, "involvedObject": {"kind": "ConfigMap", "name": "m", "namespace": "default"}});
    ok(&client, "POST", path, Some(&event("new"))).await;
    let short = ApiServer::builder()
        .event_ttl(Duration::ZERO)
        .build()
        .unwrap()
        .client();
    ok(&short, "POST", path, Some(&event("old"))).await;
    eventually("the Event is deleted", || async {
        call(&short, "GET", &format!("{path}/old"), None).await.code == 404
    })
    .await;
    ok(&client, "GET", &format!("{path}/new"), None).await;
}

#[tokio::test]
async fn a_finalizer_without_a_domain_is_refused_or_warned_about() {
    let client = server().client();
    let map = json!({"metadata": {"name": "a", "finalizers": ["orphan", "hold"]}});
    let refused = call(&client, "POST", CONFIGMAPS, Some(&map)).await;
    assert_eq!(
        (refused.code, &refused.body["details"]["causes"][0]["field"]),
        (422, &json!("metadata.finalizers[1]"))
    );
    let mut object = widget("a", 1);
    object["metadata"]["finalizers"] = json!(["hold"]);
    let created = call(&client, "POST", WIDGETS, Some(&object)).await;
    assert_eq!(created.code, 201);
    assert_eq!(
        created.warnings,
        [
            r#"299 - "metadata.finalizers: \"hold\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers""#
        ]
    );
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let kept = call(&client, "PATCH", &format!("{WIDGETS}/a"), Some(&label)).await;
    assert_eq!(
        (kept.code, kept.warnings.len()),
        (200, 0),
        "only what a write adds"
    );
}
