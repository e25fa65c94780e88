//! A disk that is really full: a small file system in a mount namespace of its own, in which this test is run again.

use std::{path::Path, process::Stdio, time::Duration};

use futures::StreamExt;
use serde_json::{Value, json};
use sluice_embedded::{StorageHealth, Store};
use tokio::process::Command;

use crate::fixture::{SECRETS, call, eventually, ok, send, server_on};

/// Set for the run inside.
const MOUNT: &str = "SLUICE_SMALL_DISK";

/// Skipped, with a line that says so, where the system allows no mounts; under CI that is a failure.
#[tokio::test]
async fn a_disk_that_fills_up_is_survived() {
    if let Some(mount) = std::env::var_os(MOUNT) {
        return inside(Path::new(&mount)).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let mount = dir.path().join("disk");
    std::fs::create_dir(&mount).unwrap();
    let script = "mount -t tmpfs -o size=64m small \"$1\" || exit 77\nexec \"$2\" --exact full_disk::a_disk_that_fills_up_is_survived --nocapture";
    let child = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(&mount)
        .arg(std::env::current_exe().unwrap())
        .env(MOUNT, &mount)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(120), child)
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
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

fn secret(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "QUFB".repeat(100_000)}})
}

async fn ready(client: &kube::Client) -> u16 {
    send(client, "GET", "/readyz", &[], Vec::new()).await.code
}

async fn inside(disk: &Path) {
    let path = disk.join("objects.redb");
    let embedded = server_on(Store::file(&path).unwrap());
    let (client, health) = (embedded.client(), embedded.storage());
    ok(&client, "POST", SECRETS, Some(&secret("first"))).await;
    assert_eq!(ready(&client).await, 200);
    // Full but for what the reserve holds.
    let filler = disk.join("filler");
    drop(std::fs::write(&filler, vec![1_u8; 64 << 20]).unwrap_err());
    let (mut stored, mut refused) = (vec!["first".to_owned()], Vec::new());
    // Several at a time: they share commits, and those that fail must not take with them what was answered.
    let mut answers = futures::stream::iter(0..60)
        .map(|number| {
            let (client, name) = (client.clone(), format!("s{number}"));
            async move { (call(&client, "POST", SECRETS, Some(&secret(&name))).await, name) }
        })
        .buffer_unordered(6);
    while let Some((answer, name)) = answers.next().await {
        if answer.code == 201 {
            stored.push(name);
        } else {
            assert_eq!(answer.code, 500, "{answer:?}");
            refused.push(name);
        }
    }
    drop(answers);
    assert!(stored.len() > 10, "the reserve took {}", stored.len());
    assert!(!refused.is_empty(), "the disk is full at last");
    assert_ne!(*health.borrow(), StorageHealth::Writable);
    assert_eq!(ready(&client).await, 500);
    assert_eq!(send(&client, "GET", "/livez", &[], Vec::new()).await.code, 200);
    for name in &refused {
        let path = format!("{SECRETS}/{name}");
        assert_eq!(
            call(&client, "GET", &path, None).await.code,
            404,
            "refused and there: {name}"
        );
    }
    std::fs::remove_file(&filler).unwrap();
    eventually("it recovers by itself", || async { ready(&client).await == 200 }).await;
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
    assert_eq!(names, stored, "what was answered is there, and nothing else");
}
