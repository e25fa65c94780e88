//! Tokens of ServiceAccounts.

use serde_json::{Value, json};
use sluice_embedded::Store;

use super::{ACCOUNTS, BINDINGS, Served, forbidden, named, rule};
use crate::fixture::{CONFIGMAPS, SECRETS, call, ok};
use crate::restart::open_when_released;

#[tokio::test]
async fn a_token_ends_with_its_account() {
    let served = Served::start().await;
    let client = served
        .account("short", &json!([rule("", "configmaps", &["list"])]))
        .await;
    ok(&client, "GET", CONFIGMAPS, None).await;
    let path = format!("{ACCOUNTS}/short");
    ok(&served.admin, "DELETE", &path, None).await;
    assert_eq!(call(&client, "GET", CONFIGMAPS, None).await.code, 401);
    ok(&served.admin, "POST", ACCOUNTS, Some(&named("short"))).await;
    let again = call(&client, "GET", CONFIGMAPS, None).await;
    assert_eq!(again.code, 401, "the new account is another one");
    let client = served.client_with_token(&served.token("short").await).await;
    ok(&client, "GET", CONFIGMAPS, None).await;
    ok(&served.admin, "DELETE", &format!("{BINDINGS}/short"), None).await;
    forbidden(&client, "GET", CONFIGMAPS, None).await;
    let unknown = served.client_with_token("x.y.z").await;
    assert_eq!(call(&unknown, "GET", "/version", None).await.code, 401);
    served.stop().await;
}

#[tokio::test]
async fn tokens_have_limits_and_audiences() {
    let served = Served::start().await;
    ok(&served.admin, "POST", ACCOUNTS, Some(&named("a"))).await;
    let path = format!("{ACCOUNTS}/a/token");
    let week = json!({"spec": {"expirationSeconds": 604_800}});
    let response = call(&served.admin, "POST", &path, Some(&week)).await;
    assert_eq!(response.body["spec"]["expirationSeconds"], 172_800);
    assert!(
        response.warnings[0].contains("shortened to 172800 seconds"),
        "{response:?}"
    );
    let short = json!({"spec": {"expirationSeconds": 60}});
    assert_eq!(call(&served.admin, "POST", &path, Some(&short)).await.code, 422);
    let missing = format!("{ACCOUNTS}/b/token");
    assert_eq!(
        call(&served.admin, "POST", &missing, Some(&json!({}))).await.code,
        404
    );
    assert_eq!(call(&served.admin, "GET", &path, None).await.code, 405);
    let other = json!({"spec": {"audiences": ["vault"]}});
    let token = ok(&served.admin, "POST", &path, Some(&other)).await;
    let client = served
        .client_with_token(token["status"]["token"].as_str().unwrap())
        .await;
    assert_eq!(call(&client, "GET", "/version", None).await.code, 401);
    served.stop().await;
}

#[tokio::test]
async fn a_token_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("objects.redb");
    let first = Served::start_in(dir, Store::file(&path).unwrap()).await;
    let client = first
        .account("a", &json!([rule("", "configmaps", &["list"])]))
        .await;
    let token = first.token("a").await;
    drop(client);
    let dir = first.stop().await;
    let second = Served::start_in(dir, open_when_released(&path).await).await;
    let client = second.client_with_token(&token).await;
    ok(&client, "GET", CONFIGMAPS, None).await;
    second.stop().await;
}

#[tokio::test]
async fn a_bound_token_ends_with_its_secret() {
    let served = Served::start().await;
    drop(
        served
            .account("a", &json!([rule("", "configmaps", &["list"])]))
            .await,
    );
    let request = |reference: Value| json!({"spec": {"boundObjectRef": reference}});
    let path = format!("{ACCOUNTS}/a/token");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "name": "s"});
    let missing = call(&served.admin, "POST", &path, Some(&request(secret.clone()))).await;
    assert_eq!(
        (missing.code, &missing.body["message"]),
        (404, &json!("secrets \"s\" not found"))
    );
    let stored = ok(&served.admin, "POST", SECRETS, Some(&named("s"))).await;
    let issued = ok(&served.admin, "POST", &path, Some(&request(secret.clone()))).await;
    assert_eq!(issued["spec"]["boundObjectRef"], secret);
    let client = served
        .client_with_token(issued["status"]["token"].as_str().unwrap())
        .await;
    ok(&client, "GET", CONFIGMAPS, None).await;
    let mut exact = secret.clone();
    exact["uid"] = stored["metadata"]["uid"].clone();
    ok(&served.admin, "POST", &path, Some(&request(exact.clone()))).await;
    ok(&served.admin, "DELETE", &format!("{SECRETS}/s"), None).await;
    assert_eq!(call(&client, "GET", CONFIGMAPS, None).await.code, 401);
    ok(&served.admin, "POST", SECRETS, Some(&named("s"))).await;
    let again = call(&client, "GET", CONFIGMAPS, None).await;
    assert_eq!(again.code, 401, "the new Secret is another one");
    let conflict = call(&served.admin, "POST", &path, Some(&request(exact))).await;
    assert_eq!(
        (conflict.code, &conflict.body["details"]["kind"]),
        (409, &json!("Secret"))
    );
    let pod = request(json!({"apiVersion": "v1", "kind": "Pod", "name": "p"}));
    assert_eq!(call(&served.admin, "POST", &path, Some(&pod)).await.code, 404);
    served.stop().await;
}

#[tokio::test]
async fn a_token_review_names_the_user_of_a_valid_token() {
    const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
    let served = Served::start().await;
    let client = served
        .account("a", &json!([rule("", "configmaps", &["list"])]))
        .await;
    forbidden(&client, "POST", REVIEWS, Some(&json!({"spec": {"token": "x"}}))).await;
    let review = async |spec: Value| {
        let body = json!({ "spec": spec });
        ok(&served.admin, "POST", REVIEWS, Some(&body)).await["status"].take()
    };
    let token = served.token("a").await;
    let status = review(json!({ "token": token })).await;
    assert_eq!(status["authenticated"], true);
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:a");
    assert!(status["user"]["uid"].is_string(), "{status}");
    assert_eq!(status["audiences"], json!(["https://kubernetes.default.svc"]));
    let invalid = json!({"user": {}, "error": "invalid bearer token"});
    assert_eq!(review(json!({"token": "x.y.z"})).await, invalid);
    assert_eq!(
        review(json!({"token": token, "audiences": ["vault"]})).await,
        invalid
    );
    let path = format!("{ACCOUNTS}/a/token");
    let elsewhere = json!({"spec": {"audiences": ["vault", "other"]}});
    let issued = ok(&served.admin, "POST", &path, Some(&elsewhere)).await;
    let elsewhere = issued["status"]["token"].as_str().unwrap();
    assert_eq!(review(json!({ "token": elsewhere })).await, invalid);
    let status = review(json!({"token": elsewhere, "audiences": ["vault", "else"]})).await;
    assert_eq!(
        (&status["authenticated"], &status["audiences"]),
        (&json!(true), &json!(["vault"]))
    );
    let config = kube::config::Kubeconfig::read_from(&served.serving.kubeconfig_path).unwrap();
    let config = serde_json::to_value(&config.auth_infos[0].auth_info).unwrap();
    let status = review(json!({ "token": config["token"] })).await;
    assert_eq!(status["user"]["username"], "admin");
    ok(&served.admin, "DELETE", &format!("{ACCOUNTS}/a"), None).await;
    assert_eq!(review(json!({ "token": token })).await, invalid);
    let empty = call(&served.admin, "POST", REVIEWS, Some(&json!({"spec": {}}))).await;
    assert_eq!(empty.code, 400);
    served.stop().await;
}
