//! The API over TLS: who gets in, and that restarts keep kubeconfigs valid.

use std::{os::unix::fs::PermissionsExt, time::Duration};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use secrecy_free::without_token;
use serde_json::json;
use sluice_embedded::{Grant, GrantRule, Serving};
use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};

use crate::fixture::{CONFIGMAPS, call, ok, server};

/// Kubeconfigs with less in them.
mod secrecy_free {
    use kube::config::Kubeconfig;

    /// The same clusters, no user.
    pub(super) fn without_token(mut config: Kubeconfig) -> Kubeconfig {
        for user in &mut config.auth_infos {
            user.auth_info = Some(kube::config::AuthInfo::default());
        }
        config
    }
}

async fn client(config: Kubeconfig) -> Client {
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

fn kubeconfig(serving: &Serving) -> Kubeconfig {
    Kubeconfig::read_from(&serving.kubeconfig_path).unwrap()
}

#[tokio::test]
async fn the_token_opens_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = server();
    let serving = embedded
        .serve(([127, 0, 0, 1], 0).into(), &dir.path().join("api"))
        .await
        .unwrap();
    let inside = client(kubeconfig(&serving)).await;
    ok(
        &inside,
        "POST",
        CONFIGMAPS,
        Some(&json!({"metadata": {"name": "a"}})),
    )
    .await;
    ok(&embedded.client(), "GET", &format!("{CONFIGMAPS}/a"), None).await;
    let outside = client(without_token(kubeconfig(&serving))).await;
    let refused = call(&outside, "GET", "/version", None).await;
    assert_eq!(
        (refused.code, refused.body["reason"].as_str()),
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
    assert!(inside.send(request).await.is_err(), "nobody answers any more");
}

#[tokio::test]
async fn a_kubeconfig_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let any = ([127, 0, 0, 1], 0).into();
    let first = server().serve(any, dir.path()).await.unwrap();
    let (addr, config) = (first.addr, kubeconfig(&first));
    first.stop().await;
    let second = server().serve(any, dir.path()).await.unwrap();
    assert_eq!(second.addr, addr);
    ok(&client(config).await, "GET", CONFIGMAPS, None).await;
    second.stop().await;
}

#[tokio::test]
async fn idle_strangers_leave_room() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = server();
    let any = ([127, 0, 0, 1], 0).into();
    let serving = embedded.serve(any, dir.path()).await.unwrap();
    let known = client(kubeconfig(&serving)).await;
    ok(&known, "GET", CONFIGMAPS, None).await;
    let mut watch = TcpStream::connect(serving.addr).await.unwrap();
    let mut strangers = Vec::new();
    for _ in 0..300 {
        strangers.push(TcpStream::connect(serving.addr).await.unwrap());
    }
    // Long before the time that each of them has for itself.
    let mut byte = [0];
    let ended = timeout(Duration::from_secs(5), watch.read(&mut byte)).await;
    assert!(
        matches!(ended, Ok(Ok(0) | Err(_))),
        "the oldest is dropped: {ended:?}"
    );
    ok(&known, "GET", CONFIGMAPS, None).await;
    let new = client(kubeconfig(&serving)).await;
    ok(&new, "GET", CONFIGMAPS, None).await;
    drop(strangers);
    serving.stop().await;
}

#[tokio::test]
async fn a_complete_answer_has_a_length() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = server();
    let serving = embedded
        .serve(([127, 0, 0, 1], 0).into(), dir.path())
        .await
        .unwrap();
    let known = client(kubeconfig(&serving)).await;
    let request = http::Request::get(CONFIGMAPS)
        .body(kube::client::Body::empty())
        .unwrap();
    let response = known.send(request).await.unwrap();
    assert!(response.headers().contains_key("content-length"), "{response:?}");
    serving.stop().await;
}

#[tokio::test]
async fn a_limited_credential_is_good_for_what_it_names_and_for_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = server();
    let serving = embedded
        .serve(([127, 0, 0, 1], 0).into(), &dir.path().join("api"))
        .await
        .unwrap();
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
    let lent = serving.lender().kubeconfig(&grant).unwrap();
    let lent = client(Kubeconfig::from_yaml(&lent).unwrap()).await;
    let mine = json!({"metadata": {"name": "mine", "labels": {"of": "me"}}});
    let other = json!({"metadata": {"name": "other"}});
    ok(&lent, "POST", CONFIGMAPS, Some(&mine)).await;
    ok(&embedded.client(), "POST", CONFIGMAPS, Some(&other)).await;
    ok(&lent, "GET", &format!("{CONFIGMAPS}/mine"), None).await;
    let list = call(&lent, "GET", CONFIGMAPS, None).await;
    assert_eq!(
        list.body["items"].as_array().unwrap().len(),
        1,
        "narrowed: {}",
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
        let refused = call(&lent, method, &path, body).await;
        assert_eq!(refused.code, 403, "{method} {path}: {}", refused.body);
    }
    ok(&lent, "DELETE", &format!("{CONFIGMAPS}/mine"), None).await;
}

/// The status of a review of this kind.
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
async fn a_review_answers_for_the_credential_that_asks() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = server();
    let any = ([127, 0, 0, 1], 0).into();
    let serving = embedded.serve(any, &dir.path().join("api")).await.unwrap();
    let grant = Grant {
        namespace: "default".into(),
        rules: vec![GrantRule {
            resource: "configmaps/status".into(),
            verbs: vec!["get".into()],
            names: vec!["mine-*".into()],
            ..GrantRule::default()
        }],
    };
    let lent = serving.lender().kubeconfig(&grant).unwrap();
    let lent = client(Kubeconfig::from_yaml(&lent).unwrap()).await;
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
        let answer = review(&lent, "SelfSubjectAccessReview", &spec).await;
        assert_eq!(answer["allowed"], allowed, "{spec}");
        let answer = review(&owner, "SelfSubjectAccessReview", &spec).await;
        assert_eq!(answer["allowed"], true, "{spec}");
    }
    let here = review(
        &lent,
        "SelfSubjectRulesReview",
        &json!({ "namespace": "default" }),
    )
    .await;
    assert_eq!(
        here["resourceRules"],
        json!([{ "verbs": ["get"], "apiGroups": [""], "resources": ["configmaps/status"], "resourceNames": ["mine-*"] }])
    );
    let elsewhere = review(&lent, "SelfSubjectRulesReview", &json!({ "namespace": "other" })).await;
    assert_eq!(elsewhere["resourceRules"], json!([]));
    let me = review(&lent, "SelfSubjectReview", &json!({})).await;
    assert_eq!(me["userInfo"]["username"], "limited");
    let me = review(&owner, "SelfSubjectReview", &json!({})).await;
    assert_eq!(me["userInfo"]["username"], "admin");
    serving.stop().await;
}
