//! Tests of the requests to the API: their number in each part of an object's life.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use sluice_api::source::GitRepository;
use sluice_harness::git::{Fault, Gate, Scope};
use sluice_runtime::watch::{Reconciler as _, ShownVersions};

use super::environment::{LIMIT, RequestCounter, TestEnvironment, has_condition};
use crate::reconcile::slots::Lane;
use crate::reconcile::{Context, GitRepositories, Secrets};

/// The writes of an object.
const FINALIZER: &str = "PATCH /apis/source.toolkit.fluxcd.io/v1/namespaces/team/gitrepositories/app";
const STATUS: &str = "PATCH /apis/source.toolkit.fluxcd.io/v1/namespaces/team/gitrepositories/app/status";

/// Returns a context whose requests are counted, and whose reconciliations write their progress after `delay`.
fn counted(env: &TestEnvironment, delay: Duration) -> (Context, RequestCounter) {
    let requests = RequestCounter::default();
    let client = requests.client(env.client.clone());
    let context = Context {
        secrets: Secrets::new(client.clone(), ShownVersions::default()),
        client,
        progress_delay: delay,
        ..env.context()
    };
    (context, requests)
}

#[tokio::test]
async fn a_new_object_takes_two_writes_and_one_event() {
    let env = TestEnvironment::new().await;
    let (context, requests) = counted(&env, LIMIT);
    let mut controller = env.start_controller(context);
    env.create("app", json!({})).await;
    env.until("app", has_condition("Ready", "Succeeded")).await;
    controller.until_reconciled("app", 2).await;
    controller.end().await;
    assert_eq!(requests.sent(), [FINALIZER, STATUS]);
    let events = env.events().await;
    assert_eq!(events.len(), 1, "{events:?}");
}

#[tokio::test]
async fn a_start_with_stored_artifacts_writes_only_what_was_requested() {
    let env = TestEnvironment::ready().await;
    for (requested, expected) in [(false, &[] as &[&str]), (true, &[STATUS])] {
        if requested {
            env.request("app", "now").await;
        }
        let (context, requests) = counted(&env, LIMIT);
        let mut controller = env.start_controller(context);
        controller.until_reconciled("app", 1).await;
        controller.end().await;
        assert_eq!(requests.sent(), expected, "requested: {requested}");
        assert_eq!(env.events().await, Vec::<String>::new());
    }
    let handled = env.status("app").await.last_handled_reconcile_at;
    assert_eq!(handled.as_deref(), Some("now"));
}

/// A slow API delays no other object of the host.
#[tokio::test]
async fn the_slot_of_a_host_is_free_while_the_status_is_written() {
    let env = TestEnvironment::ready().await;
    env.request("app", "now").await;
    let lane = Lane::of(&env.get("app").await);
    let context = env.context();
    let (slots, client) = (context.slots.clone(), env.client.clone());
    let loads = Arc::<Mutex<Vec<(usize, usize)>>>::default();
    let seen = Arc::clone(&loads);
    let send = move |request: Request<Body>| {
        if request.uri().path().ends_with("/status") {
            seen.lock().unwrap().push(slots.load(&lane));
        }
        let client = client.clone();
        async move { client.send(request).await }
    };
    let context = Context {
        client: Client::new(tower::service_fn(send), "default"),
        progress_delay: LIMIT,
        ..context
    };
    env.reconcile_in(context, "app").await;
    assert_eq!(*loads.lock().unwrap(), [(0, 0)]);
}

/// An object that only queues needs none of the phases, and a list may have thousands of them.
#[tokio::test]
async fn the_future_of_an_object_is_small() {
    let env = TestEnvironment::new().await;
    let reconciler = GitRepositories::new(Arc::new(env.context()));
    let object = json!({ "metadata": { "name": "app" }, "spec": { "url": "https://h/r", "interval": "1m" } });
    let object: GitRepository = serde_json::from_value(object).unwrap();
    let size = size_of_val(&reconciler.reconcile(Arc::new(object)));
    assert!(size <= 2 << 10, "{size} bytes");
}

/// The cache omits the history of an object, and no write takes it from the object.
#[tokio::test]
async fn a_write_keeps_what_the_cache_omits() {
    let env = TestEnvironment::new().await;
    env.create("app", json!({})).await;
    let last_applied = "kubectl.kubernetes.io/last-applied-configuration";
    let annotations = json!({ last_applied: "{}", "other": "x" });
    env.edit("app", json!({ "metadata": { "annotations": annotations } }))
        .await;
    let mut trimmed = env.get("app").await;
    GitRepositories::trim(&mut trimmed);
    assert_eq!(trimmed.metadata.managed_fields, None);
    let kept: Vec<_> = trimmed.metadata.annotations.unwrap().into_keys().collect();
    assert_eq!(kept, ["other"]);
    trimmed.metadata.annotations = Some([(last_applied.to_owned(), "{}".to_owned())].into());
    GitRepositories::trim(&mut trimmed);
    assert_eq!(trimmed.metadata.annotations, None);
    let mut controller = env.start_controller(env.context());
    env.until("app", has_condition("Ready", "Succeeded")).await;
    controller.until_reconciled("app", 2).await;
    controller.end().await;
    let annotations = env.get("app").await.metadata.annotations.unwrap();
    assert_eq!(annotations[last_applied], "{}");
}

#[tokio::test]
async fn a_push_takes_one_write_and_one_event() {
    let mut env = TestEnvironment::ready().await;
    env.commit("second", &[("main.tf", "locals { a = 1 }\n")]);
    let (context, requests) = counted(&env, LIMIT);
    env.reconcile_in(context, "app").await;
    assert_eq!(requests.sent(), [STATUS]);
    insta::assert_snapshot!(env.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<second>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<second>'
    generation 1 observed 1 artifact main@sha1:<second>
    event Normal NewArtifact stored artifact for commit 'second' (files, digest, revision)
    ");
}

/// Waits until a reconcile request was handled.
async fn request(env: &TestEnvironment, token: &str) {
    env.request("app", token).await;
    env.until("app", |object| {
        let status = object.status.as_ref();
        status.and_then(|status| status.last_handled_reconcile_at.as_deref()) == Some(token)
    })
    .await;
}

#[tokio::test]
async fn a_secret_is_read_once_for_each_version() {
    const SECRETS: &str = "GET /api/v1/namespaces/team/secrets/";
    let env = TestEnvironment::new().await;
    env.server.require_basic("user", "one");
    let login = |password: &str| json!({ "username": "user", "password": password });
    env.secret("login", login("one")).await;
    env.secret("unrelated", login("one")).await;
    env.create("app", json!({ "secretRef": { "name": "login" } }))
        .await;
    let (context, requests) = counted(&env, LIMIT);
    let controller = env.start_controller(context);
    let reads = || {
        let sent = requests.sent().into_iter();
        sent.filter_map(|request| request.strip_prefix(SECRETS).map(str::to_owned))
            .collect::<Vec<_>>()
    };
    env.until("app", has_condition("Ready", "Succeeded")).await;
    for token in ["one", "two", "three"] {
        request(&env, token).await;
    }
    assert_eq!(reads(), ["login"]);
    // A new version is read by the reconciliation that it triggers.
    env.server.require_basic("user", "two");
    env.secret("login", login("two")).await;
    let read = async {
        while reads().len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, read).await.expect("read in time");
    for token in ["four", "five"] {
        request(&env, token).await;
    }
    assert_eq!(reads(), ["login", "login"]);
    env.until("app", has_condition("Ready", "Succeeded")).await;
    // A Secret that is gone is not used any longer, once the watch shows it.
    env.delete_secret("login").await;
    let refused = async {
        for number in 0.. {
            request(&env, &format!("gone-{number}")).await;
            if has_condition("FetchFailed", "AuthenticationFailed")(&env.get("app").await) {
                return;
            }
        }
    };
    tokio::time::timeout(LIMIT, refused)
        .await
        .expect("noticed in time");
    controller.end().await;
}

#[tokio::test]
async fn a_reconciliation_that_takes_long_writes_its_progress() {
    let env = TestEnvironment::new().await;
    for (scope, text) in [
        (Scope::LS_REFS, "processing object: new generation -1 -> 1"),
        (Scope::FETCH, "processing object: new generation 1 -> 2"),
    ] {
        let gate = Gate::default();
        env.server.fault(scope, Fault::Wait(gate.clone()));
        if scope == Scope::LS_REFS {
            env.create("app", json!({})).await;
        } else {
            env.repository.commit_files(&[("b.tf", "")], "second").unwrap();
            env.edit("app", json!({ "spec": { "timeout": "59s" } })).await;
        }
        let (context, requests) = counted(&env, Duration::from_millis(10));
        let controller = env.start_controller(context);
        // The request does not end before the gate opens.
        let waiting = env
            .until("app", has_condition("Reconciling", "Progressing"))
            .await;
        let conditions = waiting.status.unwrap().conditions;
        let shown = conditions.iter().find(|shown| shown.type_ == "Reconciling");
        assert_eq!(shown.unwrap().message, text);
        gate.open();
        env.until("app", |object| {
            let status = object.status.as_ref();
            object.metadata.generation == status.and_then(|status| status.observed_generation)
        })
        .await;
        controller.end().await;
        let mut sent = requests.sent();
        sent.retain(|request| request == STATUS);
        assert_eq!(sent.len(), 2, "{scope:?}");
        env.server.clear_faults();
    }
}
