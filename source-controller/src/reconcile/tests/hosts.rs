//! Tests of objects that share a host: throttling and slots, counted at the server and at the API.

use std::time::Duration;

use serde_json::json;
use sluice_harness::git::{Fault, Scope};
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::watch::Requeue;

use super::environment::{LIMIT, NAMESPACE, RequestCounter, TestEnvironment, has_condition};
use crate::reconcile::slots::{Lane, SlotRequest};
use crate::reconcile::{Context, SlotLimits, Slots};

#[tokio::test]
async fn a_429_throttles_all_objects_with_the_same_credentials() {
    let env = TestEnvironment::new().await;
    let origin = env.network();
    for name in ["one", "two"] {
        env.create(name, json!({})).await;
    }
    env.secret("login", json!({ "username": "u", "password": "p" }))
        .await;
    env.create("other", json!({ "secretRef": { "name": "login" } }))
        .await;
    env.server.fault(Scope::Any, Fault::RetryAfter(429, 17));
    let reconcile = async |name: &str| env.reconcile_in(env.context_with(origin.clone()), name).await;
    assert_eq!(reconcile("one").await, Requeue::After(Duration::from_secs(17)));
    assert_eq!(env.server.requests().len(), 1);
    let Requeue::After(wait) = reconcile("two").await else {
        panic!("the other object is not throttled")
    };
    assert!((17..=18).contains(&wait.as_secs()), "{wait:?}");
    assert_eq!(env.server.requests().len(), 1, "no second request");
    let shown = |text: &str| text.contains("asks to wait until 20") && text.contains("(HTTP status 429)");
    assert!(shown(&env.table("two").await));
    // Other credentials may have requests left.
    reconcile("other").await;
    assert_eq!(env.server.requests().len(), 2);
    env.server.clear_faults();
    env.clock.advance(Duration::from_secs(20));
    for name in ["one", "two"] {
        reconcile(name).await;
        assert!(env.table(name).await.contains("Ready=True"), "{name}");
    }
}

#[tokio::test]
async fn throttling_is_reported_once() {
    for status in [429, 503, 403] {
        let env = TestEnvironment::ready().await;
        env.server.fault(Scope::Any, Fault::RetryAfter(status, 17));
        for _ in 0..2 {
            assert_eq!(
                env.reconcile("app").await,
                Requeue::After(Duration::from_secs(17)),
                "{status}"
            );
            env.clock.advance(Duration::from_secs(20));
        }
        let events = env.events().await;
        let warnings = events.iter().filter(|line| line.contains("asks to wait"));
        assert_eq!(warnings.count(), 1, "{status}: {events:?}");
    }
}

#[tokio::test]
async fn durations_out_of_bounds_are_reported_once() {
    let env = TestEnvironment::ready().await;
    env.edit(
        "app",
        json!({ "spec": { "timeout": "99999999m", "interval": "9999999h" } }),
    )
    .await;
    let year = Duration::from_hours(8760);
    for _ in 0..2 {
        assert_eq!(env.reconcile("app").await, Requeue::After(year));
    }
    let events = env.events().await;
    for flag in ["--max-timeout", "--max-interval"] {
        assert_eq!(
            events.iter().filter(|line| line.contains(flag)).count(),
            1,
            "{events:?}"
        );
    }
}

#[tokio::test]
async fn a_503_throttles_all_objects_of_the_host() {
    let env = TestEnvironment::new().await;
    let origin = env.network();
    env.create("one", json!({})).await;
    env.secret("login", json!({ "username": "u", "password": "p" }))
        .await;
    env.create("other", json!({ "secretRef": { "name": "login" } }))
        .await;
    env.server.fault(Scope::Any, Fault::RetryAfter(503, 30));
    for name in ["one", "other"] {
        let context = env.context_with(origin.clone());
        assert!(
            matches!(env.reconcile_in(context, name).await, Requeue::After(_)),
            "{name}"
        );
    }
    assert_eq!(env.server.requests().len(), 1);
}

#[tokio::test]
async fn a_reconciliation_without_changes_sends_no_api_request() {
    let env = TestEnvironment::ready().await;
    let requests = RequestCounter::default();
    let context = Context {
        client: requests.client(env.client.clone()),
        ..env.context()
    };
    env.reconcile_in(context, "app").await;
    assert_eq!(requests.count(), 0);
}

#[tokio::test]
async fn many_objects_of_one_host_wait_without_requests_and_all_are_reconciled() {
    let env = TestEnvironment::new().await;
    let objects = 60;
    for number in 0..objects {
        let name = format!("fleet-{number}");
        let url = env.server.serve(&name, &env.repository);
        env.create(&name, json!({ "url": url, "interval": "1s" })).await;
    }
    let requests = RequestCounter::default();
    let context = Context {
        client: requests.client(env.client.clone()),
        ..env.context()
    };
    let mut controller = env.start_controller(context);
    // The finalizer, the artifact, and one scheduled reconciliation.
    controller.until_all(objects, 3).await;
    let (before, reconciliations) = (requests.count(), controller.all_reconciliations());
    controller.until_all(objects, 5).await;
    let reconciliations = usize::try_from(controller.all_reconciliations() - reconciliations).unwrap();
    let requests = requests.count() - before;
    assert!(
        reconciliations >= objects && requests <= reconciliations,
        "{requests} requests in {reconciliations} passes"
    );
    controller.end().await;
}

#[tokio::test]
async fn objects_that_hang_at_their_proxy_delay_no_others() {
    let env = TestEnvironment::new().await;
    // A proxy that accepts every connection and never responds.
    let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let hanging = tokio::spawn(async move {
        let mut slots_in_use = Vec::new();
        while let Ok(connection) = proxy.accept().await {
            slots_in_use.push(connection);
        }
    });
    env.secret("proxy", json!({ "address": address })).await;
    for name in ["h1", "h2", "h3", "h4", "h5"] {
        let fields = json!({ "proxySecretRef": { "name": "proxy" }, "timeout": "99999999m" });
        env.create(name, fields).await;
    }
    let context = env.context();
    let slots = context.slots.clone();
    let host = env.server.address().to_string();
    let proxy = Some(ObjectKey {
        namespace: NAMESPACE.into(),
        name: "proxy".into(),
    });
    let stop = context.stop.clone();
    let controller = env.start_controller(context);
    let full = async {
        while slots.load(&Lane::Host {
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
    env.create("app", json!({})).await;
    env.until("app", has_condition("Ready", "Succeeded")).await;
    // Cancel the hanging requests.
    stop.cancel();
    hanging.abort();
    controller.end().await;
}

#[tokio::test]
async fn an_object_that_waits_long_reports_its_host() {
    let env = TestEnvironment::ready().await;
    env.create("new", json!({})).await;
    let slots = Slots::new(SlotLimits {
        report_after: Duration::ZERO,
        ..SlotLimits::of(16, 2)
    });
    let with_places = || Context {
        slots: slots.clone(),
        ..env.context()
    };
    env.reconcile_in(with_places(), "new").await;
    env.events().await;
    let host = env.server.address().to_string();
    let lane = Lane::Host {
        host: host.clone(),
        proxy: None,
    };
    let others = SlotRequest {
        lane,
        is_urgent: false,
    };
    let mut slots_in_use = Vec::new();
    for name in ["1", "2", "3", "4"] {
        let key = ObjectKey {
            namespace: NAMESPACE.into(),
            name: name.into(),
        };
        slots_in_use.push(slots.acquire(&key, &others));
    }
    env.edit("new", json!({ "spec": { "timeout": "59s" } })).await;
    for name in ["new", "app"] {
        assert!(
            matches!(env.reconcile_in(with_places(), name).await, Requeue::Queued(_)),
            "{name}"
        );
    }
    let text = format!("waiting for a slot at {host}: all 4 slots are in use");
    let conditions = env.status("new").await.conditions;
    let shown = conditions
        .iter()
        .find(|slots_in_use| slots_in_use.type_ == "Reconciling")
        .unwrap();
    assert_eq!(shown.message, text, "a user waits for the result");
    let events = env.events().await;
    assert!(
        events.iter().any(|line| line.contains("WaitingForHost")),
        "{events:?}"
    );
    slots_in_use.clear();
    env.reconcile_in(with_places(), "new").await;
    assert!(env.table("new").await.contains("Ready=True"));
}
