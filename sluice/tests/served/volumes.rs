//! Tests of the volume at startup: unchanged, with artifacts of deleted objects, read-only, or full.
//!
//! Read-only and full volumes are real file systems: the program runs in its own mount namespace.

use std::fmt::Write as _;
use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::json;
use sluice_api::source::GitRepository;
use sluice_harness::git::{GitServer, Repository};

use crate::fixture::{Controller, LIMIT, api, get, start_on};
use crate::program::Program;

/// Waits for a condition on the file system by polling.
async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let looking = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, looking).await.expect(what);
}

#[tokio::test]
async fn artifacts_of_objects_deleted_meanwhile_are_removed() {
    let api = api();
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    let commit = repository.commit_files(&[("main.tf", "")], "first").unwrap();
    let url = server.serve("app", &repository);
    let first = start_on(api.client(), tempfile::tempdir().unwrap(), &[]).await;
    for name in ["stays", "goes"] {
        first.create(name, &url, "20s").await;
        first.ready(name, &commit).await;
    }
    let Controller {
        objects,
        stop,
        running,
        storage,
    } = first;
    stop.cancel();
    tokio::time::timeout(LIMIT, running.wait())
        .await
        .expect("an end in time");
    // Deleted without the controller: another client removed the finalizer.
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    objects
        .patch("goes", &PatchParams::default(), &free)
        .await
        .unwrap();
    objects.delete("goes", &DeleteParams::default()).await.unwrap();
    let directory = |name: &str| storage.path().join("gitrepository/default").join(name);
    let (stays, goes) = (directory("stays"), directory("goes"));
    assert!(stays.exists() && goes.exists());
    let second = start_on(api.client(), storage, &[]).await;
    eventually("orphans are removed", || !goes.exists()).await;
    second.ready("stays", &commit).await;
    assert!(stays.join(format!("{commit}.tar.gz")).exists());
    second.end().await;
}

async fn request_reconciliation(objects: &Api<GitRepository>, token: &str) {
    let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": token } } });
    objects
        .patch("app", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_read_only_volume_still_serves_its_artifacts() {
    let api = api();
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    let commit = repository.commit_files(&[("main.tf", "")], "first").unwrap();
    let first = start_on(api.client(), tempfile::tempdir().unwrap(), &[]).await;
    first
        .create("app", &server.serve("app", &repository), "20s")
        .await;
    let before = first.ready("app", &commit).await;
    let Controller {
        objects,
        stop,
        running,
        storage,
    } = first;
    stop.cancel();
    tokio::time::timeout(LIMIT, running.wait())
        .await
        .expect("an end in time");
    let directory = tempfile::tempdir().unwrap();
    let read_only = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\"";
    let program = Program::start(&api, directory.path(), storage.path(), read_only).await;
    let url_of = |object: &GitRepository| {
        let artifact = object.status.as_ref().and_then(|status| status.artifact.as_ref());
        artifact.map(|artifact| artifact.url.clone())
    };
    let moved = |object: Option<&GitRepository>| object.and_then(url_of).is_some_and(|url| url != before.url);
    let found = tokio::time::timeout(LIMIT, await_condition(objects.clone(), "app", moved)).await;
    let url = url_of(&found.expect("another address in time").unwrap().unwrap()).unwrap();
    assert_eq!(
        Some(get(&url).await.len()),
        before.size.map(|size| usize::try_from(size).unwrap())
    );
    repository
        .commit_files(&[("main.tf", "locals {}")], "second")
        .unwrap();
    request_reconciliation(&objects, "1").await;
    program
        .wait_for(&objects, "app", |ready| {
            ready.status == "False" && ready.message.contains("Read-only file system")
        })
        .await;
    assert_eq!(
        Some(get(&url).await.len()),
        before.size.map(|size| usize::try_from(size).unwrap())
    );
}

#[tokio::test]
async fn a_full_volume_is_reported_and_recovers() {
    let api = api();
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    repository.commit_files(&[("main.tf", "")], "first").unwrap();
    let (directory, storage) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let full = "mount -t tmpfs -o size=256k tmpfs \"$1\" && { head -c 300000 /dev/zero > \"$1\"/ballast 2>/dev/null; true; }";
    let program = Program::start(&api, directory.path(), storage.path(), full).await;
    let objects: Api<GitRepository> = Api::namespaced(api.client(), "default");
    let object = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": "app" },
        "spec": { "url": server.serve("app", &repository), "interval": "10m", "ref": { "branch": "main" } },
    });
    let object = serde_json::from_value(object).unwrap();
    objects.create(&PostParams::default(), &object).await.unwrap();
    program
        .wait_for(&objects, "app", |ready| {
            ready.status == "False" && ready.message.contains("No space left on device")
        })
        .await;
    std::fs::remove_file(program.path_of(&storage.path().join("ballast"))).unwrap();
    program
        .wait_for(&objects, "app", |ready| ready.status == "True")
        .await;
}

/// Returns a text that compresses to half its size at best.
fn noise(seed: u64, bytes: usize) -> String {
    let mut state = seed;
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        write!(text, "{:08x}", state >> 32).unwrap();
    }
    text
}

#[tokio::test]
async fn mirrors_are_removed_from_a_full_volume_before_a_failure() {
    let api = api();
    let server = GitServer::start().await.unwrap();
    let (directory, storage) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Mirror and artifact of one repository take 2.4 MB: two of both do not fit, but one mirror less does.
    let small = "mount -t tmpfs -o size=4300k tmpfs \"$1\"";
    let program = Program::start(&api, directory.path(), storage.path(), small).await;
    let objects: Api<GitRepository> = Api::namespaced(api.client(), "default");
    let mut repositories = Vec::new();
    for (seed, name) in [(1, "old"), (2, "new")] {
        let repository = Repository::create().unwrap();
        let text = noise(seed, 2_400_000);
        repository
            .commit_files(&[("main.tf", text.as_str())], name)
            .unwrap();
        let object = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": name },
            "spec": { "url": server.serve(name, &repository), "interval": "10m", "ref": { "branch": "main" } },
        });
        let object = serde_json::from_value(object).unwrap();
        objects.create(&PostParams::default(), &object).await.unwrap();
        program
            .wait_for(&objects, name, |ready| ready.status == "True")
            .await;
        repositories.push(repository);
    }
    let mirrors = std::fs::read_dir(program.path_of(&storage.path().join(".mirrors"))).unwrap();
    let mirrors = mirrors
        .filter(|entry| entry.as_ref().unwrap().path().is_dir())
        .count();
    assert_eq!(mirrors, 1);
}
