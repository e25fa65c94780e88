//! Chunked lists: pages, their version, expired and malformed tokens.

use kube::Client;
use serde_json::{Value, json};
use sluice_embedded::Store;

use crate::fixture::{CONFIGMAPS, SECRETS, WIDGETS, call, ok, send, server, server_on, widget};

/// Creates ConfigMaps with these names.
async fn create(client: &Client, names: &[&str]) {
    for name in names {
        let map = json!({"metadata": {"name": name}, "data": {"a": "first"}});
        ok(client, "POST", CONFIGMAPS, Some(&map)).await;
    }
}

/// Lists ConfigMaps with these parameters.
async fn list(client: &Client, query: &str) -> Value {
    ok(client, "GET", &format!("{CONFIGMAPS}?{query}"), None).await
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

fn token(list: &Value) -> &str {
    list["metadata"]["continue"].as_str().unwrap()
}

#[tokio::test]
async fn pages_show_the_version_of_the_first_one() {
    let client = server().client();
    create(&client, &["a", "b", "c", "d", "e"]).await;
    let first = list(&client, "limit=2").await;
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    ok(&client, "DELETE", &format!("{CONFIGMAPS}/c"), None).await;
    create(&client, &["ca"]).await;
    let change = json!({"data": {"a": "second"}});
    ok(&client, "PATCH", &format!("{CONFIGMAPS}/d"), Some(&change)).await;
    let second = list(&client, &format!("limit=2&continue={}", token(&first))).await;
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(second["items"][1]["data"]["a"], "first");
    assert_eq!(second["metadata"]["remainingItemCount"], 1);
    let version = &first["metadata"]["resourceVersion"];
    assert_eq!(&second["metadata"]["resourceVersion"], version);
    let last = list(&client, &format!("limit=2&continue={}", token(&second))).await;
    assert_eq!(names(&last), ["e"]);
    assert!(last["metadata"]["continue"].is_null() && last["metadata"]["remainingItemCount"].is_null());
    assert_eq!(names(&list(&client, "").await), ["a", "b", "ca", "d", "e"]);
    let exact = format!(
        "resourceVersion={}&resourceVersionMatch=Exact",
        version.as_str().unwrap()
    );
    assert_eq!(names(&list(&client, &exact).await), ["a", "b", "c", "d", "e"]);
}

#[tokio::test]
async fn an_expired_token_is_replaced_by_one_for_the_newest_version() {
    let client = server_on(Store::memory().with_watch_window(2)).client();
    create(&client, &["a", "b", "c"]).await;
    let first = list(&client, "limit=1").await;
    create(&client, &["d", "e", "f"]).await;
    ok(&client, "DELETE", &format!("{CONFIGMAPS}/b"), None).await;
    let path = format!("{CONFIGMAPS}?limit=1&continue={}", token(&first));
    let expired = call(&client, "GET", &path, None).await;
    assert_eq!((expired.code, &expired.body["reason"]), (410, &json!("Expired")));
    let message = expired.body["message"].as_str().unwrap();
    assert!(
        message.starts_with("The provided continue parameter is too old"),
        "{message}"
    );
    let rest = list(&client, &format!("continue={}", token(&expired.body))).await;
    assert_eq!(names(&rest), ["c", "d", "e", "f"]);
    let page = list(&client, &format!("limit=1&continue={}", token(&expired.body))).await;
    assert_eq!(names(&page), ["c"]);
    assert_eq!(page["metadata"]["remainingItemCount"], 3);
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let old = format!("{CONFIGMAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    let old = call(&client, "GET", &old, None).await;
    assert_eq!(
        (old.code, old.body["message"].as_str()),
        (410, Some("The resourceVersion for the provided list is too old."))
    );
}

#[tokio::test]
async fn a_list_of_all_namespaces_is_chunked() {
    let client = server().client();
    for namespace in ["one", "one-more"] {
        let object = json!({"metadata": {"name": namespace}});
        ok(&client, "POST", "/api/v1/namespaces", Some(&object)).await;
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        for name in ["x", "y"] {
            let map = json!({"metadata": {"name": name, "labels": {"own": "yes"}}});
            ok(&client, "POST", &maps, Some(&map)).await;
        }
    }
    let all = "/api/v1/configmaps?labelSelector=own&limit=1";
    let (mut found, mut next) = (Vec::new(), String::new());
    loop {
        let page = ok(&client, "GET", &format!("{all}&continue={next}"), None).await;
        assert!(page["metadata"]["remainingItemCount"].is_null());
        for item in page["items"].as_array().unwrap() {
            let metadata = &item["metadata"];
            found.push(format!("{}/{}", metadata["namespace"], metadata["name"]).replace('"', ""));
        }
        match page["metadata"]["continue"].as_str() {
            Some(token) => next = token.to_owned(),
            None => break,
        }
    }
    assert_eq!(found, ["one/x", "one/y", "one-more/x", "one-more/y"]);
}

#[tokio::test]
async fn tables_and_partial_metadata_are_chunked() {
    let client = server().client();
    for name in ["a", "b", "c"] {
        ok(&client, "POST", WIDGETS, Some(&widget(name, 1))).await;
    }
    for (kind, entries) in [("Table", "rows"), ("PartialObjectMetadataList", "items")] {
        let accept = format!("application/json;as={kind};v=v1;g=meta.k8s.io");
        let get = async |query: String| {
            let path = format!("{WIDGETS}?{query}");
            send(&client, "GET", &path, &[("accept", accept.as_str())], Vec::new())
                .await
                .body
        };
        let first = get("limit=2".to_owned()).await;
        assert_eq!(first[entries].as_array().unwrap().len(), 2, "{first}");
        assert_eq!(first["metadata"]["remainingItemCount"], 1);
        let last = get(format!("limit=2&continue={}", token(&first))).await;
        assert_eq!(last[entries].as_array().unwrap().len(), 1, "{last}");
        assert!(last["metadata"]["continue"].is_null());
    }
}

#[tokio::test]
async fn a_token_that_is_not_of_the_list_is_refused() {
    let client = server().client();
    create(&client, &["a", "b"]).await;
    let first = list(&client, "limit=1").await;
    for (path, reason) in [
        (
            format!("{CONFIGMAPS}?continue=ab!c"),
            "illegal base64 data at input byte 2",
        ),
        (
            format!("{SECRETS}?continue={}", token(&first)),
            "it belongs to another list",
        ),
    ] {
        let response = call(&client, "GET", &path, None).await;
        let expected = format!("invalid continue token: continue key is not valid: {reason}");
        assert_eq!(
            (response.code, &response.body["message"]),
            (400, &json!(expected))
        );
    }
    let path = format!("{CONFIGMAPS}?continue={}&resourceVersion=5", token(&first));
    assert_eq!(call(&client, "GET", &path, None).await.code, 400);
}

#[tokio::test]
async fn a_limit_of_any_version_or_of_one_name_gives_no_token() {
    let client = server().client();
    create(&client, &["a", "b", "c"]).await;
    let any = list(&client, "limit=1&resourceVersion=0").await;
    assert_eq!(names(&any), ["a", "b", "c"]);
    let one = list(&client, "limit=1&fieldSelector=metadata.name%3Da").await;
    assert_eq!(names(&one), ["a"]);
    assert!(one["metadata"]["continue"].is_null());
}

#[tokio::test]
async fn a_collection_is_deleted_up_to_its_limit() {
    let client = server().client();
    create(&client, &["b", "c"]).await;
    let held = json!({"metadata": {"name": "a", "finalizers": ["example.dev/held"]}});
    ok(&client, "POST", CONFIGMAPS, Some(&held)).await;
    let deleted = ok(
        &client,
        "DELETE",
        &format!("{CONFIGMAPS}?limit=2&dryRun=All"),
        None,
    )
    .await;
    assert_eq!(names(&deleted), ["a", "b"]);
    let deleted = ok(&client, "DELETE", &format!("{CONFIGMAPS}?limit=2"), None).await;
    assert_eq!(names(&deleted), ["a", "b"]);
    let before = &deleted["items"][0]["metadata"];
    assert!(before["deletionTimestamp"].is_null(), "{before}");
    let rest = list(&client, "").await;
    assert_eq!(names(&rest), ["a", "c"]);
    assert!(rest["items"][0]["metadata"]["deletionTimestamp"].is_string());
}

#[tokio::test]
async fn a_dry_run_in_the_options_checks_the_preconditions() {
    let client = server().client();
    create(&client, &["a"]).await;
    let path = format!("{CONFIGMAPS}/a");
    let other = json!({"dryRun": ["All"], "preconditions": {"uid": "other"}});
    assert_eq!(call(&client, "DELETE", &path, Some(&other)).await.code, 409);
    let deleted = ok(&client, "DELETE", &path, Some(&json!({"dryRun": ["All"]}))).await;
    assert_eq!(deleted["status"], "Success");
    ok(&client, "GET", &path, None).await;
}

#[tokio::test]
async fn kinds_without_a_conversion_select_by_name_and_namespace() {
    let client = server().client();
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let named = ok(
        &client,
        "GET",
        &format!("{roles}?fieldSelector=metadata.name%3Dview"),
        None,
    )
    .await;
    assert_eq!(names(&named), ["view"]);
    let in_none = ok(
        &client,
        "GET",
        &format!("{roles}?fieldSelector=metadata.namespace%3Dx"),
        None,
    )
    .await;
    assert!(names(&in_none).is_empty());
    let refused = call(&client, "GET", &format!("{roles}?fieldSelector=rules%3Dx"), None).await;
    let message = "\"rules\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    assert_eq!((refused.code, &refused.body["message"]), (400, &json!(message)));
}
