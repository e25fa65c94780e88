//! Tokens of ServiceAccounts.

use serde_json::json;
use sluice_embedded::Store;

use super::{ACCOUNTS, BINDINGS, Served, forbidden, named, rule};
use crate::fixture::{CONFIGMAPS, call, ok};
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
