//! Tests of the recorder with a fake API that stores events.

use std::sync::Mutex;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use serde_json::{Value, json};
use tower::BoxError;
use tracing::subscriber::with_default;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;
use crate::clock::ManualClock;
use crate::sync::lock;

/// Write timeout, far above the time of a successful write.
const HANG_LIMIT: Duration = Duration::from_secs(2);

#[derive(Default)]
struct FakeApi {
    events: Mutex<Vec<Value>>,
    failing: Mutex<bool>,
    /// Requests for events of the object of this name hang.
    hung: Mutex<Option<String>>,
}

impl FakeApi {
    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        if *lock(&self.failing) {
            return (
                500,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "message": "no", "reason": "No"}),
            );
        }
        let body: Value = serde_json::from_slice(body).unwrap();
        let mut events = lock(&self.events);
        if *method == Method::POST {
            assert_eq!(path, "/api/v1/namespaces/ns/events");
            events.push(body.clone());
            return (201, body);
        }
        let name = path.rsplit('/').next().unwrap();
        let Some(held) = events.iter_mut().find(|event| event["metadata"]["name"] == name) else {
            return (
                404,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "message": "gone", "reason": "NotFound"}),
            );
        };
        for (key, value) in body.as_object().unwrap() {
            held[key] = value.clone();
        }
        (200, held.clone())
    }

    fn recorder(self: &Arc<Self>, clock: Arc<ManualClock>, trace: bool) -> Recorder {
        let fake = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let fake = Arc::clone(&fake);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let hung = lock(&fake.hung).clone();
                let event: Value = serde_json::from_slice(&body).unwrap();
                if hung.is_some_and(|name| event["involvedObject"]["name"] == *name) {
                    std::future::pending::<()>().await;
                }
                let (status, content) = fake.answer(&parts.method, parts.uri.path(), &body);
                let mut response = Response::new(Full::new(bytes::Bytes::from(content.to_string())));
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                Ok::<_, BoxError>(response)
            }
        });
        let reporter = Reporter {
            component: "source-controller".into(),
            instance: "pod-1".into(),
            trace,
        };
        Recorder::start_within(Client::new(service, "default"), reporter, clock, HANG_LIMIT)
    }

    fn table(&self) -> Vec<String> {
        let shown = |e: &Value| {
            format!("{} {} {} x{}", e["type"], e["reason"], e["message"], e["count"]).replace('"', "")
        };
        lock(&self.events).iter().map(shown).collect()
    }
}

fn object() -> ConfigMap {
    serde_json::from_value(
        json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "3"}}),
    )
    .unwrap()
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH))
}

#[tokio::test]
async fn an_event_has_all_fields() {
    let fake = Arc::new(FakeApi::default());
    let recorder = fake.recorder(clock(), false);
    recorder.record(
        &object(),
        Event::normal("NewArtifact", "stored").with("x/revision", "main@sha1:1"),
    );
    recorder.flush().await;
    let event = lock(&fake.events)[0].clone();
    assert_eq!(
        event["involvedObject"],
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "3"})
    );
    assert_eq!(
        event["metadata"]["annotations"],
        json!({"x/revision": "main@sha1:1"})
    );
    assert_eq!(event["source"], json!({"component": "source-controller"}));
    assert_eq!(event["reportingInstance"], "pod-1");
    assert_eq!(fake.table(), ["Normal NewArtifact stored x1"]);
}

#[tokio::test]
async fn equal_events_count_up_within_ten_minutes() {
    let fake = Arc::new(FakeApi::default());
    let clock = clock();
    let recorder = fake.recorder(Arc::clone(&clock), false);
    for message in ["one", "one", "two", "one"] {
        recorder.record(&object(), Event::warning("GitOperationFailed", message));
        recorder.flush().await;
        clock.advance(Duration::from_mins(1));
    }
    assert_eq!(
        fake.table(),
        [
            "Warning GitOperationFailed one x3",
            "Warning GitOperationFailed two x1"
        ]
    );
    assert_eq!(lock(&fake.events)[0]["lastTimestamp"], "1970-01-01T00:03:00Z");
    clock.advance(Duration::from_mins(10));
    recorder.record(&object(), Event::warning("GitOperationFailed", "one"));
    recorder.flush().await;
    assert_eq!(fake.table().len(), 3);
}

#[tokio::test]
async fn an_expired_event_is_created_again() {
    let fake = Arc::new(FakeApi::default());
    let recorder = fake.recorder(clock(), false);
    recorder.record(&object(), Event::normal("A", "a"));
    recorder.flush().await;
    lock(&fake.events).clear();
    recorder.record(&object(), Event::normal("A", "a"));
    recorder.flush().await;
    assert_eq!(fake.table(), ["Normal A a x1"]);
}

#[tokio::test]
async fn routine_is_written_only_with_tracing_and_failures_are_not_fatal() {
    let fake = Arc::new(FakeApi::default());
    let (quiet, tracing) = (fake.recorder(clock(), false), fake.recorder(clock(), true));
    assert!(tracing.is_read(Severity::Trace) && quiet.is_read(Severity::Normal));
    quiet.record(&object(), Event::trace("GitOperationSucceeded", "no changes"));
    quiet.flush().await;
    assert_eq!(fake.table(), Vec::<String>::new());
    *lock(&fake.failing) = true;
    tracing.record(&object(), Event::normal("Lost", "lost"));
    tracing.flush().await;
    *lock(&fake.failing) = false;
    tracing.record(&object(), Event::trace("GitOperationSucceeded", "no changes"));
    tracing.flush().await;
    assert_eq!(fake.table(), ["Normal GitOperationSucceeded no changes x1"]);
}

#[tokio::test]
async fn routine_is_read_at_the_level_at_which_it_is_logged() {
    let fake = Arc::new(FakeApi::default());
    let quiet = fake.recorder(clock(), false);
    for (level, is_read) in [(LevelFilter::INFO, false), (LevelFilter::DEBUG, true)] {
        let subscriber = tracing_subscriber::registry().with(level);
        let found = with_default(subscriber, || quiet.is_read(Severity::Trace));
        assert_eq!(found, is_read, "{level}");
    }
}

fn named(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns"}})).unwrap()
}

#[tokio::test]
async fn a_hanging_api_blocks_nothing() {
    let hung = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Full<bytes::Bytes>>, BoxError>>()
    });
    let reporter = Reporter {
        component: "c".into(),
        instance: "i".into(),
        trace: false,
    };
    let recorder = Recorder::start(Client::new(hung, "default"), reporter, clock());
    // More than the capacity of the queues: recording must not block.
    for n in 0..4 * WRITERS * QUEUE {
        recorder.record(&named(&n.to_string()), Event::normal("A", "a"));
    }
    assert!(recorder.writers.iter().all(|writer| writer.capacity() == 0));
}

/// The API hangs for the events of one object: those of most other objects are written, and its own time out.
#[tokio::test]
async fn a_hanging_event_delays_only_the_objects_of_its_writer() {
    let fake = Arc::new(FakeApi::default());
    *lock(&fake.hung) = Some("hung".to_owned());
    let recorder = fake.recorder(clock(), false);
    recorder.record(&named("hung"), Event::normal("A", "a"));
    for n in 0..100 {
        recorder.record(&named(&n.to_string()), Event::normal("A", "a"));
    }
    let most = async {
        while lock(&fake.events).len() < 60 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(HANG_LIMIT / 2, most)
        .await
        .expect("written beside the one that hangs");
    recorder.flush().await;
    assert_eq!(fake.table().len(), 100);
}

#[tokio::test]
async fn a_permanently_failing_object_has_few_events() {
    let fake = Arc::new(FakeApi::default());
    let recorder = fake.recorder(clock(), false);
    for n in 0..500 {
        recorder.record(
            &object(),
            Event::warning("GitOperationFailed", format!("try {n}")),
        );
    }
    recorder.record(&named("other"), Event::warning("GitOperationFailed", "once"));
    recorder.flush().await;
    let table = fake.table();
    assert_eq!(table.len(), 11, "{table:#?}");
    assert!(
        table.contains(&"Warning GitOperationFailed (combined from similar events): try 24 x16".to_owned()),
        "{table:#?}"
    );
    assert!(table.contains(&"Warning GitOperationFailed once x1".to_owned()));
}

#[tokio::test]
async fn a_cluster_only_event_is_written_as_normal() {
    let fake = Arc::new(FakeApi::default());
    let recorder = fake.recorder(clock(), false);
    recorder.record(
        &object(),
        Event::cluster_only("GarbageCollectionSucceeded", "gone"),
    );
    recorder.flush().await;
    assert_eq!(fake.table(), ["Normal GarbageCollectionSucceeded gone x1"]);
}

#[test]
fn messages_are_truncated_on_a_character_boundary() {
    let cut = bounded(&"ä".repeat(600), MAX_MESSAGE);
    assert!(cut.len() <= MAX_MESSAGE && cut.ends_with("ä..."));
    assert_eq!(bounded("short", MAX_MESSAGE), "short");
}
