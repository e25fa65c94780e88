//! Watches on a Git repository from versions that are not in memory any more.

use std::path::Path;

use kube::Client;
use serde_json::{Value, json};
use sluice_embedded::Store;

use crate::fixture::{SECRETS, WIDGETS, call, eventually, ok, server_on, widget, widget_definition};
use crate::git_store::{Checkout, options, repository};
use crate::watch::{pair, watch};

/// Changes in memory.
const WINDOW: usize = 2;

fn labelled(value: &str) -> Value {
    json!({"metadata": {"labels": {"on": value}}})
}

/// Writes and pushes more changes than the window has: of the widget `a`, which has a label first, and of the widget `b` of a user.
async fn make_changes(client: &Client, dir: &Path) {
    let (path, pushed) = (format!("{WIDGETS}/a"), format!("{WIDGETS}/b"));
    let pushed = pushed.as_str();
    let mut a = widget("a", 1);
    a["metadata"]["labels"] = json!({"on": "yes"});
    ok(client, "POST", WIDGETS, Some(&a)).await;
    let status = json!({"status": {"phase": "Ready"}});
    ok(client, "PATCH", &format!("{path}/status"), Some(&status)).await;
    let clone = Checkout::new(dir);
    let text = "apiVersion: example.dev/v1\nkind: Widget\nmetadata:\n  name: b\nspec:\n  size: 7\n";
    clone.write("mine.yaml", text);
    clone.push();
    eventually("the file is served", || async {
        call(client, "GET", pushed, None).await.code == 200
    })
    .await;
    ok(client, "PATCH", &path, Some(&labelled("no"))).await;
    ok(client, "DELETE", pushed, None).await;
    ok(client, "DELETE", &path, None).await;
    ok(client, "POST", WIDGETS, Some(&a)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_from_before_the_window_has_the_changes_of_the_history() {
    let dir = tempfile::tempdir().unwrap();
    let repository = repository(dir.path());
    let store = Store::git(options(dir.path(), &repository), &[widget_definition()]).unwrap();
    let client = server_on(store.with_watch_window(WINDOW)).client();
    let list = ok(&client, "GET", WIDGETS, None).await;
    let since = list["metadata"]["resourceVersion"].as_str().unwrap();
    make_changes(&client, dir.path()).await;

    let from = |path: &str, selector: &str| format!("{path}?watch=1&resourceVersion={since}{selector}");
    let mut events = watch(&client, &from(WIDGETS, "")).await;
    for (type_, name) in [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("ADDED", "b"),
        ("MODIFIED", "a"),
        ("DELETED", "b"),
        ("DELETED", "a"),
        ("ADDED", "a"),
    ] {
        assert_eq!(events.next_name().await, pair(type_, name));
    }
    let mut selected = watch(&client, &from(WIDGETS, "&labelSelector=on%3Dyes")).await;
    for type_ in ["ADDED", "MODIFIED", "DELETED", "ADDED"] {
        let (received, object) = selected.next().await.unwrap();
        assert_eq!(
            (received.as_str(), &object["metadata"]["labels"]["on"]),
            (type_, &json!("yes"))
        );
    }
    let mut named = watch(&client, &from(WIDGETS, "&fieldSelector=metadata.name%3Db")).await;
    for type_ in ["ADDED", "DELETED"] {
        assert_eq!(named.next_name().await, pair(type_, "b"));
    }

    // They go on with the changes from now on.
    let path = format!("{WIDGETS}/a");
    ok(&client, "PATCH", &path, Some(&labelled("maybe"))).await;
    assert_eq!(events.next_name().await, pair("MODIFIED", "a"));
    assert_eq!(selected.next_name().await, pair("DELETED", "a"));
    ok(&client, "POST", WIDGETS, Some(&widget("b", 1))).await;
    assert_eq!(named.next_name().await, pair("ADDED", "b"));
    // Secrets are on this machine, where they have no history.
    let mut secrets = watch(&client, &from(SECRETS, "")).await;
    let (type_, status) = secrets.next().await.unwrap();
    assert_eq!((type_.as_str(), &status["code"]), ("ERROR", &json!(410)));
}
