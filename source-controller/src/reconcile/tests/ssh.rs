//! Objects whose repository is reached through ssh, behind a real OpenSSH server.

use serde_json::json;
use sluice_harness::ssh::{Key, SshServer};
use sluice_runtime::watch::Next;

use super::world::World;

/// A server that serves the world's repository, and a key that it lets in.
fn serve(world: &World) -> (SshServer, Key, String) {
    let server = SshServer::start(vec![Key::generate("ed25519", 256).unwrap()], &[]).unwrap();
    let key = Key::generate("ed25519", 256).unwrap();
    server.authorize(&key).unwrap();
    let url = server.serve("app", &world.repository).unwrap();
    (server, key, url)
}

/// The conditions of `app`, with the server's address as `host`.
async fn table(world: &World, server: &SshServer) -> String {
    let table = world.table("app").await;
    table.replace(&server.address().to_string(), "host")
}

#[tokio::test]
async fn a_repository_behind_ssh_becomes_an_artifact() {
    let world = World::new().await;
    let (server, key, url) = serve(&world);
    let known = server.known_hosts();
    world
        .secret(
            "deploy",
            json!({ "identity": key.private, "identity.pub": key.public, "known_hosts": known }),
        )
        .await;
    world
        .create("app", json!({ "url": url, "secretRef": { "name": "deploy" } }))
        .await;
    world.pass("app").await;
    insta::assert_snapshot!(table(&world, &server).await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 1 observed 1 artifact main@sha1:<first>
    event Normal NewArtifact stored artifact for commit 'first' (files, digest, revision)
    ");
    assert!(world.file(&world.artifact("app").await).exists());
}

#[tokio::test]
async fn a_secret_without_what_ssh_needs_is_named_and_mended() {
    let world = World::new().await;
    let (server, key, url) = serve(&world);
    let encrypted = Key::generate_with("ed25519", 256, &["-N", "correct horse", "-a", "2"]).unwrap();
    server.authorize(&encrypted).unwrap();
    world.create("app", json!({ "url": url })).await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    let shown = table(&world, &server).await;
    let text =
        "failed to configure authentication options: invalid 'ssh' auth option: 'identity' is required";
    assert!(
        shown.contains(&format!("FetchFailed=True/AuthenticationFailed @1 {text}\n")),
        "{shown}"
    );
    world.secret("deploy", json!({ "identity": key.private })).await;
    world
        .edit("app", json!({ "spec": { "secretRef": { "name": "deploy" } } }))
        .await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    let shown = table(&world, &server).await;
    assert!(
        shown.contains("secret 'team/deploy': invalid 'ssh' auth option: 'known_hosts' is required"),
        "{shown}"
    );
    world
        .secret(
            "deploy",
            json!({ "identity": encrypted.private, "known_hosts": server.known_hosts() }),
        )
        .await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    let shown = table(&world, &server).await;
    let text =
        "SSH identity key is encrypted but no 'password' field was provided in the secret 'team/deploy'";
    assert!(
        shown.contains(&format!("FetchFailed=True/AuthenticationFailed @2 {text}\n")),
        "{shown}"
    );
    world.secret("deploy", json!({ "password": "wrong" })).await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    let shown = table(&world, &server).await;
    let text = "failed to checkout and determine revision: unable to construct auth method with options: the private key cannot be decrypted";
    assert!(
        shown.contains(&format!("FetchFailed=True/GitOperationFailed @2 {text}")),
        "{shown}"
    );
    assert!(!shown.contains("wrong\n"), "{shown}");
    world
        .secret("deploy", json!({ "password": "correct horse" }))
        .await;
    world.pass("app").await;
    let shown = table(&world, &server).await;
    assert!(shown.contains("Ready=True/Succeeded"), "{shown}");
}

#[tokio::test]
async fn a_host_that_shows_another_key_is_told_by_the_object() {
    let world = World::new().await;
    let (server, key, url) = serve(&world);
    let other = Key::generate("ed25519", 256).unwrap();
    let known = format!("[127.0.0.1]:{} {}\n", server.address().port(), other.public);
    world
        .secret("deploy", json!({ "identity": key.private, "known_hosts": known }))
        .await;
    world
        .create("app", json!({ "url": url, "secretRef": { "name": "deploy" } }))
        .await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    let shown = table(&world, &server).await;
    let text = "knownhosts: key mismatch: the host shows ssh-ed25519 SHA256:";
    assert!(
        shown.contains("FetchFailed=True/GitOperationFailed") && shown.contains(text),
        "{shown}"
    );
}
