//! Tests of downloads during ten revisions per second: each download matches the status.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, Empty};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::json;
use sluice_api::source::Artifact;
use sluice_harness::git::{GitServer, Repository};
use sluice_runtime::http::{HttpClient, Settings, client};
use sluice_source_controller::archive::{Algorithm, Hasher};
use tokio::sync::watch;

use crate::fixture::{Controller, start};

const DOWNLOADS: u64 = 10_000;
/// Minimum number of revisions during the downloads.
const CHANGES: u64 = 10;
const CONSUMERS: usize = 4;
const CHANGE: Duration = Duration::from_millis(100);
/// Time limit of the test, which takes a few seconds.
const TIME_LIMIT: Duration = Duration::from_mins(4);

/// Downloads an artifact and checks it.
async fn download(client: &HttpClient<Empty<Bytes>>, artifact: &Artifact) -> Result<(), String> {
    let answer = client.get(artifact.url.parse().unwrap()).await;
    let answer = answer.map_err(|error| format!("{}: {error}", artifact.url))?;
    let status = answer.status();
    let body = answer.into_body().collect().await;
    let body = body
        .map_err(|error| format!("{}: {error}", artifact.url))?
        .to_bytes();
    let digest = Hasher::of(Algorithm::Sha256, &*body).unwrap().to_string();
    if status != 200 || Some(body.len()) != artifact.size.map(|size| usize::try_from(size).unwrap()) {
        return Err(format!("{}: {status}, {} bytes", artifact.url, body.len()));
    }
    (digest == artifact.digest)
        .then_some(())
        .ok_or_else(|| format!("{}: {digest} instead of {}", artifact.url, artifact.digest))
}

/// Downloads the artifact in the status repeatedly, until all consumers together have enough, of enough revisions. Reads the
/// status from a watch, which lags.
async fn consume(
    seen: watch::Receiver<Artifact>,
    done: Arc<AtomicU64>,
    changes: Arc<AtomicU64>,
) -> Result<(), String> {
    let client = client(&Settings::default()).unwrap();
    while done.fetch_add(1, Ordering::Relaxed) < DOWNLOADS || changes.load(Ordering::Relaxed) < CHANGES {
        let artifact = seen.borrow().clone();
        download(&client, &artifact).await?;
    }
    Ok(())
}

/// Follows the artifact in the status, and counts its changes.
fn follow(controller: &Controller, first: Artifact) -> (watch::Receiver<Artifact>, Arc<AtomicU64>) {
    let (cell, seen) = watch::channel(first);
    let (changes, objects) = (Arc::new(AtomicU64::new(0)), controller.objects.clone());
    let counted = Arc::clone(&changes);
    tokio::spawn(async move {
        let mut events = watcher(objects, watcher::Config::default())
            .default_backoff()
            .applied_objects()
            .boxed();
        while let Some(Ok(object)) = events.next().await {
            let Some(artifact) = object.status.and_then(|status| status.artifact) else {
                continue;
            };
            counted.fetch_add(
                u64::from(cell.borrow().digest != artifact.digest),
                Ordering::Relaxed,
            );
            if cell.send(artifact).is_err() {
                return;
            }
        }
    });
    (seen, changes)
}

/// Commits and requests a reconciliation every [`CHANGE`], while the future is polled.
async fn push(controller: &Controller, repository: Repository) {
    let repository = Arc::new(repository);
    let mut ticks = tokio::time::interval(CHANGE);
    for n in 0_u64.. {
        ticks.tick().await;
        let repository = Arc::clone(&repository);
        let commit = tokio::task::spawn_blocking(move || {
            repository.commit_files(&[("main.tf", format!("locals {{ n = {n} }}\n"))], "change")
        });
        commit.await.unwrap().unwrap();
        let annotation = json!({ "reconcile.fluxcd.io/requestedAt": n.to_string() });
        controller
            .patch("app", json!({ "metadata": { "annotations": annotation } }))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_downloads_of_changing_revisions_all_match() {
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    let first = repository
        .commit_files(&[("main.tf", "locals {}\n")], "first")
        .unwrap();
    let controller = start(&[]).await;
    controller
        .create("app", &server.serve("app", &repository), "20s")
        .await;
    let (seen, changes) = follow(&controller, controller.ready("app", &first).await);
    let done = Arc::new(AtomicU64::new(0));
    let consumers =
        (0..CONSUMERS).map(|_| tokio::spawn(consume(seen.clone(), Arc::clone(&done), Arc::clone(&changes))));
    let consumers = futures::future::join_all(consumers.collect::<Vec<_>>());
    let results = tokio::time::timeout(TIME_LIMIT, async {
        tokio::select! {
            results = consumers => results,
            () = push(&controller, repository) => unreachable!("pushing does not end"),
        }
    });
    let failures: Vec<_> = results
        .await
        .expect("an end in time")
        .into_iter()
        .filter_map(|result| result.unwrap().err())
        .collect();
    assert_eq!(failures, Vec::<String>::new());
    let (done, changes) = (done.load(Ordering::Relaxed), changes.load(Ordering::Relaxed));
    println!("{done} downloads over {changes} revisions: none failed, none mismatched");
    assert!(
        done >= DOWNLOADS && changes >= CHANGES,
        "{done} downloads of {changes} revisions"
    );
    controller.end().await;
}
