//! What objects of one host do together: they leave it alone when it asks, and share lookups. Counted at the server.

use std::time::Duration;

use serde_json::json;
use sluice_harness::git::{Fault, Scope, Step};
use sluice_runtime::watch::Next;

use super::world::World;

#[tokio::test]
async fn a_host_that_asks_to_wait_hears_nothing_of_all_that_ask_as_the_same() {
    let world = World::new().await;
    let origin = world.network();
    for name in ["one", "two"] {
        world.create(name, json!({})).await;
    }
    world
        .secret("login", json!({ "username": "u", "password": "p" }))
        .await;
    world
        .create("other", json!({ "secretRef": { "name": "login" } }))
        .await;
    world.server.fault(Scope::Any, Fault::RetryAfter(429, 17));
    let pass = async |name: &str| world.pass_in(world.context_with(origin.clone()), name).await;
    assert_eq!(pass("one").await, Next::After(Duration::from_secs(17)));
    assert_eq!(world.server.requests().len(), 1);
    let Next::After(wait) = pass("two").await else {
        panic!("the other object does not wait")
    };
    assert!((17..=18).contains(&wait.as_secs()), "{wait:?}");
    assert_eq!(world.server.requests().len(), 1, "no second request");
    let shown = |text: &str| text.contains("asks to wait until 20") && text.contains("(HTTP status 429)");
    assert!(shown(&world.table("two").await));
    // Somebody else may have requests left.
    pass("other").await;
    assert_eq!(world.server.requests().len(), 2);
    world.server.clear_faults();
    world.clock.advance(Duration::from_secs(20));
    for name in ["one", "two"] {
        pass(name).await;
        assert!(world.table(name).await.contains("Ready=True"), "{name}");
    }
}

#[tokio::test]
async fn a_host_that_is_down_for_a_while_hears_nothing_of_anybody() {
    let world = World::new().await;
    let origin = world.network();
    world.create("one", json!({})).await;
    world
        .secret("login", json!({ "username": "u", "password": "p" }))
        .await;
    world
        .create("other", json!({ "secretRef": { "name": "login" } }))
        .await;
    world.server.fault(Scope::Any, Fault::RetryAfter(503, 30));
    for name in ["one", "other"] {
        let context = world.context_with(origin.clone());
        assert!(
            matches!(world.pass_in(context, name).await, Next::After(_)),
            "{name}"
        );
    }
    assert_eq!(world.server.requests().len(), 1);
}

#[tokio::test]
async fn objects_of_one_reference_share_a_lookup_and_a_forced_one_asks_itself() {
    let mut world = World::new().await;
    let origin = world.network();
    for name in ["one", "two", "three"] {
        world.create(name, json!({})).await;
        world.pass_in(world.context_with(origin.clone()), name).await;
    }
    tokio::time::sleep(Duration::from_millis(1100)).await;
    world.server.clear_requests();
    // Slow enough that all three meet.
    let slow = Fault::Slow {
        bytes: 16,
        pause: Duration::from_millis(20),
    };
    world.server.fault(Scope::LS_REFS, slow);
    let pass = |name: &'static str| world.pass_in(world.context_with(origin.clone()), name);
    let (one, two, three) = tokio::join!(pass("one"), pass("two"), pass("three"));
    assert!(
        [one, two, three]
            .iter()
            .all(|next| matches!(next, Next::After(_)))
    );
    assert_eq!(world.server.count(Step::LsRefs), 1);
    world.server.clear_faults();
    world.commit("second", &[("main.tf", "locals { a = 1 }\n")]);
    world.request("two", "now").await;
    world.pass_in(world.context_with(origin.clone()), "two").await;
    assert_eq!(world.server.count(Step::LsRefs), 2);
    assert!(world.table("two").await.contains("main@sha1:<second>"));
}
