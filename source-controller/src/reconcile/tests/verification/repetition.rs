//! Tests of repeated verification of a stored revision: only when required.

use serde_json::{Value, json};
use sluice_harness::git::Step;

use super::{Signer, Signing};

/// Reconciles once; returns the number of fetches and whether the object changed.
async fn reconcile(signing: &Signing, name: &str) -> (usize, bool) {
    let before = signing.env.get(name).await.metadata.resource_version;
    signing.env.server.clear_requests();
    signing.env.reconcile(name).await;
    let after = signing.env.get(name).await.metadata.resource_version;
    (signing.env.server.count(Step::Fetch), before != after)
}

async fn edit(signing: &Signing, verify: Value) {
    signing
        .env
        .edit("app", json!({ "spec": { "verify": verify } }))
        .await;
}

#[tokio::test]
async fn a_verified_revision_is_not_verified_again_and_its_condition_follows_the_generation() {
    let mut signing = Signing::new().await;
    signing.commit(Some(Signer::Gpg), "signed");
    signing.table("app", "HEAD", json!({ "branch": "main" })).await;
    assert_eq!(reconcile(&signing, "app").await, (0, false));
    signing
        .env
        .edit("app", json!({ "spec": { "interval": "7m" } }))
        .await;
    assert_eq!(reconcile(&signing, "app").await, (0, true));
    insta::assert_snapshot!(signing.env.table("app").await, @r"
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<signed>'
    ArtifactInStorage=True/Succeeded @2 stored artifact for revision 'main@sha1:<signed>'
    SourceVerified=True/Succeeded @2 verified signature of
    	- commit '<signed>' with key '<gpg>'
    generation 2 observed 2 artifact main@sha1:<signed>
    ");
}

#[tokio::test]
async fn verification_of_an_existing_artifact_keeps_it() {
    let mut signing = Signing::new().await;
    signing.commit(Some(Signer::Gpg), "signed");
    signing.env.create("app", json!({})).await;
    signing.env.reconcile("app").await;
    signing.env.table("app").await;
    let artifact = signing.env.artifact("app").await;
    edit(
        &signing,
        json!({ "mode": "HEAD", "secretRef": { "name": "keys" } }),
    )
    .await;
    assert_eq!(reconcile(&signing, "app").await, (0, true));
    insta::assert_snapshot!(signing.env.table("app").await, @r"
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<signed>'
    ArtifactInStorage=True/Succeeded @2 stored artifact for revision 'main@sha1:<signed>'
    SourceVerified=True/Succeeded @2 verified signature of
    	- commit '<signed>' with key '<gpg>'
    generation 2 observed 2 artifact main@sha1:<signed>
    event Normal Succeeded verified signature of
    	- commit '<signed>' with key '<gpg>'
    ");
    assert_eq!(signing.env.artifact("app").await, artifact, "not packed again");
    assert_eq!(reconcile(&signing, "app").await, (0, false));
}

#[tokio::test]
async fn removing_verify_clears_the_verification_at_once() {
    let mut signing = Signing::new().await;
    signing.commit(Some(Signer::Gpg), "signed");
    signing.table("app", "HEAD", json!({ "branch": "main" })).await;
    edit(&signing, json!(null)).await;
    assert_eq!(reconcile(&signing, "app").await, (0, true));
    insta::assert_snapshot!(signing.env.table("app").await, @r"
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<signed>'
    ArtifactInStorage=True/Succeeded @2 stored artifact for revision 'main@sha1:<signed>'
    generation 2 observed 2 artifact main@sha1:<signed>
    ");
    assert_eq!(signing.env.status("app").await.source_verification_mode, None);
    assert_eq!(reconcile(&signing, "app").await, (0, false));
}

#[tokio::test]
async fn only_a_stricter_mode_verifies_again() {
    let mut signing = Signing::new().await;
    signing.commit(Some(Signer::Gpg), "signed");
    signing.tag(Some(Signer::Ssh), "v1", "tag");
    signing.table("app", "HEAD", json!({ "tag": "v1" })).await;
    let mut found = Vec::new();
    for mode in ["Tag", "TagAndHEAD", "HEAD", "head", "Tag"] {
        edit(&signing, json!({ "mode": mode })).await;
        assert_eq!(reconcile(&signing, "app").await, (0, true));
        let recorded = signing.env.status("app").await.source_verification_mode.unwrap();
        found.push(format!("{mode}: {recorded}\n{}", signing.verified("app").await));
    }
    insta::assert_snapshot!(found.join("\n"), @r"
    Tag: Tag
    SourceVerified=True/Succeeded @2 verified signature of
    	- tag 'v1@<tag>' with key '<ssh>'
    TagAndHEAD: TagAndHEAD
    SourceVerified=True/Succeeded @3 verified signature of
    	- tag 'v1@<tag>' with key '<ssh>'
    	- commit '<signed>' with key '<gpg>'
    HEAD: TagAndHEAD
    SourceVerified=True/Succeeded @4 verified signature of
    	- tag 'v1@<tag>' with key '<ssh>'
    	- commit '<signed>' with key '<gpg>'
    head: TagAndHEAD
    SourceVerified=True/Succeeded @5 verified signature of
    	- tag 'v1@<tag>' with key '<ssh>'
    	- commit '<signed>' with key '<gpg>'
    Tag: TagAndHEAD
    SourceVerified=True/Succeeded @6 verified signature of
    	- tag 'v1@<tag>' with key '<ssh>'
    	- commit '<signed>' with key '<gpg>'
    ");
}

#[tokio::test]
async fn other_keys_verify_the_stored_revision_again() {
    let mut signing = Signing::new().await;
    signing.commit(Some(Signer::Gpg), "signed");
    signing.table("app", "HEAD", json!({ "branch": "main" })).await;
    let (ring, artifact) = (signing.ring(), signing.env.artifact("app").await);
    // The same key under another name, and another one: still valid.
    signing
        .keys(json!({ "other.asc": ring, "b.sshpub": signing.ssh.public() }))
        .await;
    reconcile(&signing, "app").await;
    assert!(signing.verified("app").await.starts_with("SourceVerified=True"));
    assert_eq!(reconcile(&signing, "app").await, (0, false));
    // Without the key, each reconciliation fails and the artifact stays.
    signing.keys(json!({ "b.sshpub": signing.ssh.public() })).await;
    assert_eq!(reconcile(&signing, "app").await, (0, true));
    insta::assert_snapshot!(signing.env.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 reconciliation in progress
    Ready=False/InvalidCommitSignature @1 signature verification of commit '<signed>' failed: PGP signature detected but no PGP public keys found in secret (keys with .asc suffix)
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<signed>'
    SourceVerified=False/InvalidCommitSignature @1 signature verification of commit '<signed>' failed: PGP signature detected but no PGP public keys found in secret (keys with .asc suffix)
    generation 1 observed 1 artifact main@sha1:<signed>
    event Warning InvalidCommitSignature signature verification of commit '<signed>' failed: PGP signature detected but no PGP public keys found in secret (keys with .asc suffix)
    ");
    assert_eq!(reconcile(&signing, "app").await, (0, false));
    assert_eq!(signing.env.artifact("app").await, artifact);
    // With the old keys, it is verified again.
    signing
        .keys(json!({ "other.asc": ring, "b.sshpub": signing.ssh.public() }))
        .await;
    assert_eq!(reconcile(&signing, "app").await, (0, true));
    assert!(signing.verified("app").await.starts_with("SourceVerified=True"));
    // Another Secret.
    signing.env.secret("empty", json!({})).await;
    edit(&signing, json!({ "secretRef": { "name": "empty" } })).await;
    reconcile(&signing, "app").await;
    assert!(
        signing
            .verified("app")
            .await
            .starts_with("SourceVerified=False/InvalidCommitSignature")
    );
}

#[tokio::test]
async fn a_pruned_checksum_causes_verification_without_network_access() {
    let mut signing = Signing::new().await;
    signing.commit(Some(Signer::Gpg), "signed");
    signing.table("app", "HEAD", json!({ "branch": "main" })).await;
    let prune = json!({ "status": { "contentConfigChecksum": null } });
    signing.env.edit_status("app", prune.clone()).await;
    assert_eq!(
        reconcile(&signing, "app").await,
        (0, false),
        "a pruned field is not written again"
    );
    signing.keys(json!({ "b.sshpub": signing.ssh.public() })).await;
    reconcile(&signing, "app").await;
    assert!(signing.verified("app").await.starts_with("SourceVerified=False"));
    assert_eq!(signing.env.status("app").await.content_config_checksum, None);
}

#[tokio::test]
async fn only_the_tag_is_fetched_for_an_existing_commit() {
    let mut signing = Signing::new().await;
    signing.commit(Some(Signer::Gpg), "signed");
    signing.env.create("branch", json!({})).await;
    signing.env.reconcile("branch").await;
    signing.tag(Some(Signer::Ssh), "v1", "tag");
    signing.create("app", "Tag", json!({ "tag": "v1" })).await;
    assert_eq!(reconcile(&signing, "app").await, (1, true));
    insta::assert_snapshot!(signing.verified("app").await, @r"
    SourceVerified=True/Succeeded @1 verified signature of
    	- tag 'v1@<tag>' with key '<ssh>'
    ");
}
