//! Tests of each mode, with successful verification.

use serde_json::json;

use super::{Signer, Signing};

#[tokio::test]
async fn a_signed_commit_becomes_an_artifact() {
    let mut signing = Signing::new().await;
    signing.commit(Some(Signer::Gpg), "signed");
    insta::assert_snapshot!(signing.table("app", "HEAD", json!({ "branch": "main" })).await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<signed>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<signed>'
    SourceVerified=True/Succeeded @1 verified signature of
    	- commit '<signed>' with key '<gpg>'
    generation 1 observed 1 artifact main@sha1:<signed>
    event Normal Succeeded verified signature of
    	- commit '<signed>' with key '<gpg>'
    event Normal NewArtifact stored artifact for commit 'signed' (files, digest, revision)
    ");
    let status = signing.env.status("app").await;
    assert_eq!(status.source_verification_mode.as_deref(), Some("HEAD"));
}

#[tokio::test]
async fn the_legacy_spelling_of_the_mode_is_recorded_as_the_current_one() {
    let mut signing = Signing::new().await;
    signing.commit(Some(Signer::Ssh), "signed");
    insta::assert_snapshot!(signing.table("app", "head", json!({ "branch": "main" })).await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<signed>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<signed>'
    SourceVerified=True/Succeeded @1 verified signature of
    	- commit '<signed>' with key '<ssh>'
    generation 1 observed 1 artifact main@sha1:<signed>
    event Normal Succeeded verified signature of
    	- commit '<signed>' with key '<ssh>'
    event Normal NewArtifact stored artifact for commit 'signed' (files, digest, revision)
    ");
    let status = signing.env.status("app").await;
    assert_eq!(status.source_verification_mode.as_deref(), Some("HEAD"));
}

#[tokio::test]
async fn a_signed_tag_becomes_an_artifact_regardless_of_its_commit() {
    let mut signing = Signing::new().await;
    signing.tag(Some(Signer::Gpg), "v1", "gpg-tag");
    signing.tag(Some(Signer::Ssh), "v2", "ssh-tag");
    insta::assert_snapshot!(signing.table("one", "Tag", json!({ "tag": "v1" })).await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'v1@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'v1@sha1:<first>'
    SourceVerified=True/Succeeded @1 verified signature of
    	- tag 'v1@<gpg-tag>' with key '<gpg>'
    generation 1 observed 1 artifact v1@sha1:<first>
    event Normal Succeeded verified signature of
    	- tag 'v1@<gpg-tag>' with key '<gpg>'
    event Normal NewArtifact stored artifact for commit 'first' (files, digest, revision)
    ");
    insta::assert_snapshot!(signing.table("two", "Tag", json!({ "tag": "v2" })).await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'v2@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'v2@sha1:<first>'
    SourceVerified=True/Succeeded @1 verified signature of
    	- tag 'v2@<ssh-tag>' with key '<ssh>'
    generation 1 observed 1 artifact v2@sha1:<first>
    event Normal Succeeded verified signature of
    	- tag 'v2@<ssh-tag>' with key '<ssh>'
    event Normal NewArtifact stored artifact for commit 'first' (files, digest, revision)
    ");
    let status = signing.env.status("one").await;
    assert_eq!(status.source_verification_mode.as_deref(), Some("Tag"));
}

#[tokio::test]
async fn a_tag_and_its_commit_may_be_signed_in_different_ways() {
    let mut signing = Signing::new().await;
    signing.commit(Some(Signer::Gpg), "by-gpg");
    signing.tag(Some(Signer::Gpg), "gpg-gpg", "tag-1");
    signing.tag(Some(Signer::Ssh), "ssh-gpg", "tag-2");
    signing.commit(Some(Signer::Ssh), "by-ssh");
    signing.tag(Some(Signer::Gpg), "gpg-ssh", "tag-3");
    signing.tag(Some(Signer::Ssh), "ssh-ssh", "tag-4");
    let mut found = Vec::new();
    for name in ["gpg-gpg", "ssh-gpg", "gpg-ssh", "ssh-ssh"] {
        signing.create(name, "TagAndHEAD", json!({ "tag": name })).await;
        signing.env.reconcile(name).await;
        found.push(signing.verified(name).await);
        let status = signing.env.status(name).await;
        assert_eq!(status.source_verification_mode.as_deref(), Some("TagAndHEAD"));
    }
    insta::assert_snapshot!(found.join("\n"), @r"
    SourceVerified=True/Succeeded @1 verified signature of
    	- tag 'gpg-gpg@<tag-1>' with key '<gpg>'
    	- commit '<by-gpg>' with key '<gpg>'
    SourceVerified=True/Succeeded @1 verified signature of
    	- tag 'ssh-gpg@<tag-2>' with key '<ssh>'
    	- commit '<by-gpg>' with key '<gpg>'
    SourceVerified=True/Succeeded @1 verified signature of
    	- tag 'gpg-ssh@<tag-3>' with key '<gpg>'
    	- commit '<by-ssh>' with key '<ssh>'
    SourceVerified=True/Succeeded @1 verified signature of
    	- tag 'ssh-ssh@<tag-4>' with key '<ssh>'
    	- commit '<by-ssh>' with key '<ssh>'
    ");
}

#[tokio::test]
async fn the_outermost_of_nested_tags_is_verified() {
    let mut signing = Signing::new().await;
    signing.tag(Some(Signer::Gpg), "inner", "inner-tag");
    signing.sign(Some(Signer::Ssh));
    let id = signing
        .env
        .repository
        .git(["tag", "-s", "-m", "outer", "outer", "inner"])
        .and_then(|_| signing.env.repository.resolve("refs/tags/outer"))
        .unwrap();
    signing.env.label(id, "outer-tag");
    signing.create("app", "Tag", json!({ "tag": "outer" })).await;
    signing.env.reconcile("app").await;
    insta::assert_snapshot!(signing.verified("app").await, @r"
    SourceVerified=True/Succeeded @1 verified signature of
    	- tag 'outer@<outer-tag>' with key '<ssh>'
    ");
}

#[tokio::test]
async fn without_verify_nothing_is_verified() {
    let mut signing = Signing::new().await;
    signing.commit(None, "unsigned");
    signing.env.create("app", json!({})).await;
    signing.env.reconcile("app").await;
    insta::assert_snapshot!(signing.env.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<unsigned>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<unsigned>'
    generation 1 observed 1 artifact main@sha1:<unsigned>
    event Normal NewArtifact stored artifact for commit 'unsigned' (files, digest, revision)
    ");
    assert_eq!(signing.env.status("app").await.source_verification_mode, None);
}
