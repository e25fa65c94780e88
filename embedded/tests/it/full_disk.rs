//! A full disk: a small file system in a mount namespace of its own, in which this test runs again.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use sluice_embedded::{StorageHealth, Store};
use tokio::process::Command;

use crate::fixture::{SECRETS, call, eventually, ok, send, server_on};

/// Set for the inner run.
const MOUNT: &str = "SLUICE_SMALL_DISK";

/// Skipped with a message where the system allows no mounts; under CI that is a failure.
#[tokio::test]
async fn the_server_recovers_from_a_full_disk() {
    if let Some(mount) = std::env::var_os(MOUNT) {
        return run_inside(Path::new(&mount)).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let mount = dir.path().join("disk");
    std::fs::create_dir(&mount).unwrap();
    let script = "mount -t tmpfs -o size=64m small \"$1\" || exit 77\nexec \"$2\" --exact full_disk::the_server_recovers_from_a_full_disk --nocapture";
    let child = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(&mount)
        .arg(std::env::current_exe().unwrap())
        .env(MOUNT, &mount)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_mins(2), child)
        .await
        .expect("in time");
    let unmountable = match &output {
        Ok(output) => {
            output.status.code() == Some(77) || String::from_utf8_lossy(&output.stderr).contains("unshare:")
        }
        Err(_) => true,
    };
    if unmountable {
        assert!(
            std::env::var_os("CI").is_none(),
            "no small disk can be mounted: {output:?}"
        );
        println!("SKIPPED: no small disk can be mounted");
        return;
    }
    let output = output.unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}

fn secret(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "QUFB".repeat(100_000)}})
}

async fn ready(client: &kube::Client) -> u16 {
    send(client, "GET", "/readyz", &[], Vec::new()).await.code
}

async fn run_inside(disk: &Path) {
    let path = disk.join("objects.redb");
    let embedded = server_on(Store::file(&path).unwrap());
    let (client, health) = (embedded.client(), embedded.storage_health());
    ok(&client, "POST", SECRETS, Some(&secret("first"))).await;
    assert_eq!(ready(&client).await, 200);
    // Full except for the reserve.
    let filler = disk.join("filler");
    drop(std::fs::write(&filler, vec![1_u8; 64 << 20]).unwrap_err());
    let (mut stored, mut rejected) = (vec!["first".to_owned()], Vec::new());
    // Concurrent writes share commits; a failed one must not affect those that were acknowledged.
    let mut responses = futures::stream::iter(0..60)
        .map(|number| {
            let (client, name) = (client.clone(), format!("s{number}"));
            async move { (call(&client, "POST", SECRETS, Some(&secret(&name))).await, name) }
        })
        .buffer_unordered(6);
    while let Some((response, name)) = responses.next().await {
        if response.code == 201 {
            stored.push(name);
        } else {
            assert_eq!(response.code, 500, "{response:?}");
            rejected.push(name);
        }
    }
    drop(responses);
    assert!(
        stored.len() > 10,
        "only {} were stored on the reserve",
        stored.len()
    );
    assert!(!rejected.is_empty(), "the disk is full in the end");
    assert_ne!(*health.borrow(), StorageHealth::Writable);
    assert_eq!(ready(&client).await, 500);
    assert_eq!(send(&client, "GET", "/livez", &[], Vec::new()).await.code, 200);
    for name in &rejected {
        let path = format!("{SECRETS}/{name}");
        assert_eq!(
            call(&client, "GET", &path, None).await.code,
            404,
            "rejected but stored: {name}"
        );
    }
    std::fs::remove_file(&filler).unwrap();
    eventually("the server recovers", || async { ready(&client).await == 200 }).await;
    ok(&client, "POST", SECRETS, Some(&secret("last"))).await;
    stored.push("last".to_owned());
    drop((client, embedded));
    stored.sort();
    let again = server_on(crate::restart::open_when_released(&path).await).client();
    let list = ok(&again, "GET", SECRETS, None).await;
    let names: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, stored, "exactly the acknowledged writes are stored");
}
