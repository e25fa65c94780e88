//! Benchmarks: write throughput of a store on disk, and duration of a full list. Run them by name on a quiet machine:
//! `cargo test -p sluice-embedded --test it -- --ignored --nocapture speed`.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use sluice_embedded::Store;

use crate::fixture::{CONFIGMAPS, WIDGETS, ok, server_on, widget};

/// Objects that each write benchmark creates.
const CREATED: usize = 1_600;
/// Objects in the list.
const LISTED: usize = 10_000;
/// Number of rounds; the best one counts.
const ROUNDS: usize = 3;

/// Returns the creates per second of concurrent writers, each with one request at a time.
async fn creates_per_second(folder: &Path, writers: usize) -> f64 {
    let dir = tempfile::tempdir_in(folder).unwrap();
    let client = server_on(Store::file(dir.path().join("objects.redb")).unwrap()).client();
    let began = Instant::now();
    let tasks = (0..writers).map(|writer| {
        let client = client.clone();
        tokio::spawn(async move {
            for number in 0..CREATED / writers {
                let name = format!("w{writer}-{number}");
                let object = json!({"metadata": {"name": name}, "data": {"text": "x".repeat(500)}});
                ok(&client, "POST", CONFIGMAPS, Some(&object)).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    f64::from(u32::try_from(CREATED).unwrap()) / began.elapsed().as_secs_f64()
}

async fn full_list() -> Duration {
    let client = server_on(Store::memory()).client();
    for number in 0..LISTED {
        let mut object = widget(&format!("w{number}"), 1);
        object["metadata"]["annotations"] = json!({"text": "x".repeat(500)});
        ok(&client, "POST", WIDGETS, Some(&object)).await;
    }
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let request = http::Request::get(WIDGETS)
            .body(kube::client::Body::empty())
            .unwrap();
        let bytes = client
            .send(request)
            .await
            .unwrap()
            .into_body()
            .collect_bytes()
            .await
            .unwrap();
        best = best.min(began.elapsed());
        assert!(bytes.len() > LISTED * 500);
    }
    best
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a benchmark, meaningful only on a quiet machine"]
async fn writers_share_commits_and_a_full_list_is_quick() {
    // In the target directory: a temporary directory may be in memory, where nothing is synced.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (mut one, mut eight) = (0.0_f64, 0.0_f64);
    for _ in 0..ROUNDS {
        one = one.max(creates_per_second(folder, 1).await);
        eight = eight.max(creates_per_second(folder, 8).await);
    }
    println!("creates per second: {one:.0} by one writer, {eight:.0} by eight");
    println!(
        "a list of {LISTED} objects: {:.3} s",
        full_list().await.as_secs_f64()
    );
    assert!(eight > 2.0 * one, "eight writers share commits");
}
