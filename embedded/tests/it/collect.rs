//! What goes by itself: dependents of deleted owners, the content of deleted namespaces.

use serde_json::{Value, json};

use crate::fixture::{CONFIGMAPS, WIDGETS, call, eventually, ok, server, widget};

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
