//! What goes by itself: dependents of deleted owners, the content of deleted namespaces.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_embedded::{Server, Store};

use crate::{
    fixture::{CONFIGMAPS, WIDGETS, call, eventually, ok, server, server_on, widget},
    restart::open_when_released,
};

fn owned(name: &str, owners: &[&Value]) -> Value {
    let reference = |owner: &&Value| {
        json!({"apiVersion": "example.dev/v1", "kind": "Widget", "name": owner["metadata"]["name"],
               "uid": owner["metadata"]["uid"]})
    };
    let owners: Vec<Value> = owners.iter().map(reference).collect();
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

#[tokio::test]
async fn dependents_follow_their_last_owner() {
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
    let gone = |name: &'static str| {
        let client = client.clone();
        async move {
            call(&client, "GET", &format!("{CONFIGMAPS}/{name}"), None)
                .await
                .code
                == 404
        }
    };
    eventually("the only owner's dependent goes", || gone("one")).await;
    eventually("the other lets go of the first owner", || async {
        let both = ok(&client, "GET", &format!("{CONFIGMAPS}/both"), None).await;
        both["metadata"]["ownerReferences"].as_array().unwrap().len() == 1
    })
    .await;
    ok(&client, "DELETE", &format!("{WIDGETS}/second"), None).await;
    eventually("the last owner's dependent goes", || gone("both")).await;
}

#[tokio::test]
async fn a_dependent_of_an_owner_that_never_was_goes() {
    let client = server().client();
    let ghost = json!({"metadata": {"name": "ghost", "uid": "00000000-0000-0000-0000-000000000000"}});
    ok(&client, "POST", CONFIGMAPS, Some(&owned("a", &[&ghost]))).await;
    eventually("the dependent of a ghost goes", || async {
        call(&client, "GET", &format!("{CONFIGMAPS}/a"), None).await.code == 404
    })
    .await;
}

#[tokio::test]
async fn orphans_stay() {
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
    eventually("the owner goes", || async {
        call(&client, "GET", &format!("{WIDGETS}/a"), None).await.code == 404
    })
    .await;
    let orphan = ok(&client, "GET", &format!("{CONFIGMAPS}/b"), None).await;
    assert_eq!(orphan["metadata"]["ownerReferences"], Value::Null);
}

#[tokio::test]
async fn a_namespace_goes_with_its_content_and_waits_for_finalizers() {
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
    let mut held = widget("w", 1);
    held["metadata"]["finalizers"] = json!(["example.dev/hold"]);
    ok(&client, "POST", &widgets, Some(&held)).await;
    let marked = ok(&client, "DELETE", "/api/v1/namespaces/n", None).await;
    assert_eq!(marked["status"]["phase"], "Terminating");
    let refused = call(&client, "POST", &maps, Some(&json!({"metadata": {"name": "b"}}))).await;
    assert_eq!(
        (refused.code, refused.body["reason"].as_str()),
        (403, Some("Forbidden"))
    );
    eventually("the content is marked", || async {
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
    eventually("the namespace goes", || async {
        call(&client, "GET", "/api/v1/namespaces/n", None).await.code == 404
    })
    .await;
}

#[tokio::test]
async fn namespaces_that_every_server_has_stay() {
    let client = server().client();
    ok(
        &client,
        "POST",
        CONFIGMAPS,
        Some(&json!({"metadata": {"name": "a"}})),
    )
    .await;
    for name in ["default", "kube-system"] {
        let refused = call(&client, "DELETE", &format!("/api/v1/namespaces/{name}"), None).await;
        assert_eq!(
            (refused.code, refused.body["reason"].as_str()),
            (403, Some("Forbidden"))
        );
    }
    let refused = call(&client, "DELETE", "/api/v1/namespaces", None).await;
    assert_eq!(refused.code, 405);
    ok(&client, "GET", &format!("{CONFIGMAPS}/a"), None).await;
}

/// A widget that blocks the foreground deletion of its owner.
fn blocking(name: &str, owner: &Value) -> Value {
    let mut widget = widget(name, 1);
    widget["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "example.dev/v1", "kind": "Widget", "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
    }]);
    widget
}

#[tokio::test]
async fn foreground_deletion_takes_dependents_first() {
    let client = server().client();
    let owner = ok(&client, "POST", WIDGETS, Some(&widget("owner", 1))).await;
    let mut child = blocking("child", &owner);
    child["metadata"]["finalizers"] = json!(["example.dev/hold"]);
    let child = ok(&client, "POST", WIDGETS, Some(&child)).await;
    ok(&client, "POST", WIDGETS, Some(&blocking("grandchild", &child))).await;
    let path = format!("{WIDGETS}/owner?propagationPolicy=Foreground");
    let marked = ok(&client, "DELETE", &path, None).await;
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    eventually("the grandchild goes and the child waits", || async {
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
    eventually("the owner goes last", || async {
        call(&client, "GET", &format!("{WIDGETS}/owner"), None).await.code == 404
    })
    .await;
    assert_eq!(
        call(&client, "GET", &format!("{WIDGETS}/child"), None).await.code,
        404
    );
}

#[tokio::test]
async fn foreground_deletion_ends_in_a_circle() {
    let client = server().client();
    let first = ok(&client, "POST", WIDGETS, Some(&widget("first", 1))).await;
    let second = ok(&client, "POST", WIDGETS, Some(&blocking("second", &first))).await;
    let third = ok(&client, "POST", WIDGETS, Some(&blocking("third", &second))).await;
    let owners = blocking("first", &third)["metadata"]["ownerReferences"].clone();
    let circle = json!({"metadata": {"ownerReferences": owners}});
    ok(&client, "PATCH", &format!("{WIDGETS}/first"), Some(&circle)).await;
    let path = format!("{WIDGETS}/first?propagationPolicy=Foreground");
    ok(&client, "DELETE", &path, None).await;
    eventually("all go", || async {
        ok(&client, "GET", WIDGETS, None).await["items"] == json!([])
    })
    .await;
}

#[tokio::test]
async fn a_namespace_with_objects_of_a_kind_that_is_no_longer_served_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let made = server_on(Store::file(&path).unwrap());
    let client = made.client();
    let space = json!({"metadata": {"name": "n"}});
    ok(&client, "POST", "/api/v1/namespaces", Some(&space)).await;
    ok(
        &client,
        "POST",
        &WIDGETS.replace("default", "n"),
        Some(&widget("w", 1)),
    )
    .await;
    drop((client, made));
    let client = Server::builder()
        .store(open_when_released(&path).await)
        .build()
        .unwrap()
        .client();
    ok(&client, "DELETE", "/api/v1/namespaces/n", None).await;
    eventually("the namespace goes", || async {
        call(&client, "GET", "/api/v1/namespaces/n", None).await.code == 404
    })
    .await;
}

#[tokio::test]
async fn events_expire() {
    let client = Server::builder()
        .event_lifetime(Duration::from_secs(3600))
        .build()
        .unwrap()
        .client();
    let path = "/api/v1/namespaces/default/events";
    let event = |name: &str| json!({"metadata": {"name": name}, "involvedObject": {"kind": "ConfigMap", "name": "m", "namespace": "default"}});
    ok(&client, "POST", path, Some(&event("new"))).await;
    let short = Server::builder()
        .event_lifetime(Duration::ZERO)
        .build()
        .unwrap()
        .client();
    ok(&short, "POST", path, Some(&event("old"))).await;
    eventually("the Event goes", || async {
        call(&short, "GET", &format!("{path}/old"), None).await.code == 404
    })
    .await;
    ok(&client, "GET", &format!("{path}/new"), None).await;
}
