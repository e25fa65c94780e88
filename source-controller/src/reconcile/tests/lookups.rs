//! Tests of lookups that objects share, counted at the server.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use sluice_harness::git::{Fault, Scope, Step};
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::shutdown::Token;
use sluice_runtime::watch::Requeue;
use tokio::time::Instant;

use super::environment::{LIMIT, NAMESPACE, TestEnvironment};
use crate::reconcile::{Network, Origin as _, resolve};

/// Interval of objects whose lookups expire during a test.
const QUICK: &str = "1m";
/// Longer than half of that interval, and than a lookup is shared by objects that are not ready.
const EXPIRED: Duration = Duration::from_secs(31);

/// Reconciles an object without an event.
async fn reconcile(env: &TestEnvironment, origin: &Arc<Network>, name: &str) -> Requeue {
    env.reconcile_in(env.context_with(origin.clone()), name).await
}

/// Creates objects of `/app.git` with these fields and reconciles each of them.
async fn create(env: &TestEnvironment, origin: &Arc<Network>, objects: &[(&str, Value)]) {
    for (name, fields) in objects {
        env.create(name, fields.clone()).await;
        reconcile(env, origin, name).await;
    }
    env.server.clear_requests();
}

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        namespace: NAMESPACE.into(),
        name: name.into(),
    }
}

/// Protects the time and the memory of a lookup: each writes the space of its whole future, once on the stack and once into
/// its box, and each object that is due may have one. So what few lookups need is in boxes of its own: fetches, discovery,
/// ssh, second attempts, and the search for the cause of an error.
///
/// Nothing depends on the exact bound. A future beyond it holds something that few lookups need: put that into a box.
#[tokio::test]
async fn the_future_of_a_lookup_is_small() {
    let env = TestEnvironment::new().await;
    env.create("app", json!({})).await;
    let spec = env.get("app").await.spec;
    let source = resolve::resolve(&spec, &key("app"), &env.context())
        .await
        .unwrap();
    let (origin, stop) = (env.network(), Token::new());
    let size = size_of_val(&*origin.head(&source, &stop));
    assert!(size <= 4 << 10, "{size} bytes");
}

#[tokio::test]
async fn objects_of_one_remote_send_one_lookup_in_half_an_interval() {
    let env = TestEnvironment::new().await;
    let origin = env.network();
    let names: Vec<_> = (0..20).map(|number| format!("object-{number}")).collect();
    let objects: Vec<_> = names.iter().map(|name| (name.as_str(), json!({}))).collect();
    create(&env, &origin, &objects).await;
    // The interval is five minutes.
    origin.age_lookups(EXPIRED);
    for name in &names {
        assert!(matches!(reconcile(&env, &origin, name).await, Requeue::After(_)));
    }
    assert_eq!(env.server.requests().len(), 0);
    // An event needs a lookup that began later, which the others use too.
    env.request("object-7", "now").await;
    for name in &names {
        reconcile(&env, &origin, name).await;
    }
    assert_eq!(env.server.count(Step::LsRefs), 1);
}

#[tokio::test]
async fn a_lookup_is_not_reused_after_half_an_interval() {
    let env = TestEnvironment::new().await;
    let origin = env.network();
    let quick = json!({ "interval": QUICK });
    create(&env, &origin, &[("one", quick.clone()), ("two", quick)]).await;
    for _ in 0..2 {
        origin.age_lookups(EXPIRED);
        env.server.clear_requests();
        for name in ["one", "two"] {
            reconcile(&env, &origin, name).await;
        }
        assert_eq!(env.server.count(Step::LsRefs), 1);
    }
}

#[tokio::test]
async fn a_lookup_that_is_done_keeps_no_channel() {
    let env = TestEnvironment::new().await;
    let origin = env.network();
    let refs = |branch: &str| json!({ "interval": QUICK, "ref": { "branch": branch } });
    env.repository.branch("dev").unwrap();
    create(&env, &origin, &[("main", refs("main")), ("dev", refs("dev"))]).await;
    assert_eq!(origin.lookup_channels(), 0);
    origin.age_lookups(EXPIRED);
    reconcile(&env, &origin, "main").await;
    assert_eq!(origin.lookup_channels(), 0);
    // The result of the further reference is reused.
    reconcile(&env, &origin, "dev").await;
    assert_eq!(env.server.count(Step::LsRefs), 1);
}

#[tokio::test]
async fn all_refs_of_a_remote_are_looked_up_with_one_request() {
    let env = TestEnvironment::new().await;
    env.repository.branch("dev").unwrap();
    env.repository.tag("v1.0.0").unwrap();
    let origin = env.network();
    let of = |reference: Value| json!({ "interval": QUICK, "ref": reference });
    let objects = [
        ("main", of(json!({ "branch": "main" }))),
        ("dev", of(json!({ "branch": "dev" }))),
        ("tag", of(json!({ "branch": null, "tag": "v1.0.0" }))),
        ("name", of(json!({ "branch": null, "name": "refs/heads/dev" }))),
        ("range", of(json!({ "branch": null, "semver": "1.x" }))),
        ("absent", of(json!({ "branch": "r" }))),
    ];
    create(&env, &origin, &objects).await;
    origin.age_lookups(EXPIRED);
    for name in ["dev", "main", "tag", "name"] {
        reconcile(&env, &origin, name).await;
    }
    let mut requests = env.server.requests();
    requests.retain(|request| request.step == Step::LsRefs);
    assert_eq!(requests.len(), 1, "{requests:?}");
    let body = requests[0].body_text();
    let asks = |name: &str| body.contains(&format!("ref-prefix {name}\n"));
    for name in ["refs/heads/main", "refs/heads/dev", "refs/tags/v1.0.0"] {
        assert!(asks(name), "{name}: {body}");
    }
    assert!(!asks("refs/heads/r"), "it does not exist: {body}");
    reconcile(&env, &origin, "range").await;
    assert_eq!(env.server.count(Step::LsRefs), 2, "a range needs all tags");
}

#[tokio::test]
async fn other_credentials_need_their_own_lookup() {
    let env = TestEnvironment::new().await;
    let origin = env.network();
    env.secret("login", json!({ "username": "u", "password": "p" }))
        .await;
    let private = json!({ "secretRef": { "name": "login" } });
    create(&env, &origin, &[("public", json!({})), ("private", private)]).await;
    for name in ["public", "private"] {
        env.request(name, "now").await;
        reconcile(&env, &origin, name).await;
    }
    assert_eq!(env.server.count(Step::LsRefs), 2);
}

#[tokio::test]
async fn an_object_that_reused_a_lookup_is_reconciled_when_the_next_one_finds_a_push() {
    let mut env = TestEnvironment::new().await;
    let origin = env.network();
    let mut changed = origin.changed();
    let quick = json!({ "interval": QUICK });
    create(&env, &origin, &[("quick", quick), ("slow", json!({}))]).await;
    origin.age_lookups(EXPIRED);
    for name in ["quick", "slow"] {
        reconcile(&env, &origin, name).await;
    }
    assert_eq!(env.server.count(Step::LsRefs), 1, "reused by the second object");
    env.commit("second", &[("main.tf", "locals { a = 1 }\n")]);
    origin.age_lookups(EXPIRED);
    reconcile(&env, &origin, "quick").await;
    let found = tokio::time::timeout(LIMIT, changed.next()).await.unwrap();
    assert_eq!(found, Some(key("slow")));
    reconcile(&env, &origin, "slow").await;
    assert!(env.table("slow").await.contains("main@sha1:<second>"));
    assert_eq!(env.server.count(Step::LsRefs), 2);
    // The object has the new result: nothing is left to report.
    origin.age_lookups(EXPIRED);
    reconcile(&env, &origin, "quick").await;
    assert_eq!(env.server.count(Step::LsRefs), 3);
    assert_eq!(changed.next().now_or_never(), None);
}

#[tokio::test]
async fn an_object_that_is_not_ready_does_not_reuse_an_old_lookup() {
    let env = TestEnvironment::new().await;
    let origin = env.network();
    create(&env, &origin, &[("one", json!({})), ("two", json!({}))]).await;
    env.edit_status("two", json!({ "status": { "conditions": [] } }))
        .await;
    origin.age_lookups(EXPIRED);
    for (name, lookups) in [("one", 0), ("two", 1)] {
        reconcile(&env, &origin, name).await;
        assert_eq!(env.server.count(Step::LsRefs), lookups, "{name}");
    }
}

#[tokio::test]
async fn objects_of_one_reference_share_a_running_lookup_unless_requested() {
    let mut env = TestEnvironment::new().await;
    let origin = env.network();
    let quick = || json!({ "interval": QUICK });
    create(
        &env,
        &origin,
        &[("one", quick()), ("two", quick()), ("three", quick())],
    )
    .await;
    origin.age_lookups(EXPIRED);
    env.server.clear_requests();
    // Slow enough for all three to overlap.
    let slow = Fault::Slow {
        bytes: 16,
        pause: Duration::from_millis(20),
    };
    env.server.fault(Scope::LS_REFS, slow);
    let (one, two, three) = tokio::join!(
        reconcile(&env, &origin, "one"),
        reconcile(&env, &origin, "two"),
        reconcile(&env, &origin, "three"),
    );
    assert!(
        [one, two, three]
            .iter()
            .all(|next| matches!(next, Requeue::After(_)))
    );
    assert_eq!(env.server.count(Step::LsRefs), 1);
    env.server.clear_faults();
    env.commit("second", &[("main.tf", "locals { a = 1 }\n")]);
    env.request("two", "now").await;
    reconcile(&env, &origin, "two").await;
    assert_eq!(env.server.count(Step::LsRefs), 2);
    assert!(env.table("two").await.contains("main@sha1:<second>"));
}

#[tokio::test]
async fn a_lookup_older_than_the_trigger_is_not_reused() {
    let mut env = TestEnvironment::new().await;
    let origin = env.network();
    create(&env, &origin, &[("one", json!({})), ("two", json!({}))]).await;
    // A lookup, then a push, then an event, all within the time in which lookups are reused.
    reconcile(&env, &origin, "one").await;
    env.commit("second", &[("main.tf", "locals { a = 1 }\n")]);
    let context = env.context_with(origin.clone());
    context.tracker.record_trigger(&key("two"), Instant::now());
    env.reconcile_in(context, "two").await;
    assert!(env.table("two").await.contains("main@sha1:<second>"));
    // The same for an edit without a recorded trigger.
    env.commit("third", &[("main.tf", "locals { a = 2 }\n")]);
    env.edit("one", json!({ "spec": { "timeout": "59s" } })).await;
    reconcile(&env, &origin, "one").await;
    assert!(env.table("one").await.contains("main@sha1:<third>"));
}
