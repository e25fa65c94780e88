//! Credentials that change: what was fetched stays, and is given only to whom the server lets in.

use serde_json::json;
use sluice_harness::git::Step;

use super::world::World;

#[tokio::test]
async fn a_renewed_password_fetches_only_what_is_new() {
    let mut world = World::new().await;
    world.server.require_basic("reader", "old");
    world
        .secret("login", json!({ "username": "reader", "password": "old" }))
        .await;
    world
        .create("app", json!({ "secretRef": { "name": "login" } }))
        .await;
    world.pass("app").await;
    assert!(world.table("app").await.contains("main@sha1:<first>"));
    world.server.require_basic("reader", "new");
    world
        .secret("login", json!({ "username": "reader", "password": "new" }))
        .await;
    world.commit("second", &[("main.tf", "locals { a = 1 }\n")]);
    world.pass("app").await;
    assert!(world.table("app").await.contains("main@sha1:<second>"));
    assert_eq!(world.mirrors_on_disk(), 1);
    let requests = world.server.requests();
    let last = requests
        .iter()
        .rfind(|request| request.step == Step::Fetch)
        .unwrap();
    assert!(last.body_text().contains("have "), "the difference alone");
}

#[tokio::test]
async fn a_password_that_the_server_refuses_is_given_nothing_of_the_mirror() {
    let mut world = World::new().await;
    let commit = world.commit("pinned", &[("secret.tf", "locals {}\n")]);
    world.server.require_basic("reader", "right");
    world
        .secret("login", json!({ "username": "reader", "password": "right" }))
        .await;
    let fields = json!({ "secretRef": { "name": "login" }, "ref": { "commit": commit } });
    world.create("app", fields).await;
    world.pass("app").await;
    let before = world.artifact("app").await;
    world
        .secret("login", json!({ "username": "reader", "password": "wrong" }))
        .await;
    // A pin is looked up without a request, and the mirror holds it.
    world
        .edit("app", json!({ "spec": { "ignore": "secret.tf" } }))
        .await;
    world.pass("app").await;
    let table = world.table("app").await;
    assert!(table.contains("authentication required"), "{table}");
    assert_eq!(world.artifact("app").await.digest, before.digest);
    world
        .secret("login", json!({ "username": "reader", "password": "right" }))
        .await;
    world.pass("app").await;
    assert!(world.table("app").await.contains("Ready=True"));
    assert_ne!(world.artifact("app").await.digest, before.digest);
}
