//! Passes because of something else: a Secret that changes, a new artifact that is included.

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

#[tokio::test]
async fn a_new_artifact_calls_those_that_include_it_and_a_circle_does_not_spin() {
    let mut world = World::new().await;
    world.serve("lib", &[("a.tf", "")]);
    let including = |names: &[&str]| {
        let includes: Vec<_> = names
            .iter()
            .map(|name| json!({ "repository": { "name": name } }))
            .collect();
        json!({ "include": includes })
    };
    world.create("app", including(&["lib"])).await;
    world.create("above", including(&["app"])).await;
    world.create("alone", json!({})).await;
    let mut live = world.live(world.context());
    for name in ["app", "above"] {
        world
            .until(
                name,
                shows(
                    "IncludeUnavailable",
                    if name == "app" { "NotFound" } else { "NoArtifact" },
                ),
            )
            .await;
    }
    world.until("alone", shows("Ready", "Succeeded")).await;
    live.until_passes("alone", 2).await;
    // It appears: both heal, one after the other, long before their wait is over.
    world
        .create("lib", json!({ "url": world.server.url("lib") }))
        .await;
    for name in ["lib", "app", "above"] {
        world.until(name, shows("Ready", "Succeeded")).await;
    }
    let before = world.artifact("above").await;
    world.serve("lib", &[("b.tf", "")]);
    world.request("lib", "now").await;
    world
        .until("above", |object| {
            let artifact = object.status.as_ref().and_then(|status| status.artifact.as_ref());
            artifact.is_some_and(|artifact| artifact.digest != before.digest)
        })
        .await;
    assert!(
        world
            .names(&world.artifact("above").await)
            .contains(&"app/lib/b.tf".to_owned())
    );
    assert_eq!(live.passes("alone"), 2);
    // Two that include each other follow at their intervals, as does one that includes itself.
    world.create("one", json!({})).await;
    world.create("two", including(&["one"])).await;
    world.until("two", shows("Ready", "Succeeded")).await;
    world
        .edit("one", json!({ "spec": including(&["one", "two"]) }))
        .await;
    live.until_passes("one", 3).await;
    world.create("last", including(&["lib"])).await;
    world.until("last", shows("Ready", "Succeeded")).await;
    let held = (live.passes("one"), live.passes("two"));
    live.end().await;
    assert!(held.0 == 3 && held.1 <= 4, "{held:?}");
}
