//! What happens to stored files is noticed.

use std::fs;
use std::sync::Arc;

use serde_json::json;

use super::world::World;
use crate::storage::LocalDirectory;

#[tokio::test]
async fn a_file_that_was_deleted_is_made_again() {
    let world = World::ready().await;
    let before = world.artifact("app").await;
    fs::remove_file(world.file(&before)).unwrap();
    world.pass("app").await;
    // The same bytes again: no news for anybody.
    insta::assert_snapshot!(world.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 1 observed 1 artifact main@sha1:<first>
    ");
    assert_eq!(world.artifact("app").await.digest, before.digest);
    assert!(world.file(&before).exists());
}

#[tokio::test]
async fn a_file_that_was_altered_is_told_and_made_again() {
    let world = World::ready().await;
    let artifact = world.artifact("app").await;
    fs::write(world.file(&artifact), b"something else").unwrap();
    world.pass("app").await;
    let table = world.table("app").await.replace(&artifact.digest, "<digest>");
    insta::assert_snapshot!(table, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 1 observed 1 artifact main@sha1:<first>
    event Warning ArtifactVerificationFailed failed to verify integrity of artifact: computed digest doesn't match '<digest>'
    ");
    assert_eq!(
        world.names(&world.artifact("app").await),
        [".", ".sourceignore", "main.tf"]
    );
}

#[tokio::test]
async fn a_lost_artifact_is_no_longer_advertised_while_the_remote_is_away() {
    let world = World::ready().await;
    fs::remove_file(world.file(&world.artifact("app").await)).unwrap();
    world.server.withdraw("app");
    world.pass("app").await;
    insta::assert_snapshot!(world.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact: disappeared from storage
    Ready=False/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    generation 1 observed 1 artifact none
    event Warning GitOperationFailed failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    ");
}

#[tokio::test]
async fn a_restart_on_an_empty_volume_heals_itself() {
    let mut world = World::ready().await;
    let before = world.artifact("app").await;
    world.storage = tempfile::tempdir().unwrap();
    world.pass("app").await;
    assert_eq!(world.artifact("app").await.digest, before.digest);
    assert!(world.file(&before).exists());
}

#[tokio::test]
async fn a_status_that_names_the_file_of_another_object_is_not_believed() {
    let world = World::ready().await;
    world.create("other", json!({})).await;
    world.pass("other").await;
    let (own, foreign) = (world.artifact("app").await, world.artifact("other").await);
    let patch = json!({ "status": { "artifact": { "path": foreign.path } } });
    let (params, patch) = (kube::api::PatchParams::default(), kube::api::Patch::Merge(patch));
    world
        .objects()
        .patch_status("app", &params, &patch)
        .await
        .unwrap();
    world.pass("app").await;
    assert_eq!(world.artifact("app").await.path, own.path);
    assert!(world.file(&foreign).exists());
}

#[tokio::test]
async fn storage_that_cannot_be_written_is_named() {
    let world = World::ready().await;
    // A file in the place of the directory.
    fs::remove_dir_all(world.storage.path().join("gitrepository")).unwrap();
    fs::write(world.storage.path().join("gitrepository"), b"").unwrap();
    world.pass("app").await;
    let table = world.table("app").await;
    assert!(table.contains("StorageOperationFailed=True"), "{table}");
    assert!(table.contains("Ready=False"), "{table}");
    fs::remove_file(world.storage.path().join("gitrepository")).unwrap();
    world.pass("app").await;
    assert!(world.table("app").await.contains("Ready=True/Succeeded"));
}

#[tokio::test]
async fn another_advertised_address_heals_with_the_next_pass() {
    let world = World::ready().await;
    let before = world.artifact("app").await;
    let mut context = world.context();
    context.storage = Arc::new(LocalDirectory::open(world.storage.path(), "moved.example:80").unwrap());
    world.pass_in(context, "app").await;
    let after = world.artifact("app").await;
    assert_eq!(
        after.url,
        before.url.replace("http://sc/", "http://moved.example:80/")
    );
    assert_eq!(
        (after.digest, after.last_update_time),
        (before.digest, before.last_update_time)
    );
}
