//! Tests of changes to stored files.

use std::fs;
use std::sync::Arc;

use serde_json::json;

use super::environment::TestEnvironment;
use crate::storage::LocalDirectory;

#[tokio::test]
async fn a_deleted_file_is_rebuilt() {
    let env = TestEnvironment::ready().await;
    let before = env.artifact("app").await;
    fs::remove_file(env.file(&before)).unwrap();
    env.reconcile("app").await;
    // The same bytes again: no event.
    insta::assert_snapshot!(env.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 1 observed 1 artifact main@sha1:<first>
    ");
    assert_eq!(env.artifact("app").await.digest, before.digest);
    assert!(env.file(&before).exists());
}

#[tokio::test]
async fn a_modified_file_is_reported_and_rebuilt() {
    let env = TestEnvironment::ready().await;
    let artifact = env.artifact("app").await;
    fs::write(env.file(&artifact), b"something else").unwrap();
    env.reconcile("app").await;
    let table = env.table("app").await.replace(&artifact.digest, "<digest>");
    insta::assert_snapshot!(table, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 1 observed 1 artifact main@sha1:<first>
    event Warning ArtifactVerificationFailed failed to verify integrity of artifact: computed digest doesn't match '<digest>'
    ");
    assert_eq!(
        env.names(&env.artifact("app").await),
        [".", ".sourceignore", "main.tf"]
    );
}

#[tokio::test]
async fn a_missing_artifact_is_not_advertised_while_the_remote_is_unavailable() {
    let env = TestEnvironment::ready().await;
    fs::remove_file(env.file(&env.artifact("app").await)).unwrap();
    env.server.withdraw("app");
    env.reconcile("app").await;
    insta::assert_snapshot!(env.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact: disappeared from storage
    Ready=False/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    generation 1 observed 1 artifact none
    event Warning GitOperationFailed failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    ");
}

#[tokio::test]
async fn a_restart_on_an_empty_volume_rebuilds_the_artifact() {
    let mut env = TestEnvironment::ready().await;
    let before = env.artifact("app").await;
    env.storage = tempfile::tempdir().unwrap();
    env.reconcile("app").await;
    assert_eq!(env.artifact("app").await.digest, before.digest);
    assert!(env.file(&before).exists());
}

#[tokio::test]
async fn a_status_that_names_the_file_of_another_object_is_rejected() {
    let env = TestEnvironment::ready().await;
    env.create("other", json!({})).await;
    env.reconcile("other").await;
    let (own, foreign) = (env.artifact("app").await, env.artifact("other").await);
    let patch = json!({ "status": { "artifact": { "path": foreign.path } } });
    let (params, patch) = (kube::api::PatchParams::default(), kube::api::Patch::Merge(patch));
    env.objects().patch_status("app", &params, &patch).await.unwrap();
    env.reconcile("app").await;
    assert_eq!(env.artifact("app").await.path, own.path);
    assert!(env.file(&foreign).exists());
}

#[tokio::test]
async fn unwritable_storage_is_reported() {
    let env = TestEnvironment::ready().await;
    // Replace the directory by a file.
    fs::remove_dir_all(env.storage.path().join("gitrepository")).unwrap();
    fs::write(env.storage.path().join("gitrepository"), b"").unwrap();
    env.reconcile("app").await;
    let table = env.table("app").await;
    assert!(table.contains("StorageOperationFailed=True"), "{table}");
    assert!(table.contains("Ready=False"), "{table}");
    fs::remove_file(env.storage.path().join("gitrepository")).unwrap();
    env.reconcile("app").await;
    assert!(env.table("app").await.contains("Ready=True/Succeeded"));
}

#[tokio::test]
async fn a_changed_advertised_address_is_updated_by_the_next_reconciliation() {
    let env = TestEnvironment::ready().await;
    let before = env.artifact("app").await;
    let mut context = env.context();
    context.storage = Arc::new(LocalDirectory::open(env.storage.path(), "moved.example:80").unwrap());
    env.reconcile_in(context, "app").await;
    let after = env.artifact("app").await;
    assert_eq!(
        after.url,
        before.url.replace("http://sc/", "http://moved.example:80/")
    );
    assert_eq!(
        (after.digest, after.last_update_time),
        (before.digest, before.last_update_time)
    );
}
