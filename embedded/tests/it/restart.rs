//! Restarts with a file store.

use serde_json::json;
use sluice_embedded::Store;

use crate::fixture::{CONFIGMAPS, WIDGETS, call, ok, server_on, widget};

#[tokio::test]
async fn objects_and_versions_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let created = {
        let client = server_on(Store::file(&path).unwrap()).client();
        ok(
            &client,
            "POST",
            CONFIGMAPS,
            Some(&json!({"metadata": {"name": "deleted"}})),
        )
        .await;
        ok(&client, "DELETE", &format!("{CONFIGMAPS}/deleted"), None).await;
        ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await
    };
    let store = open_when_released(&path).await;
    let client = server_on(store).client();
    assert_eq!(ok(&client, "GET", &format!("{WIDGETS}/a"), None).await, created);
    assert_eq!(
        call(&client, "GET", &format!("{CONFIGMAPS}/deleted"), None)
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
    assert!(version(&next) > version(&created));
}

/// Opens the store as soon as the tasks of the previous server have ended, shortly after its last client.
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
async fn a_file_of_another_format_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    std::fs::write(
        &path,
        "not a database, but long enough for the header of one".repeat(100),
    )
    .unwrap();
    assert!(Store::file(&path).unwrap_err().to_string().contains("state.redb"));
}
