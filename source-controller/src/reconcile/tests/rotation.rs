//! Tests of credentials that change: the mirror is kept, and only served to credentials that the server accepts.

use serde_json::json;
use sluice_harness::git::Step;

use super::environment::TestEnvironment;

#[tokio::test]
async fn a_renewed_password_fetches_only_new_objects() {
    let mut env = TestEnvironment::new().await;
    env.server.require_basic("reader", "old");
    env.secret("login", json!({ "username": "reader", "password": "old" }))
        .await;
    env.create("app", json!({ "secretRef": { "name": "login" } }))
        .await;
    env.reconcile("app").await;
    assert!(env.table("app").await.contains("main@sha1:<first>"));
    env.server.require_basic("reader", "new");
    env.secret("login", json!({ "username": "reader", "password": "new" }))
        .await;
    env.commit("second", &[("main.tf", "locals { a = 1 }\n")]);
    env.reconcile("app").await;
    assert!(env.table("app").await.contains("main@sha1:<second>"));
    assert_eq!(env.mirrors_on_disk(), 1);
    let requests = env.server.requests();
    let last = requests
        .iter()
        .rfind(|request| request.step == Step::Fetch)
        .unwrap();
    assert!(last.body_text().contains("have "), "the difference alone");
}

#[tokio::test]
async fn a_password_refused_by_the_server_gives_no_access_to_the_mirror() {
    let mut env = TestEnvironment::new().await;
    let commit = env.commit("pinned", &[("secret.tf", "locals {}\n")]);
    env.server.require_basic("reader", "right");
    env.secret("login", json!({ "username": "reader", "password": "right" }))
        .await;
    let fields = json!({ "secretRef": { "name": "login" }, "ref": { "commit": commit } });
    env.create("app", fields).await;
    env.reconcile("app").await;
    let before = env.artifact("app").await;
    env.secret("login", json!({ "username": "reader", "password": "wrong" }))
        .await;
    // A pinned commit is resolved without a request, and the mirror contains it.
    env.edit("app", json!({ "spec": { "ignore": "secret.tf" } }))
        .await;
    env.reconcile("app").await;
    let table = env.table("app").await;
    assert!(table.contains("authentication required"), "{table}");
    assert_eq!(env.artifact("app").await.digest, before.digest);
    env.secret("login", json!({ "username": "reader", "password": "right" }))
        .await;
    env.reconcile("app").await;
    assert!(env.table("app").await.contains("Ready=True"));
    assert_ne!(env.artifact("app").await.digest, before.digest);
}
