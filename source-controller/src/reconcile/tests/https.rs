//! Tests of https and proxy settings in Secrets.

use serde_json::{Value, json};
use sluice_harness::git::GitServer;
use sluice_harness::proxy::{Protocol, ProxyServer};
use sluice_harness::tls::{ClientCertificates, TlsOptions};
use sluice_runtime::watch::Requeue;

use super::environment::TestEnvironment;

/// Reconciles an object with this URL and Secret; returns its `Ready` condition.
async fn reconcile(env: &TestEnvironment, url: &str, secret: Option<Value>) -> (Requeue, String) {
    let mut fields = json!({ "url": url });
    if let Some(secret) = secret {
        env.secret("login", secret).await;
        fields["secretRef"] = json!({ "name": "login" });
    }
    env.create("app", fields).await;
    let next = env.reconcile("app").await;
    (next, ready(env).await)
}

async fn ready(env: &TestEnvironment) -> String {
    let status = env.status("app").await;
    let conditions = status.conditions;
    let table = |kind: &str| {
        let found = conditions.iter().find(|condition| condition.type_ == kind);
        found.map(|found| format!("{kind}={}/{} {}", found.status, found.reason, found.message))
    };
    [table("Ready"), table("FetchFailed")]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n")
}

async fn server(env: &TestEnvironment, terms: &TlsOptions<'_>) -> (GitServer, String, String) {
    let server = GitServer::start_tls_with(terms).await.unwrap();
    let url = server.serve("app", &env.repository);
    let authority = server.authority_pem().unwrap().to_owned();
    (server, url, authority)
}

#[tokio::test]
async fn http_without_a_secret_works() {
    let env = TestEnvironment::new().await;
    let (_, ready) = reconcile(&env, &env.server.url("app"), None).await;
    assert!(ready.starts_with("Ready=True/Succeeded"), "{ready}");
}

#[tokio::test]
async fn http_with_basic_credentials_works() {
    let env = TestEnvironment::new().await;
    env.server.require_basic("git", "pw");
    let secret = json!({ "username": "git", "password": "pw" });
    let (_, ready) = reconcile(&env, &env.server.url("app"), Some(secret)).await;
    assert!(ready.starts_with("Ready=True/Succeeded"), "{ready}");
}

#[tokio::test]
async fn a_bearer_token_takes_precedence_over_the_secrets_basic_auth() {
    let env = TestEnvironment::new().await;
    env.server.require_bearer("t");
    let secret = json!({ "bearerToken": "t", "username": "ignored", "password": "ignored" });
    let (_, ready) = reconcile(&env, &env.server.url("app"), Some(secret)).await;
    assert!(ready.starts_with("Ready=True/Succeeded"), "{ready}");
}

#[tokio::test]
async fn a_bearer_token_and_a_user_in_the_url_are_contradictory() {
    let env = TestEnvironment::new().await;
    let url = env.server.url("app").replace("://", "://user@");
    let (next, ready) = reconcile(&env, &url, Some(json!({ "bearerToken": "t" }))).await;
    assert_eq!(next, Requeue::Backoff);
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
    let env = TestEnvironment::new().await;
    let terms = TlsOptions {
        clients: ClientCertificates::Required,
        ..TlsOptions::default()
    };
    let (server, url, authority) = server(&env, &terms).await;
    let client = server.authority().unwrap().issue("client", "tests", &[]).unwrap();
    let secret = json!({ "ca.crt": authority, "tls.crt": client.certificate, "tls.key": client.key });
    let (_, ready) = reconcile(&env, &url, Some(secret)).await;
    assert!(ready.starts_with("Ready=True/Succeeded"), "{ready}");
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.has_client_certificate)
    );
}

#[tokio::test]
async fn https_with_an_invalid_client_key_fails_the_checkout() {
    let env = TestEnvironment::new().await;
    let (server, url, authority) = server(&env, &TlsOptions::default()).await;
    let client = server.authority().unwrap().issue("client", "tests", &[]).unwrap();
    let secret = json!({ "ca.crt": authority, "tls.crt": client.certificate, "tls.key": "nonsense" });
    let (next, ready) = reconcile(&env, &url, Some(secret)).await;
    assert_eq!(next, Requeue::Backoff);
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
    let env = TestEnvironment::new().await;
    let (_server, url, authority) = server(&env, &TlsOptions::default()).await;
    let (_, ready) = reconcile(&env, &url, Some(json!({ "caFile": authority }))).await;
    assert!(ready.starts_with("Ready=True/Succeeded"), "{ready}");
}

#[tokio::test]
async fn ca_crt_takes_precedence_over_an_invalid_ca_file() {
    let env = TestEnvironment::new().await;
    let (_server, url, authority) = server(&env, &TlsOptions::default()).await;
    let secret = json!({ "ca.crt": authority, "caFile": "nonsense" });
    let (_, ready) = reconcile(&env, &url, Some(secret)).await;
    assert!(ready.starts_with("Ready=True/Succeeded"), "{ready}");
}

#[tokio::test]
async fn an_invalid_ca_bundle_is_ignored_and_tls_fails() {
    let env = TestEnvironment::new().await;
    let (_server, url, authority) = server(&env, &TlsOptions::default()).await;
    let secret = json!({ "ca.crt": "nonsense", "caFile": authority });
    let (next, ready) = reconcile(&env, &url, Some(secret)).await;
    assert_eq!(next, Requeue::Backoff);
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
    let env = TestEnvironment::new().await;
    let proxy = ProxyServer::start(Protocol::Http).await.unwrap();
    proxy.require("user", "pw");
    proxy.resolve("git.sluice.test", env.server.address());
    let secret = json!({ "address": proxy.url(), "username": "user", "password": "pw" });
    env.secret("way", secret).await;
    let fields = json!({ "url": "http://git.sluice.test/app.git", "proxySecretRef": { "name": "way" } });
    env.create("app", fields).await;
    env.reconcile("app").await;
    let ready = ready(&env).await;
    assert!(ready.starts_with("Ready=True/Succeeded"), "{ready}");
    assert!(!proxy.requests().is_empty());
}

#[tokio::test]
async fn of_several_errors_the_one_of_the_proxy_is_reported() {
    let env = TestEnvironment::new().await;
    let fields = json!({
        "url": "http://[no/url", "proxySecretRef": { "name": "way" }, "secretRef": { "name": "login" },
    });
    env.create("app", fields).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    assert!(
        ready(&env).await.starts_with(
            "Ready=False/AuthenticationFailed failed to configure proxy options: failed to get secret 'team/way': \
             secrets \"way\" not found\nFetchFailed=True/AuthenticationFailed"
        ),
        "{}",
        ready(&env).await
    );
    for (secret, why) in [
        (json!({}), "key 'address': it is missing or empty"),
        (
            json!({ "address": "ftp://u:s3cret@p" }),
            "key 'address': the address 'ftp://u:***@p/' has the scheme 'ftp': it must be http, https or socks5",
        ),
    ] {
        env.secret("way", secret).await;
        assert_eq!(env.reconcile("app").await, Requeue::Backoff);
        let ready = ready(&env).await;
        assert!(
            ready.starts_with(&format!(
                "Ready=False/AuthenticationFailed failed to configure proxy options: secret 'team/way': {why}"
            )),
            "{ready}"
        );
    }
    env.secret("way", json!({ "address": "http://127.0.0.1:9" }))
        .await;
    assert_eq!(env.reconcile("app").await, Requeue::OnChange);
    let ready = ready(&env).await;
    assert!(ready.starts_with("Ready=False/URLInvalid"), "{ready}");
}
