//! What each mode verifies, and how success looks.

use serde_json::json;

use super::{By, Signing};

#[tokio::test]
async fn a_signed_commit_becomes_an_artifact() {
    let mut signing = Signing::new().await;
    signing.commit(Some(By::Gpg), "signed");
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
    let status = signing.world.status("app").await;
    assert_eq!(status.source_verification_mode.as_deref(), Some("HEAD"));
}

#[tokio::test]
async fn the_older_spelling_of_the_mode_is_recorded_as_the_newer_one() {
    let mut signing = Signing::new().await;
    signing.commit(Some(By::Ssh), "signed");
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
    let status = signing.world.status("app").await;
    assert_eq!(status.source_verification_mode.as_deref(), Some("HEAD"));
}

#[tokio::test]
async fn a_signed_tag_becomes_an_artifact_whatever_its_commit() {
    let mut signing = Signing::new().await;
    signing.tag(Some(By::Gpg), "v1", "gpg-tag");
    signing.tag(Some(By::Ssh), "v2", "ssh-tag");
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
    let status = signing.world.status("one").await;
    assert_eq!(status.source_verification_mode.as_deref(), Some("Tag"));
}

#[tokio::test]
async fn a_tag_and_its_commit_may_be_signed_in_different_ways() {
    let mut signing = Signing::new().await;
    signing.commit(Some(By::Gpg), "by-gpg");
    signing.tag(Some(By::Gpg), "gpg-gpg", "tag-1");
    signing.tag(Some(By::Ssh), "ssh-gpg", "tag-2");
    signing.commit(Some(By::Ssh), "by-ssh");
    signing.tag(Some(By::Gpg), "gpg-ssh", "tag-3");
    signing.tag(Some(By::Ssh), "ssh-ssh", "tag-4");
    let mut found = Vec::new();
    for name in ["gpg-gpg", "ssh-gpg", "gpg-ssh", "ssh-ssh"] {
        signing.create(name, "TagAndHEAD", json!({ "tag": name })).await;
        signing.world.pass(name).await;
        found.push(signing.verified(name).await);
        let status = signing.world.status(name).await;
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
async fn of_nested_tags_the_one_that_the_ref_holds_is_verified() {
    let mut signing = Signing::new().await;
    signing.tag(Some(By::Gpg), "inner", "inner-tag");
    signing.sign(Some(By::Ssh));
    let id = signing
        .world
        .repository
        .git(["tag", "-s", "-m", "outer", "outer", "inner"])
        .and_then(|_| signing.world.repository.resolve("refs/tags/outer"))
        .unwrap();
    signing.world.label(id, "outer-tag");
    signing.create("app", "Tag", json!({ "tag": "outer" })).await;
    signing.world.pass("app").await;
    insta::assert_snapshot!(signing.verified("app").await, @r"
    SourceVerified=True/Succeeded @1 verified signature of
    	- tag 'outer@<outer-tag>' with key '<ssh>'
    ");
}

#[tokio::test]
async fn without_verify_nothing_is_verified() {
    let mut signing = Signing::new().await;
    signing.commit(None, "unsigned");
    signing.world.create("app", json!({})).await;
    signing.world.pass("app").await;
    insta::assert_snapshot!(signing.world.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<unsigned>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<unsigned>'
    generation 1 observed 1 artifact main@sha1:<unsigned>
    event Normal NewArtifact stored artifact for commit 'unsigned' (files, digest, revision)
    ");
    assert_eq!(signing.world.status("app").await.source_verification_mode, None);
}
