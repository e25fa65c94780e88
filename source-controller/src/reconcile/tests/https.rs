//! What a Secret says about https and proxies, as the object shows it.

use serde_json::{Value, json};
use sluice_harness::git::GitServer;
use sluice_harness::proxy::{ProxyServer, Speech};
use sluice_harness::tls::{Clients, Terms};
use sluice_runtime::watch::Next;

use super::world::World;

/// One pass over an object at this server with this Secret; what Ready says.
async fn pass(world: &World, url: &str, secret: Option<Value>) -> (Next, String) {
    let mut fields = json!({ "url": url });
    if let Some(secret) = secret {
        world.secret("login", secret).await;
        fields["secretRef"] = json!({ "name": "login" });
    }
    world.create("app", fields).await;
    let next = world.pass("app").await;
    (next, ready(world).await)
}

async fn ready(world: &World) -> String {
    let status = world.status("app").await;
    let conditions = status.conditions;
    let shown = |kind: &str| {
        let found = conditions.iter().find(|condition| condition.type_ == kind);
        found.map(|found| format!("{kind}={}/{} {}", found.status, found.reason, found.message))
    };
    [shown("Ready"), shown("FetchFailed")]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n")
}

async fn server(world: &World, terms: &Terms<'_>) -> (GitServer, String, String) {
    let server = GitServer::start_tls_on(terms).await.unwrap();
    let url = server.serve("app", &world.repository);
    let authority = server.authority_pem().unwrap().to_owned();
    (server, url, authority)
}

#[tokio::test]
async fn http_without_a_secret_works() {
    let world = World::new().await;
    let (_, ready) = pass(&world, &world.server.url("app"), None).await;
    assert!(ready.starts_with("Ready=True/Succeeded"), "{ready}");
}

#[tokio::test]
async fn http_with_basic_credentials_works() {
    let world = World::new().await;
    world.server.require_basic("git", "pw");
    let secret = json!({ "username": "git", "password": "pw" });
    let (_, ready) = pass(&world, &world.server.url("app"), Some(secret)).await;
    assert!(ready.starts_with("Ready=True/Succeeded"), "{ready}");
}

#[tokio::test]
async fn a_bearer_token_hides_user_and_password_of_the_secret() {
    let world = World::new().await;
    world.server.require_bearer("t");
    let secret = json!({ "bearerToken": "t", "username": "ignored", "password": "ignored" });
    let (_, ready) = pass(&world, &world.server.url("app"), Some(secret)).await;
    assert!(ready.starts_with("Ready=True/Succeeded"), "{ready}");
}

#[tokio::test]
async fn a_bearer_token_and_a_user_in_the_url_are_too_much() {
    let world = World::new().await;
    let url = world.server.url("app").replace("://", "://user@");
    let (next, ready) = pass(&world, &url, Some(json!({ "bearerToken": "t" }))).await;
    assert_eq!(next, Next::Backoff);
    assert!(
        ready.starts_with(
            "Ready=False/GitOperationFailed failed to checkout and determine revision: basic auth and bearer token \
             cannot be set at the same time\nFetchFailed=True/GitOperationFailed"
        ),
        "{ready}"
    );
}

#[tokio::test]
async fn https_with_a_client_certificate_works() {
    let world = World::new().await;
    let terms = Terms {
        clients: Clients::Required,
        ..Terms::default()
    };
    let (server, url, authority) = server(&world, &terms).await;
    let client = server.authority().unwrap().issue("client", "tests", &[]).unwrap();
    let secret = json!({ "ca.crt": authority, "tls.crt": client.certificate, "tls.key": client.key });
    let (_, ready) = pass(&world, &url, Some(secret)).await;
    assert!(ready.starts_with("Ready=True/Succeeded"), "{ready}");
    assert!(server.requests().iter().all(|request| request.certified));
}

#[tokio::test]
async fn https_with_a_key_that_is_none_fails_the_checkout() {
    let world = World::new().await;
    let (server, url, authority) = server(&world, &Terms::default()).await;
    let client = server.authority().unwrap().issue("client", "tests", &[]).unwrap();
    let secret = json!({ "ca.crt": authority, "tls.crt": client.certificate, "tls.key": "nonsense" });
    let (next, ready) = pass(&world, &url, Some(secret)).await;
    assert_eq!(next, Next::Backoff);
    assert!(
        ready.starts_with(
            "Ready=False/GitOperationFailed failed to checkout and determine revision: the client certificate cannot \
             be used: no private key in PEM form without encryption ('tls.crt' and 'tls.key' of the secret)\n\
             FetchFailed=True/GitOperationFailed"
        ),
        "{ready}"
    );
}

#[tokio::test]
async fn https_with_the_legacy_ca_file_works() {
    let world = World::new().await;
    let (_server, url, authority) = server(&world, &Terms::default()).await;
    let (_, ready) = pass(&world, &url, Some(json!({ "caFile": authority }))).await;
    assert!(ready.starts_with("Ready=True/Succeeded"), "{ready}");
}

#[tokio::test]
async fn ca_crt_counts_before_a_ca_file_that_is_none() {
    let world = World::new().await;
    let (_server, url, authority) = server(&world, &Terms::default()).await;
    let secret = json!({ "ca.crt": authority, "caFile": "nonsense" });
    let (_, ready) = pass(&world, &url, Some(secret)).await;
    assert!(ready.starts_with("Ready=True/Succeeded"), "{ready}");
}

#[tokio::test]
async fn a_bundle_that_is_none_is_passed_over_and_tls_fails() {
    let world = World::new().await;
    let (_server, url, authority) = server(&world, &Terms::default()).await;
    let secret = json!({ "ca.crt": "nonsense", "caFile": authority });
    let (next, ready) = pass(&world, &url, Some(secret)).await;
    assert_eq!(next, Next::Backoff);
    assert!(
        ready.starts_with("Ready=False/GitOperationFailed failed to checkout"),
        "{ready}"
    );
    assert!(
        ready.contains("x509: certificate signed by unknown authority: the bundle of the secret"),
        "{ready}"
    );
}

#[tokio::test]
async fn a_proxy_of_the_object_is_used() {
    let world = World::new().await;
    let proxy = ProxyServer::start(Speech::Http).await.unwrap();
    proxy.require("user", "pw");
    proxy.resolve("git.sluice.test", world.server.address());
    let secret = json!({ "address": proxy.url(), "username": "user", "password": "pw" });
    world.secret("way", secret).await;
    let fields = json!({ "url": "http://git.sluice.test/app.git", "proxySecretRef": { "name": "way" } });
    world.create("app", fields).await;
    world.pass("app").await;
    let ready = ready(&world).await;
    assert!(ready.starts_with("Ready=True/Succeeded"), "{ready}");
    assert!(!proxy.passages().is_empty());
}

#[tokio::test]
async fn of_several_faults_the_one_of_the_proxy_is_shown() {
    let world = World::new().await;
    let fields = json!({
        "url": "http://[no/url", "proxySecretRef": { "name": "way" }, "secretRef": { "name": "login" },
    });
    world.create("app", fields).await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    assert!(
        ready(&world).await.starts_with(
            "Ready=False/AuthenticationFailed failed to configure proxy options: failed to get secret 'team/way': \
             secrets \"way\" not found\nFetchFailed=True/AuthenticationFailed"
        ),
        "{}",
        ready(&world).await
    );
    for (secret, why) in [
        (json!({}), "key 'address': it is missing or empty"),
        (
            json!({ "address": "ftp://u:s3cret@p" }),
            "key 'address': the address 'ftp://u:***@p/' has the scheme 'ftp': it must be http, https or socks5",
        ),
    ] {
        world.secret("way", secret).await;
        assert_eq!(world.pass("app").await, Next::Backoff);
        let ready = ready(&world).await;
        assert!(
            ready.starts_with(&format!(
                "Ready=False/AuthenticationFailed failed to configure proxy options: secret 'team/way': {why}"
            )),
            "{ready}"
        );
    }
    world
        .secret("way", json!({ "address": "http://127.0.0.1:9" }))
        .await;
    assert_eq!(world.pass("app").await, Next::OnChange);
    let ready = ready(&world).await;
    assert!(ready.starts_with("Ready=False/URLInvalid"), "{ready}");
}
