//! What objects of one host do together: they leave it alone when it asks, and share lookups. Counted at the server.

use std::time::Duration;

use futures::FutureExt as _;
use serde_json::json;
use sluice_harness::git::{Fault, Scope, Step};
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::watch::Next;
use tokio::time::Instant;

use super::world::{LIMIT, NAMESPACE, Requests, World, shows};
use crate::reconcile::places::Lane;
use crate::reconcile::{Bounds, Context, Places};

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
async fn a_host_that_limits_requests_is_told_of_once() {
    for status in [429, 503, 403] {
        let world = World::ready().await;
        world.server.fault(Scope::Any, Fault::RetryAfter(status, 17));
        for _ in 0..2 {
            assert_eq!(
                world.pass("app").await,
                Next::After(Duration::from_secs(17)),
                "{status}"
            );
            world.clock.advance(Duration::from_secs(20));
        }
        let told = world.told().await;
        let warnings = told.iter().filter(|line| line.contains("asks to wait"));
        assert_eq!(warnings.count(), 1, "{status}: {told:?}");
    }
}

#[tokio::test]
async fn times_beyond_the_bounds_are_told_of_once() {
    let world = World::ready().await;
    world
        .edit(
            "app",
            json!({ "spec": { "timeout": "99999999m", "interval": "9999999h" } }),
        )
        .await;
    let year = Duration::from_secs(365 * 24 * 3600);
    for _ in 0..2 {
        assert_eq!(world.pass("app").await, Next::After(year));
    }
    let told = world.told().await;
    for flag in ["--max-timeout", "--max-interval"] {
        assert_eq!(
            told.iter().filter(|line| line.contains(flag)).count(),
            1,
            "{told:?}"
        );
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

#[tokio::test]
async fn a_lookup_from_before_an_event_does_not_answer_it() {
    let mut world = World::new().await;
    let origin = world.network();
    for name in ["one", "two"] {
        world.create(name, json!({})).await;
        world.pass_in(world.context_with(origin.clone()), name).await;
    }
    // A lookup, then a push, then an event, all within the second in which lookups are shared.
    world.server.clear_requests();
    world.pass_in(world.context_with(origin.clone()), "one").await;
    world.commit("second", &[("main.tf", "locals { a = 1 }\n")]);
    let context = world.context_with(origin.clone());
    let key = ObjectKey {
        namespace: NAMESPACE.into(),
        name: "two".into(),
    };
    context.memory.called(&key, Instant::now());
    world.pass_in(context, "two").await;
    assert!(world.table("two").await.contains("main@sha1:<second>"));
    // And so for an edit of which no event has come.
    world.commit("third", &[("main.tf", "locals { a = 2 }\n")]);
    world.edit("one", json!({ "spec": { "timeout": "59s" } })).await;
    world.pass_in(world.context_with(origin.clone()), "one").await;
    assert!(world.table("one").await.contains("main@sha1:<third>"));
}

#[tokio::test]
async fn a_pass_that_finds_nothing_new_asks_the_api_for_nothing() {
    let world = World::ready().await;
    let requests = Requests::default();
    let context = Context {
        client: requests.client(world.client.clone()),
        ..world.context()
    };
    world.pass_in(context, "app").await;
    assert_eq!(requests.count(), 0);
}

#[tokio::test]
async fn a_fleet_of_one_host_waits_without_requests_and_everybody_has_a_turn() {
    let world = World::new().await;
    let objects = 60;
    for number in 0..objects {
        let name = format!("fleet-{number}");
        let url = world.server.serve(&name, &world.repository);
        world.create(&name, json!({ "url": url, "interval": "1s" })).await;
    }
    let requests = Requests::default();
    let context = Context {
        client: requests.client(world.client.clone()),
        ..world.context()
    };
    let mut live = world.live(context);
    // The finalizer, the artifact, and a look of the interval.
    live.until_all(objects, 3).await;
    let (before, passes) = (requests.count(), live.all_passes());
    live.until_all(objects, 5).await;
    let passes = usize::try_from(live.all_passes() - passes).unwrap();
    let asked = requests.count() - before;
    assert!(
        passes >= objects && asked <= passes,
        "{asked} requests in {passes} passes"
    );
    live.end().await;
}

#[tokio::test]
async fn objects_that_hang_at_their_proxy_delay_nobody_else() {
    let world = World::new().await;
    // A proxy that takes every connection and never answers.
    let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let hanging = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok(connection) = proxy.accept().await {
            held.push(connection);
        }
    });
    world.secret("proxy", json!({ "address": address })).await;
    for name in ["h1", "h2", "h3", "h4", "h5"] {
        let fields = json!({ "proxySecretRef": { "name": "proxy" }, "timeout": "99999999m" });
        world.create(name, fields).await;
    }
    let context = world.context();
    let places = context.places.clone();
    let host = world.server.address().to_string();
    let proxy = Some(ObjectKey {
        namespace: NAMESPACE.into(),
        name: "proxy".into(),
    });
    let stop = context.stop.clone();
    let live = world.live(context);
    let full = async {
        while places.load(&Lane::Host {
            host: host.clone(),
            proxy: proxy.clone(),
        }) != (4, 1)
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, full)
        .await
        .expect("four hang and one waits");
    world.create("app", json!({})).await;
    world.until("app", shows("Ready", "Succeeded")).await;
    // What hangs ends with its objects.
    stop.cancel();
    hanging.abort();
    live.end().await;
}

#[tokio::test]
async fn an_object_that_waits_for_long_says_for_what() {
    let world = World::ready().await;
    world.create("new", json!({})).await;
    let places = Places::new(Bounds {
        report_after: Duration::ZERO,
        ..Bounds::of(16, 2)
    });
    let with_places = || Context {
        places: places.clone(),
        ..world.context()
    };
    world.pass_in(with_places(), "new").await;
    world.told().await;
    let host = world.server.address().to_string();
    let lane = Lane::Host {
        host: host.clone(),
        proxy: None,
    };
    let mut held = Vec::new();
    while let Some(Some(place)) = places.beside(NAMESPACE, lane.clone()).now_or_never() {
        held.push(place);
    }
    world.edit("new", json!({ "spec": { "timeout": "59s" } })).await;
    for name in ["new", "app"] {
        assert!(
            matches!(world.pass_in(with_places(), name).await, Next::Queued(_)),
            "{name}"
        );
    }
    let text = format!("waiting for a place at {host}: other objects hold all of its 4 places");
    let conditions = world.status("new").await.conditions;
    let shown = conditions
        .iter()
        .find(|held| held.type_ == "Reconciling")
        .unwrap();
    assert_eq!(shown.message, text, "somebody waits for it");
    let told = world.told().await;
    assert!(
        told.iter().any(|line| line.contains("WaitingForHost")),
        "{told:?}"
    );
    held.clear();
    world.pass_in(with_places(), "new").await;
    assert!(world.table("new").await.contains("Ready=True"));
}
