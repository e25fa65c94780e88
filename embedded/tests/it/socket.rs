//! The API over TLS: authentication, limited credentials, and kubeconfigs across restarts.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use sluice_embedded::{Grant, GrantRule, TlsServer};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::fixture::{CONFIGMAPS, call, ok, serve, server};

/// Returns the kubeconfig without credentials.
fn without_token(mut config: Kubeconfig) -> Kubeconfig {
    for user in &mut config.auth_infos {
        user.auth_info = Some(AuthInfo::default());
    }
    config
}

async fn client(config: Kubeconfig) -> Client {
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

fn kubeconfig(serving: &TlsServer) -> Kubeconfig {
    Kubeconfig::read_from(&serving.kubeconfig_path).unwrap()
}

#[tokio::test]
async fn only_the_token_authenticates() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = server();
    let serving = serve(&embedded, dir.path()).await;
    let admin = client(kubeconfig(&serving)).await;
    ok(
        &admin,
        "POST",
        CONFIGMAPS,
        Some(&json!({"metadata": {"name": "a"}})),
    )
    .await;
    ok(&embedded.client(), "GET", &format!("{CONFIGMAPS}/a"), None).await;
    let anonymous = client(without_token(kubeconfig(&serving))).await;
    let response = call(&anonymous, "GET", "/version", None).await;
    assert_eq!(
        (response.code, response.body["reason"].as_str()),
        (401, Some("Unauthorized"))
    );
    let mode = std::fs::metadata(&serving.kubeconfig_path)
        .unwrap()
        .permissions()
        .mode()
        & 0o777;
    assert_eq!(mode, 0o600);
    serving.stop().await;
    let request = http::Request::get("/version")
        .body(kube::client::Body::empty())
        .unwrap();
    assert!(admin.send(request).await.is_err(), "the server has stopped");
}

#[tokio::test]
async fn a_kubeconfig_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let first = serve(&server(), dir.path()).await;
    let (addr, config) = (first.addr, kubeconfig(&first));
    first.stop().await;
    let second = serve(&server(), dir.path()).await;
    assert_eq!(second.addr, addr);
    ok(&client(config).await, "GET", CONFIGMAPS, None).await;
    second.stop().await;
}

#[tokio::test]
async fn idle_connections_do_not_block_clients() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = server();
    let serving = serve(&embedded, dir.path()).await;
    let admin = client(kubeconfig(&serving)).await;
    ok(&admin, "GET", CONFIGMAPS, None).await;
    let mut watch = TcpStream::connect(serving.addr).await.unwrap();
    let mut idle_connections = Vec::new();
    for _ in 0..300 {
        idle_connections.push(TcpStream::connect(serving.addr).await.unwrap());
    }
    // Long before the authentication timeout.
    let mut byte = [0];
    let ended = timeout(Duration::from_secs(5), watch.read(&mut byte)).await;
    assert!(
        matches!(ended, Ok(Ok(0) | Err(_))),
        "the oldest is dropped: {ended:?}"
    );
    ok(&admin, "GET", CONFIGMAPS, None).await;
    let new = client(kubeconfig(&serving)).await;
    ok(&new, "GET", CONFIGMAPS, None).await;
    drop(idle_connections);
    serving.stop().await;
}

#[tokio::test]
async fn a_complete_response_has_a_content_length() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = server();
    let serving = serve(&embedded, dir.path()).await;
    let admin = client(kubeconfig(&serving)).await;
    let request = http::Request::get(CONFIGMAPS)
        .body(kube::client::Body::empty())
        .unwrap();
    let response = admin.send(request).await.unwrap();
    assert!(response.headers().contains_key("content-length"), "{response:?}");
    serving.stop().await;
}

#[tokio::test]
async fn a_limited_credential_allows_only_its_grant() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = server();
    let serving = serve(&embedded, dir.path()).await;
    let rule = |verbs: &[&str], names: &[&str], selector: &str| GrantRule {
        group: String::new(),
        resource: "configmaps".into(),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        selector: selector.into(),
    };
    let grant = Grant {
        namespace: "default".into(),
        rules: vec![
            rule(&["get", "create", "delete"], &["mine"], ""),
            rule(&["list"], &[], "of=me"),
        ],
    };
    let limited = serving.credential_issuer().kubeconfig(&grant).unwrap();
    let limited = client(Kubeconfig::from_yaml(&limited).unwrap()).await;
    let mine = json!({"metadata": {"name": "mine", "labels": {"of": "me"}}});
    let other = json!({"metadata": {"name": "other"}});
    ok(&limited, "POST", CONFIGMAPS, Some(&mine)).await;
    ok(&embedded.client(), "POST", CONFIGMAPS, Some(&other)).await;
    ok(&limited, "GET", &format!("{CONFIGMAPS}/mine"), None).await;
    let list = call(&limited, "GET", CONFIGMAPS, None).await;
    assert_eq!(
        list.body["items"].as_array().unwrap().len(),
        1,
        "restricted: {}",
        list.body
    );
    let secrets = CONFIGMAPS.replace("configmaps", "secrets");
    let generated = json!({"metadata": {"generateName": "mine"}});
    for (method, path, body) in [
        ("GET", format!("{CONFIGMAPS}/other"), None),
        ("DELETE", format!("{CONFIGMAPS}/other"), None),
        ("DELETE", CONFIGMAPS.to_owned(), None),
        ("POST", CONFIGMAPS.to_owned(), Some(&other)),
        ("POST", CONFIGMAPS.to_owned(), Some(&generated)),
        ("PUT", format!("{CONFIGMAPS}/mine"), Some(&mine)),
        ("GET", secrets, None),
        ("GET", "/api/v1/configmaps".to_owned(), None),
        ("GET", CONFIGMAPS.replace("default", "kube-system"), None),
        ("GET", format!("{CONFIGMAPS}?watch=true"), None),
    ] {
        let response = call(&limited, method, &path, body).await;
        assert_eq!(response.code, 403, "{method} {path}: {}", response.body);
    }
    ok(&limited, "DELETE", &format!("{CONFIGMAPS}/mine"), None).await;
}

/// Creates a review of this kind and returns its status.
async fn review(client: &Client, kind: &str, spec: &serde_json::Value) -> serde_json::Value {
    let group = if kind == "SelfSubjectReview" {
        "authentication"
    } else {
        "authorization"
    };
    let version = format!("{group}.k8s.io/v1");
    let path = format!("/apis/{version}/{}s", kind.to_lowercase());
    let body = json!({ "apiVersion": version, "kind": kind, "spec": spec });
    ok(client, "POST", &path, Some(&body)).await["status"].take()
}

#[tokio::test]
async fn self_reviews_reflect_the_credential() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = server();
    let serving = serve(&embedded, dir.path()).await;
    let grant = Grant {
        namespace: "default".into(),
        rules: vec![GrantRule {
            resource: "configmaps/status".into(),
            verbs: vec!["get".into()],
            names: vec!["mine-*".into()],
            ..GrantRule::default()
        }],
    };
    let limited = serving.credential_issuer().kubeconfig(&grant).unwrap();
    let limited = client(Kubeconfig::from_yaml(&limited).unwrap()).await;
    let owner = client(kubeconfig(&serving)).await;
    let of = |verb: &str, name: &str, namespace: &str| {
        json!({ "resourceAttributes": { "verb": verb, "resource": "configmaps", "subresource": "status",
            "name": name, "namespace": namespace } })
    };
    let path = |verb: &str| json!({ "nonResourceAttributes": { "verb": verb, "path": "/version" } });
    for (spec, allowed) in [
        (of("get", "mine-1", "default"), true),
        (of("get", "other", "default"), false),
        (of("get", "", "default"), false),
        (of("get", "mine-1", "kube-system"), false),
        (of("patch", "mine-1", "default"), false),
        (of("*", "mine-1", "default"), false),
        (path("get"), true),
        (path("post"), false),
    ] {
        let response = review(&limited, "SelfSubjectAccessReview", &spec).await;
        assert_eq!(response["allowed"], allowed, "{spec}");
        let response = review(&owner, "SelfSubjectAccessReview", &spec).await;
        assert_eq!(response["allowed"], true, "{spec}");
    }
    let own_namespace = review(
        &limited,
        "SelfSubjectRulesReview",
        &json!({ "namespace": "default" }),
    )
    .await;
    assert_eq!(
        own_namespace["resourceRules"],
        json!([{ "verbs": ["get"], "apiGroups": [""], "resources": ["configmaps/status"], "resourceNames": ["mine-*"] }])
    );
    let other_namespace = review(
        &limited,
        "SelfSubjectRulesReview",
        &json!({ "namespace": "other" }),
    )
    .await;
    assert_eq!(other_namespace["resourceRules"], json!([]));
    let me = review(&limited, "SelfSubjectReview", &json!({})).await;
    assert_eq!(me["userInfo"]["username"], "limited");
    let me = review(&owner, "SelfSubjectReview", &json!({})).await;
    assert_eq!(me["userInfo"]["username"], "admin");
    serving.stop().await;
}
