//! Tests of repositories behind a real OpenSSH server.

use serde_json::json;
use sluice_harness::ssh::{Key, SshServer};
use sluice_runtime::watch::Requeue;

use super::environment::TestEnvironment;

/// Starts a server with the environment's repository, and authorizes a key.
fn serve(env: &TestEnvironment) -> (SshServer, Key, String) {
    let server = SshServer::start(vec![Key::generate("ed25519", 256).unwrap()], &[]).unwrap();
    let key = Key::generate("ed25519", 256).unwrap();
    server.authorize(&key).unwrap();
    let url = server.serve("app", &env.repository).unwrap();
    (server, key, url)
}

/// Returns the conditions of `app`, with the server's address as `host`.
async fn masked_table(env: &TestEnvironment, server: &SshServer) -> String {
    let table = env.table("app").await;
    table.replace(&server.address().to_string(), "host")
}

#[tokio::test]
async fn a_repository_over_ssh_becomes_an_artifact() {
    let env = TestEnvironment::new().await;
    let (server, key, url) = serve(&env);
    let known_hosts = server.known_hosts();
    env.secret(
        "deploy",
        json!({ "identity": key.private, "identity.pub": key.public, "known_hosts": known_hosts }),
    )
    .await;
    env.create("app", json!({ "url": url, "secretRef": { "name": "deploy" } }))
        .await;
    env.reconcile("app").await;
    insta::assert_snapshot!(masked_table(&env, &server).await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 1 observed 1 artifact main@sha1:<first>
    event Normal NewArtifact stored artifact for commit 'first' (files, digest, revision)
    ");
    assert!(env.file(&env.artifact("app").await).exists());
}

#[tokio::test]
async fn an_incomplete_ssh_secret_is_reported_until_it_is_corrected() {
    let env = TestEnvironment::new().await;
    let (server, key, url) = serve(&env);
    let encrypted = Key::generate_with("ed25519", 256, &["-N", "correct horse", "-a", "2"]).unwrap();
    server.authorize(&encrypted).unwrap();
    env.create("app", json!({ "url": url })).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    let table = masked_table(&env, &server).await;
    let text =
        "failed to configure authentication options: invalid 'ssh' auth option: 'identity' is required";
    assert!(
        table.contains(&format!("FetchFailed=True/AuthenticationFailed @1 {text}\n")),
        "{table}"
    );
    env.secret("deploy", json!({ "identity": key.private })).await;
    env.edit("app", json!({ "spec": { "secretRef": { "name": "deploy" } } }))
        .await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    let table = masked_table(&env, &server).await;
    assert!(
        table.contains("secret 'team/deploy': invalid 'ssh' auth option: 'known_hosts' is required"),
        "{table}"
    );
    env.secret(
        "deploy",
        json!({ "identity": encrypted.private, "known_hosts": server.known_hosts() }),
    )
    .await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    let table = masked_table(&env, &server).await;
    let text =
        "SSH identity key is encrypted but no 'password' field was provided in the secret 'team/deploy'";
    assert!(
        table.contains(&format!("FetchFailed=True/AuthenticationFailed @2 {text}\n")),
        "{table}"
    );
    env.secret("deploy", json!({ "password": "wrong" })).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    let table = masked_table(&env, &server).await;
    let text = "failed to checkout and determine revision: unable to construct auth method with options: the private key cannot be decrypted";
    assert!(
        table.contains(&format!("FetchFailed=True/GitOperationFailed @2 {text}")),
        "{table}"
    );
    assert!(!table.contains("wrong\n"), "{table}");
    env.secret("deploy", json!({ "password": "correct horse" })).await;
    env.reconcile("app").await;
    let table = masked_table(&env, &server).await;
    assert!(table.contains("Ready=True/Succeeded"), "{table}");
}

#[tokio::test]
async fn a_host_key_mismatch_is_reported() {
    let env = TestEnvironment::new().await;
    let (server, key, url) = serve(&env);
    let other = Key::generate("ed25519", 256).unwrap();
    let known_hosts = format!("[127.0.0.1]:{} {}\n", server.address().port(), other.public);
    env.secret(
        "deploy",
        json!({ "identity": key.private, "known_hosts": known_hosts }),
    )
    .await;
    env.create("app", json!({ "url": url, "secretRef": { "name": "deploy" } }))
        .await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    let table = masked_table(&env, &server).await;
    let text = "knownhosts: key mismatch: the host shows ssh-ed25519 SHA256:";
    assert!(
        table.contains("FetchFailed=True/GitOperationFailed") && table.contains(text),
        "{table}"
    );
}
