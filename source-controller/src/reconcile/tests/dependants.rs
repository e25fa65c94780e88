//! Passes because of something else: a Secret that changes.

use serde_json::json;

use super::world::{World, shows};

#[tokio::test]
async fn a_secret_that_is_mended_heals_its_object_at_once_and_calls_nobody_else() {
    let world = World::new().await;
    world.server.require_basic("user", "right");
    let wrong = json!({ "username": "user", "password": "wrong" });
    for secret in ["login", "unrelated", "others"] {
        world.secret(secret, wrong.clone()).await;
    }
    world
        .create("app", json!({ "secretRef": { "name": "login" } }))
        .await;
    world
        .create("other", json!({ "secretRef": { "name": "others" } }))
        .await;
    let mut live = world.live(world.context());
    for name in ["app", "other"] {
        world
            .until(name, shows("FetchFailed", "GitOperationFailed"))
            .await;
        // The finalizer, and the first real pass. The Secrets that were there from the start ask for no third.
        live.until_passes(name, 2).await;
    }
    world.secret("unrelated", json!({ "password": "x" })).await;
    world.secret("new", json!({ "password": "x" })).await;
    world.secret("login", json!({ "password": "right" })).await;
    world.until("app", shows("Ready", "Succeeded")).await;
    live.until_passes("app", 3).await;
    assert_eq!((live.passes("app"), live.passes("other")), (3, 2));
    // One that appears counts as changed.
    world.delete_secret("others").await;
    world
        .secret("others", json!({ "username": "user", "password": "right" }))
        .await;
    world.until("other", shows("Ready", "Succeeded")).await;
    live.until_passes("other", 3).await;
    assert_eq!((live.passes("app"), live.passes("other")), (3, 3));
    live.end().await;
    // A restart finds nothing that changed.
    let mut live = world.live(world.context());
    for name in ["app", "other"] {
        live.until_passes(name, 1).await;
    }
    world.secret("login", json!({ "password": "wrong" })).await;
    live.until_passes("app", 2).await;
    assert_eq!((live.passes("app"), live.passes("other")), (2, 1));
    live.end().await;
}
