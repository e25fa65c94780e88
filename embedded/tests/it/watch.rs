//! Watches.

use std::time::Duration;

use futures::io::Lines;
use futures::{AsyncBufReadExt, StreamExt};
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use sluice_embedded::Store;

use crate::fixture::{CONFIGMAPS, WIDGETS, ok, server, server_on, widget};

/// A running watch.
pub(crate) struct Events<R>(Lines<R>);

impl<R: futures::AsyncBufRead + Unpin> Events<R> {
    /// Returns type and object of the next event.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        let line = tokio::time::timeout(Duration::from_secs(20), self.0.next())
            .await
            .expect("an event in time")?;
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        Some((
            event["type"].as_str().unwrap().to_owned(),
            event["object"].clone(),
        ))
    }

    /// Returns type and name of the next event.
    pub(crate) async fn next_name(&mut self) -> (String, String) {
        let (type_, object) = self.next().await.expect("the watch has not ended");
        (
            type_,
            object["metadata"]["name"].as_str().unwrap_or("").to_owned(),
        )
    }
}

/// Starts a watch.
pub(crate) async fn watch(client: &Client, path: &str) -> Events<impl futures::AsyncBufRead + Unpin + use<>> {
    watch_as(client, path, "application/json").await
}

/// Starts a watch with this `Accept` header.
async fn watch_as(
    client: &Client,
    path: &str,
    accept: &str,
) -> Events<impl futures::AsyncBufRead + Unpin + use<>> {
    let request = Request::get(path)
        .header("accept", accept)
        .body(Vec::new())
        .unwrap();
    Events(Box::pin(client.request_stream(request).await.unwrap()).lines())
}

/// Returns the type of an event and the name of its object.
pub(crate) fn pair(type_: &str, name: &str) -> (String, String) {
    (type_.into(), name.into())
}

#[tokio::test]
async fn a_watch_sends_existing_objects_and_then_changes() {
    let client = server().client();
    ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    let mut events = watch(&client, &format!("{WIDGETS}?watch=1")).await;
    assert_eq!(events.next_name().await, pair("ADDED", "a"));
    ok(&client, "POST", WIDGETS, Some(&widget("b", 1))).await;
    assert_eq!(events.next_name().await, pair("ADDED", "b"));
    ok(
        &client,
        "PATCH",
        &format!("{WIDGETS}/a"),
        Some(&json!({"spec": {"size": 2}})),
    )
    .await;
    assert_eq!(events.next_name().await, pair("MODIFIED", "a"));
    ok(&client, "DELETE", &format!("{WIDGETS}/a"), None).await;
    let (type_, last) = events.next().await.unwrap();
    assert_eq!((type_.as_str(), &last["spec"]["size"]), ("DELETED", &json!(2)));
    let version = |object: &Value| {
        object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let widgets = ok(&client, "GET", WIDGETS, None).await;
    assert_eq!(
        version(&last),
        version(&widgets),
        "a deletion has its own version"
    );
}

#[tokio::test]
async fn a_watch_resumes_after_a_version() {
    let client = server().client();
    let first = ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    ok(&client, "POST", WIDGETS, Some(&widget("b", 1))).await;
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = watch(&client, &format!("{WIDGETS}?watch=1&resourceVersion={version}")).await;
    assert_eq!(events.next_name().await, pair("ADDED", "b"));
}

#[tokio::test]
async fn objects_that_enter_or_leave_the_selection_are_added_or_deleted() {
    let client = server().client();
    let label = |value: &str| json!({"metadata": {"name": "a", "labels": {"on": value}}});
    ok(&client, "POST", CONFIGMAPS, Some(&label("no"))).await;
    let mut events = watch(&client, &format!("{CONFIGMAPS}?watch=1&labelSelector=on%3Dyes")).await;
    let path = format!("{CONFIGMAPS}/a");
    ok(&client, "PATCH", &path, Some(&label("yes"))).await;
    assert_eq!(events.next_name().await, pair("ADDED", "a"));
    ok(&client, "PATCH", &path, Some(&json!({"data": {"x": "y"}}))).await;
    assert_eq!(events.next_name().await, pair("MODIFIED", "a"));
    ok(&client, "PATCH", &path, Some(&label("no"))).await;
    let (type_, last) = events.next().await.unwrap();
    assert_eq!(
        (type_.as_str(), &last["metadata"]["labels"]["on"]),
        ("DELETED", &json!("yes"))
    );
}

#[tokio::test]
async fn a_version_outside_the_window_is_expired() {
    let client = server_on(Store::memory().with_watch_window(3)).client();
    let first = ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    for size in 2..8 {
        ok(
            &client,
            "PATCH",
            &format!("{WIDGETS}/a"),
            Some(&json!({"spec": {"size": size}})),
        )
        .await;
    }
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = watch(&client, &format!("{WIDGETS}?watch=1&resourceVersion={version}")).await;
    let (type_, status) = events.next().await.unwrap();
    assert_eq!(
        (type_.as_str(), &status["code"], &status["reason"]),
        ("ERROR", &json!(410), &json!("Expired"))
    );
    assert!(events.next().await.is_none(), "the watch has ended");
}

#[tokio::test]
async fn a_watch_ends_at_its_timeout_with_a_bookmark() {
    let client = server().client();
    let path = format!("{WIDGETS}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true");
    let mut events = watch(&client, &path).await;
    let (type_, first) = events.next().await.unwrap();
    assert_eq!((type_.as_str(), &first["kind"]), ("BOOKMARK", &json!("Widget")));
    assert_eq!(
        first["metadata"]["annotations"]["k8s.io/initial-events-end"], "true",
        "a watch without a version begins with the existing objects"
    );
    let (type_, last) = events.next().await.unwrap();
    assert_eq!((type_.as_str(), &last["kind"]), ("BOOKMARK", &json!("Widget")));
    assert!(last["metadata"]["annotations"].is_null());
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn a_watch_without_initial_events_begins_with_the_next_change() {
    let client = server().client();
    ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    let query = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut events = watch(&client, &format!("{WIDGETS}?{query}")).await;
    ok(&client, "POST", WIDGETS, Some(&widget("b", 1))).await;
    assert_eq!(events.next_name().await, pair("ADDED", "b"));
}

#[tokio::test]
async fn a_watch_with_a_timeout_in_the_past_ends_after_the_existing_objects() {
    let client = server().client();
    ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    let mut events = watch(&client, &format!("{WIDGETS}?watch=1&timeoutSeconds=-1")).await;
    assert_eq!(events.next_name().await, pair("ADDED", "a"));
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn streaming_lists_end_the_initial_events_with_a_bookmark() {
    let client = server().client();
    ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = watch(&client, &format!("{WIDGETS}?{query}")).await;
    assert_eq!(events.next_name().await, pair("ADDED", "a"));
    let (type_, bookmark) = events.next().await.unwrap();
    assert_eq!(type_, "BOOKMARK");
    assert_eq!(
        bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
}

#[tokio::test]
async fn an_informer_of_metadata_gets_no_spec() {
    let client = server().client();
    ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    // What the metadata client of client-go sends, with WatchList.
    let accept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
    let query =
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = watch_as(&client, &format!("{WIDGETS}?{query}"), accept).await;
    let (type_, object) = events.next().await.unwrap();
    assert_eq!(
        (&*type_, &object["kind"]),
        ("ADDED", &json!("PartialObjectMetadata"))
    );
    assert_eq!(object["metadata"]["name"], "a");
    assert!(object["spec"].is_null());
    let (type_, bookmark) = events.next().await.unwrap();
    assert_eq!(
        (&*type_, &bookmark["kind"]),
        ("BOOKMARK", &json!("PartialObjectMetadata"))
    );
    assert_eq!(
        bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    ok(&client, "PATCH", &format!("{WIDGETS}/a"), Some(&label)).await;
    assert_eq!(events.next_name().await, pair("MODIFIED", "a"));
    ok(&client, "DELETE", &format!("{WIDGETS}/a"), None).await;
    let (type_, last) = events.next().await.unwrap();
    assert_eq!(
        (&*type_, &last["metadata"]["labels"]["a"]),
        ("DELETED", &json!("b"))
    );
    assert!(last["spec"].is_null());
}

#[tokio::test]
async fn a_watch_of_tables_describes_the_columns_once() {
    let client = server().client();
    ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let mut events = watch_as(&client, &format!("{WIDGETS}?watch=true"), accept).await;
    let (_, first) = events.next().await.unwrap();
    assert_eq!(
        (&first["kind"], &first["rows"][0]["cells"][0]),
        (&json!("Table"), &json!("a"))
    );
    assert!(!first["columnDefinitions"].as_array().unwrap().is_empty());
    ok(&client, "DELETE", &format!("{WIDGETS}/a"), None).await;
    let (type_, last) = events.next().await.unwrap();
    assert_eq!((&*type_, &last["rows"][0]["cells"][0]), ("DELETED", &json!("a")));
    assert!(last["columnDefinitions"].as_array().unwrap().is_empty());
}
