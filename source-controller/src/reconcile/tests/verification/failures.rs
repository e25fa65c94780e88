//! Tests of failed verification. The existing artifact stays.

use std::time::Duration;

use serde_json::json;
use sluice_runtime::watch::Requeue;

use super::{Signer, Signing};

#[tokio::test]
async fn an_unsigned_commit_is_refused_and_retried() {
    let mut signing = Signing::new().await;
    signing.commit(None, "unsigned");
    signing.create("app", "HEAD", json!({ "branch": "main" })).await;
    assert_eq!(signing.env.reconcile("app").await, Requeue::Backoff);
    insta::assert_snapshot!(signing.env.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/InvalidCommitSignature @1 signature verification of commit '<unsigned>' failed: unsupported signature type: empty
    SourceVerified=False/InvalidCommitSignature @1 signature verification of commit '<unsigned>' failed: unsupported signature type: empty
    generation 1 observed -1 artifact none
    event Warning InvalidCommitSignature signature verification of commit '<unsigned>' failed: unsupported signature type: empty
    ");
    signing.commit(Some(Signer::Gpg), "signed");
    signing.env.reconcile("app").await;
    insta::assert_snapshot!(signing.env.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<signed>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<signed>'
    SourceVerified=True/Succeeded @1 verified signature of
    	- commit '<signed>' with key '<gpg>'
    generation 1 observed 1 artifact main@sha1:<signed>
    event Normal Succeeded verified signature of
    	- commit '<signed>' with key '<gpg>'
    event Normal NewArtifact stored artifact for commit 'signed' (files, digest, revision)
    ");
}

#[tokio::test]
async fn a_bad_commit_never_replaces_a_good_one() {
    let mut signing = Signing::new().await;
    signing.commit(Some(Signer::Gpg), "signed");
    signing.table("app", "HEAD", json!({ "branch": "main" })).await;
    let good = signing.env.artifact("app").await;
    signing.commit(None, "unsigned");
    assert_eq!(signing.env.reconcile("app").await, Requeue::Backoff);
    insta::assert_snapshot!(signing.env.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 reconciliation in progress
    Ready=False/InvalidCommitSignature @1 signature verification of commit '<unsigned>' failed: unsupported signature type: empty
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<signed>'
    SourceVerified=False/InvalidCommitSignature @1 signature verification of commit '<unsigned>' failed: unsupported signature type: empty
    generation 1 observed 1 artifact main@sha1:<signed>
    event Warning InvalidCommitSignature signature verification of commit '<unsigned>' failed: unsupported signature type: empty
    ");
    assert_eq!(signing.env.artifact("app").await, good);
    // Reset the branch to the verified commit, which becomes ready again.
    signing
        .env
        .repository
        .git(["reset", "--quiet", "--hard", "HEAD~1"])
        .unwrap();
    signing.env.reconcile("app").await;
    insta::assert_snapshot!(signing.env.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<signed>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<signed>'
    SourceVerified=True/Succeeded @1 verified signature of
    	- commit '<signed>' with key '<gpg>'
    generation 1 observed 1 artifact main@sha1:<signed>
    event Normal Succeeded verified signature of
    	- commit '<signed>' with key '<gpg>'
    ");
}

#[tokio::test]
async fn a_mode_for_tags_without_a_tag_stalls() {
    let mut signing = Signing::new().await;
    let commit = signing.commit(Some(Signer::Gpg), "signed");
    signing.create("app", "Tag", json!({ "branch": "main" })).await;
    assert_eq!(signing.env.reconcile("app").await, Requeue::OnChange);
    insta::assert_snapshot!(signing.env.table("app").await, @r"
    Stalled=True/InvalidVerificationMode @1 cannot verify tag object's signature if a tag reference is not specified
    Ready=False/InvalidVerificationMode @1 cannot verify tag object's signature if a tag reference is not specified
    SourceVerified=False/InvalidVerificationMode @1 cannot verify tag object's signature if a tag reference is not specified
    generation 1 observed 1 artifact none
    event Warning InvalidVerificationMode cannot verify tag object's signature if a tag reference is not specified
    ");
    let table = signing
        .table("both", "TagAndHEAD", json!({ "commit": commit }))
        .await;
    assert!(
        table.starts_with("Stalled=True/InvalidVerificationMode"),
        "{table}"
    );
}

#[tokio::test]
async fn a_tag_without_a_signature_is_refused() {
    let mut signing = Signing::new().await;
    signing.commit(Some(Signer::Gpg), "signed");
    signing.tag(None, "annotated", "bare-tag");
    signing.env.repository.git(["tag", "light"]).unwrap();
    insta::assert_snapshot!(signing.table("one", "Tag", json!({ "tag": "annotated" })).await, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/InvalidGitObject @1 cannot verify signature of tag 'annotated@<bare-tag>' since it is not signed
    SourceVerified=False/InvalidGitObject @1 cannot verify signature of tag 'annotated@<bare-tag>' since it is not signed
    generation 1 observed -1 artifact none
    event Warning InvalidGitObject cannot verify signature of tag 'annotated@<bare-tag>' since it is not signed
    ");
    insta::assert_snapshot!(signing.table("two", "TagAndHEAD", json!({ "tag": "light" })).await, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/InvalidGitObject @1 cannot verify signature of tag 'light' since it is not signed
    SourceVerified=False/InvalidGitObject @1 cannot verify signature of tag 'light' since it is not signed
    generation 1 observed -1 artifact none
    event Warning InvalidGitObject cannot verify signature of tag 'light' since it is not signed
    ");
}

#[tokio::test]
async fn a_valid_tag_on_an_unsigned_commit_fails() {
    let mut signing = Signing::new().await;
    signing.commit(None, "unsigned");
    signing.tag(Some(Signer::Gpg), "v1", "good-tag");
    insta::assert_snapshot!(signing.table("app", "TagAndHEAD", json!({ "tag": "v1" })).await, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/InvalidCommitSignature @1 signature verification of commit '<unsigned>' failed: unsupported signature type: empty
    SourceVerified=False/InvalidCommitSignature @1 signature verification of commit '<unsigned>' failed: unsupported signature type: empty
    generation 1 observed -1 artifact none
    event Warning InvalidCommitSignature signature verification of commit '<unsigned>' failed: unsupported signature type: empty
    ");
    assert_eq!(signing.env.status("app").await.source_verification_mode, None);
}

#[tokio::test]
async fn missing_keys_of_a_signatures_format_are_reported() {
    let mut signing = Signing::new().await;
    signing.commit(Some(Signer::Gpg), "by-gpg");
    signing.tag(Some(Signer::Ssh), "v1", "ssh-tag");
    signing.keys(json!({ "a.sshpub": signing.ssh.public() })).await;
    let mut found = Vec::new();
    for (name, mode, reference) in [
        ("pgp-commit", "HEAD", json!({ "branch": "main" })),
        ("ssh-tag", "Tag", json!({ "tag": "v1" })),
        ("both", "TagAndHEAD", json!({ "tag": "v1" })),
    ] {
        signing.create(name, mode, reference).await;
        signing.env.reconcile(name).await;
        found.push(signing.verified(name).await);
    }
    signing.keys(json!({ "a.asc": signing.ring() })).await;
    for name in ["pgp-commit", "ssh-tag", "both"] {
        signing.env.reconcile(name).await;
        found.push(signing.verified(name).await);
    }
    insta::assert_snapshot!(found.join("\n"), @r"
    SourceVerified=False/InvalidCommitSignature @1 signature verification of commit '<by-gpg>' failed: PGP signature detected but no PGP public keys found in secret (keys with .asc suffix)
    SourceVerified=True/Succeeded @1 verified signature of
    	- tag 'v1@<ssh-tag>' with key '<ssh>'
    SourceVerified=False/InvalidCommitSignature @1 signature verification of commit '<by-gpg>' failed: PGP signature detected but no PGP public keys found in secret (keys with .asc suffix)
    SourceVerified=True/Succeeded @1 verified signature of
    	- commit '<by-gpg>' with key '<gpg>'
    SourceVerified=False/InvalidTagSignature @1 signature verification of tag 'v1@<ssh-tag>' failed: SSH signature detected but no SSH public keys found in secret (keys with .sshpub suffix)
    SourceVerified=False/InvalidTagSignature @1 signature verification of tag 'v1@<ssh-tag>' failed: SSH signature detected but no SSH public keys found in secret (keys with .sshpub suffix)
    ");
}

#[tokio::test]
async fn invalid_keys_are_reported() {
    let mut signing = Signing::new().await;
    let foreign = signing.keyring.generate("ed25519").unwrap();
    signing.commit(Some(Signer::Gpg), "by-gpg");
    signing.tag(Some(Signer::Ssh), "v1", "ssh-tag");
    signing
        .create("commit", "HEAD", json!({ "branch": "main" }))
        .await;
    signing.create("tag", "Tag", json!({ "tag": "v1" })).await;
    let mut found = Vec::new();
    for keys in [
        json!({ "a.asc": "no key", "b.sshpub": "no key" }),
        json!({ "a.asc": signing.keyring.export(&foreign).unwrap(), "b.sshpub": "" }),
        json!({}),
    ] {
        signing.keys(keys).await;
        for name in ["commit", "tag"] {
            signing.env.reconcile(name).await;
            found.push(signing.verified(name).await);
        }
    }
    insta::assert_snapshot!(found.join("\n"), @r"
    SourceVerified=False/InvalidCommitSignature @1 signature verification of commit '<by-gpg>' failed: unable to verify Git commit: unable to read armored key ring: no armored data found
    SourceVerified=False/InvalidTagSignature @1 signature verification of tag 'v1@<ssh-tag>' failed: unable to verify Git tag SSH signature: unable to parse authorized keys: unable to parse authorized key: line 1 is not a public key
    SourceVerified=False/InvalidCommitSignature @1 signature verification of commit '<by-gpg>' failed: unable to verify Git commit: unable to verify payload with any of the given key rings: no matching key
    SourceVerified=False/InvalidTagSignature @1 signature verification of tag 'v1@<ssh-tag>' failed: unable to verify Git tag SSH signature: unable to verify payload with any of the given authorized keys: no matching key
    SourceVerified=False/InvalidCommitSignature @1 signature verification of commit '<by-gpg>' failed: PGP signature detected but no PGP public keys found in secret (keys with .asc suffix)
    SourceVerified=False/InvalidTagSignature @1 signature verification of tag 'v1@<ssh-tag>' failed: SSH signature detected but no SSH public keys found in secret (keys with .sshpub suffix)
    ");
}

#[tokio::test]
async fn a_missing_key_secret_is_retried() {
    let mut signing = Signing::new().await;
    signing.commit(Some(Signer::Ssh), "signed");
    signing.env.delete_secret("keys").await;
    insta::assert_snapshot!(signing.table("app", "HEAD", json!({ "branch": "main" })).await, @r#"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/VerificationError @1 public keys secret error: secrets "keys" not found
    SourceVerified=False/VerificationError @1 public keys secret error: secrets "keys" not found
    generation 1 observed -1 artifact none
    event Warning VerificationError public keys secret error: secrets "keys" not found
    "#);
    let keys = json!({ "b.sshpub": signing.ssh.public() });
    signing.env.secret("keys", keys).await;
    signing.env.clock.advance(Duration::from_secs(1));
    signing.env.reconcile("app").await;
    assert!(signing.verified("app").await.starts_with("SourceVerified=True"));
}

/// Replaces the last commit by a modified copy with the same signature.
fn forge(signing: &mut Signing, label: &str, change: impl Fn(&str) -> String) {
    let raw = signing
        .env
        .repository
        .git(["cat-file", "commit", "HEAD"])
        .unwrap();
    let file = signing.env.repository.path().join(".git/forged");
    std::fs::write(&file, change(&format!("{raw}\n"))).unwrap();
    let path = file.to_str().unwrap();
    let id = signing
        .env
        .repository
        .git(["hash-object", "-t", "commit", "-w", path])
        .unwrap();
    signing
        .env
        .repository
        .git(["update-ref", "refs/heads/main", &id])
        .unwrap();
    signing.env.label(id, label);
}

#[tokio::test]
async fn a_commit_modified_after_signing_is_refused() {
    let mut signing = Signing::new().await;
    for by in [Signer::Gpg, Signer::Ssh] {
        signing.commit(Some(by), "signed");
        forge(&mut signing, "forged", |raw| {
            raw.replace("Ada Lovelace", "Eve Lovelace")
        });
        let name = if matches!(by, Signer::Gpg) { "gpg" } else { "ssh" };
        signing.create(name, "HEAD", json!({ "branch": "main" })).await;
        signing.env.reconcile(name).await;
    }
    let found = [signing.verified("gpg").await, signing.verified("ssh").await];
    insta::assert_snapshot!(found.join("\n"), @r"
    SourceVerified=False/InvalidCommitSignature @1 signature verification of commit '<forged>' failed: unable to verify Git commit: unable to verify payload with any of the given key rings: no matching key (key '<gpg>': the signature does not match the content)
    SourceVerified=False/InvalidCommitSignature @1 signature verification of commit '<forged>' failed: unable to verify Git commit SSH signature: unable to verify payload with any of the given authorized keys: no matching key (key '<ssh>': the signature does not match the content)
    ");
}

#[tokio::test]
async fn a_signature_of_an_unsupported_format_is_reported() {
    let mut signing = Signing::new().await;
    signing.commit(Some(Signer::Gpg), "signed");
    forge(&mut signing, "forged", |raw| {
        raw.replace("PGP SIGNATURE", "SIGNED MESSAGE")
    });
    let table = signing.table("app", "HEAD", json!({ "branch": "main" })).await;
    assert!(
        table.contains("failed: unsupported signature type: x509"),
        "{table}"
    );
}
