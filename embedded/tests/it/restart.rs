//! The file store: what was answered is there after a restart.

use serde_json::json;
use sluice_embedded::Store;

use crate::fixture::{CONFIGMAPS, WIDGETS, call, ok, server_on, widget};

#[tokio::test]
async fn objects_and_versions_survive() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let made = {
        let client = server_on(Store::file(&path).unwrap()).client();
        ok(
            &client,
            "POST",
            CONFIGMAPS,
            Some(&json!({"metadata": {"name": "gone"}})),
        )
        .await;
        ok(&client, "DELETE", &format!("{CONFIGMAPS}/gone"), None).await;
        ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await
    };
    let store = open_when_released(&path).await;
    let client = server_on(store).client();
    assert_eq!(ok(&client, "GET", &format!("{WIDGETS}/a"), None).await, made);
    assert_eq!(
        call(&client, "GET", &format!("{CONFIGMAPS}/gone"), None)
            .await
            .code,
        404
    );
    let next = ok(
        &client,
        "PATCH",
        &format!("{WIDGETS}/a"),
        Some(&json!({"spec": {"size": 2}})),
    )
    .await;
    let version = |object: &serde_json::Value| {
        object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert!(version(&next) > version(&made));
}

/// The first server's tasks end a moment after its last client.
pub(crate) async fn open_when_released(path: &std::path::Path) -> Store {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        match Store::file(path) {
            Ok(store) => return store,
            Err(error) => assert!(tokio::time::Instant::now() < deadline, "{error}"),
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_file_that_is_no_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    std::fs::write(
        &path,
        "no database, but long enough to be read as the head of one".repeat(100),
    )
    .unwrap();
    assert!(Store::file(&path).unwrap_err().to_string().contains("state.redb"));
}
