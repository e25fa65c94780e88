//! When a revision that is stored is verified again: not at each pass, and never less than the spec asks.

use serde_json::{Value, json};
use sluice_harness::git::Step;

use super::{By, Signing};

/// Number of fetches from the remote, and resource version, from one pass.
async fn pass(signing: &Signing, name: &str) -> (usize, bool) {
    let before = signing.world.get(name).await.metadata.resource_version;
    signing.world.server.clear_requests();
    signing.world.pass(name).await;
    let after = signing.world.get(name).await.metadata.resource_version;
    (signing.world.server.count(Step::Fetch), before != after)
}

async fn edit(signing: &Signing, verify: Value) {
    signing
        .world
        .edit("app", json!({ "spec": { "verify": verify } }))
        .await;
}

#[tokio::test]
async fn a_verified_revision_is_no_news_and_its_condition_follows_the_generation() {
    let mut signing = Signing::new().await;
    signing.commit(Some(By::Gpg), "signed");
    signing.table("app", "HEAD", json!({ "branch": "main" })).await;
    assert_eq!(pass(&signing, "app").await, (0, false));
    signing
        .world
        .edit("app", json!({ "spec": { "interval": "7m" } }))
        .await;
    assert_eq!(pass(&signing, "app").await, (0, true));
    insta::assert_snapshot!(signing.world.table("app").await, @r"
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<signed>'
    ArtifactInStorage=True/Succeeded @2 stored artifact for revision 'main@sha1:<signed>'
    SourceVerified=True/Succeeded @2 verified signature of
    	- commit '<signed>' with key '<gpg>'
    generation 2 observed 2 artifact main@sha1:<signed>
    ");
}

#[tokio::test]
async fn verify_on_an_artifact_that_is_there_verifies_it_and_keeps_it() {
    let mut signing = Signing::new().await;
    signing.commit(Some(By::Gpg), "signed");
    signing.world.create("app", json!({})).await;
    signing.world.pass("app").await;
    signing.world.table("app").await;
    let artifact = signing.world.artifact("app").await;
    edit(
        &signing,
        json!({ "mode": "HEAD", "secretRef": { "name": "keys" } }),
    )
    .await;
    assert_eq!(pass(&signing, "app").await, (0, true));
    insta::assert_snapshot!(signing.world.table("app").await, @r"
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<signed>'
    ArtifactInStorage=True/Succeeded @2 stored artifact for revision 'main@sha1:<signed>'
    SourceVerified=True/Succeeded @2 verified signature of
    	- commit '<signed>' with key '<gpg>'
    generation 2 observed 2 artifact main@sha1:<signed>
    event Normal Succeeded verified signature of
    	- commit '<signed>' with key '<gpg>'
    ");
    assert_eq!(
        signing.world.artifact("app").await,
        artifact,
        "not even packed again"
    );
    assert_eq!(pass(&signing, "app").await, (0, false));
}

#[tokio::test]
async fn without_verify_what_was_verified_is_cleared_in_the_same_pass() {
    let mut signing = Signing::new().await;
    signing.commit(Some(By::Gpg), "signed");
    signing.table("app", "HEAD", json!({ "branch": "main" })).await;
    edit(&signing, json!(null)).await;
    assert_eq!(pass(&signing, "app").await, (0, true));
    insta::assert_snapshot!(signing.world.table("app").await, @r"
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<signed>'
    ArtifactInStorage=True/Succeeded @2 stored artifact for revision 'main@sha1:<signed>'
    generation 2 observed 2 artifact main@sha1:<signed>
    ");
    assert_eq!(signing.world.status("app").await.source_verification_mode, None);
    assert_eq!(pass(&signing, "app").await, (0, false));
}

#[tokio::test]
async fn a_mode_that_asks_for_more_verifies_again_and_one_that_asks_for_less_does_not() {
    let mut signing = Signing::new().await;
    signing.commit(Some(By::Gpg), "signed");
    signing.tag(Some(By::Ssh), "v1", "tag");
    signing.table("app", "HEAD", json!({ "tag": "v1" })).await;
    let mut found = Vec::new();
    for mode in ["Tag", "TagAndHEAD", "HEAD", "head", "Tag"] {
        edit(&signing, json!({ "mode": mode })).await;
        assert_eq!(pass(&signing, "app").await, (0, true));
        let recorded = signing
            .world
            .status("app")
            .await
            .source_verification_mode
            .unwrap();
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
    signing.commit(Some(By::Gpg), "signed");
    signing.table("app", "HEAD", json!({ "branch": "main" })).await;
    let (ring, artifact) = (signing.ring(), signing.world.artifact("app").await);
    // The same key under another name, and one more: still good.
    signing
        .keys(json!({ "other.asc": ring, "b.sshpub": signing.ssh.public() }))
        .await;
    pass(&signing, "app").await;
    assert!(signing.verified("app").await.starts_with("SourceVerified=True"));
    assert_eq!(pass(&signing, "app").await, (0, false));
    // Without the key it is refused, at each pass, and the artifact stays.
    signing.keys(json!({ "b.sshpub": signing.ssh.public() })).await;
    assert_eq!(pass(&signing, "app").await, (0, true));
    insta::assert_snapshot!(signing.world.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 reconciliation in progress
    Ready=False/InvalidCommitSignature @1 signature verification of commit '<signed>' failed: PGP signature detected but no PGP public keys found in secret (keys with .asc suffix)
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<signed>'
    SourceVerified=False/InvalidCommitSignature @1 signature verification of commit '<signed>' failed: PGP signature detected but no PGP public keys found in secret (keys with .asc suffix)
    generation 1 observed 1 artifact main@sha1:<signed>
    event Warning InvalidCommitSignature signature verification of commit '<signed>' failed: PGP signature detected but no PGP public keys found in secret (keys with .asc suffix)
    ");
    assert_eq!(pass(&signing, "app").await, (0, false));
    assert_eq!(signing.world.artifact("app").await, artifact);
    // With the old keys, too, it takes a look.
    signing
        .keys(json!({ "other.asc": ring, "b.sshpub": signing.ssh.public() }))
        .await;
    assert_eq!(pass(&signing, "app").await, (0, true));
    assert!(signing.verified("app").await.starts_with("SourceVerified=True"));
    // Another Secret.
    signing.world.secret("empty", json!({})).await;
    edit(&signing, json!({ "secretRef": { "name": "empty" } })).await;
    pass(&signing, "app").await;
    assert!(
        signing
            .verified("app")
            .await
            .starts_with("SourceVerified=False/InvalidCommitSignature")
    );
}

#[tokio::test]
async fn where_the_checksum_is_pruned_each_pass_verifies_without_the_network() {
    let mut signing = Signing::new().await;
    signing.commit(Some(By::Gpg), "signed");
    signing.table("app", "HEAD", json!({ "branch": "main" })).await;
    let prune = json!({ "status": { "contentConfigChecksum": null } });
    signing.world.edit_status("app", prune.clone()).await;
    assert_eq!(
        pass(&signing, "app").await,
        (0, false),
        "nothing is written that would be pruned again"
    );
    signing.keys(json!({ "b.sshpub": signing.ssh.public() })).await;
    pass(&signing, "app").await;
    assert!(signing.verified("app").await.starts_with("SourceVerified=False"));
    assert_eq!(signing.world.status("app").await.content_config_checksum, None);
}

#[tokio::test]
async fn a_tag_at_a_commit_that_is_held_already_is_fetched_alone() {
    let mut signing = Signing::new().await;
    signing.commit(Some(By::Gpg), "signed");
    signing.world.create("branch", json!({})).await;
    signing.world.pass("branch").await;
    signing.tag(Some(By::Ssh), "v1", "tag");
    signing.create("app", "Tag", json!({ "tag": "v1" })).await;
    assert_eq!(pass(&signing, "app").await, (1, true));
    insta::assert_snapshot!(signing.verified("app").await, @r"
    SourceVerified=True/Succeeded @1 verified signature of
    	- tag 'v1@<tag>' with key '<ssh>'
    ");
}
