//! Tests of controllers with a fake API that lists, watches and records events.

use std::sync::Mutex;

use futures::channel::mpsc;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use sluice_api::annotation::REQUESTED_AT;
use tokio::sync::Notify;

use self::fake_api::FakeApi;
use super::*;
use crate::clock::SystemClock;
use crate::event::Reporter;
use crate::random::Generator;
use crate::sync::lock;

mod delays;
mod dependents;
mod fake_api;
mod tasks;
mod trimmed;
mod waiting;

const LONG: Duration = Duration::from_secs(30);

/// Records reconciled objects; `data.do` of the object controls its behaviour.
#[derive(Clone)]
struct RecordingReconciler {
    api: Arc<FakeApi>,
    passes: Arc<Mutex<Vec<String>>>,
    calls: Arc<Mutex<Vec<ObjectKey>>>,
    gone: Arc<Mutex<Vec<ObjectKey>>>,
    held: Arc<Notify>,
}

#[derive(Debug, thiserror::Error)]
#[error("could not report")]
struct Lost;

impl Reconciler<ConfigMap> for RecordingReconciler {
    type Error = Lost;

    fn enqueued(&self, key: &ObjectKey) {
        lock(&self.calls).push(key.clone());
    }

    fn deleted(&self, key: &ObjectKey) {
        lock(&self.gone).push(key.clone());
        self.api.changed.notify_waiters();
    }

    fn trim(object: &mut ConfigMap) {
        object.metadata.managed_fields = None;
    }

    async fn reconcile(&self, object: Arc<ConfigMap>) -> Result<Requeue, Lost> {
        let name = object.metadata.name.clone().unwrap_or_default();
        let order = object
            .data
            .as_ref()
            .and_then(|data| data.get("do"))
            .map_or("", String::as_str);
        lock(&self.passes).push(name.clone());
        self.api.changed.notify_waiters();
        match order {
            "panic" => panic!("no {name}"),
            "fail" => Err(Lost),
            "queue" => Ok(Requeue::Queued(LONG)),
            "hold" => {
                self.held.notified().await;
                lock(&self.passes).push(format!("{name} done"));
                Ok(Requeue::OnChange)
            }
            _ => Ok(Requeue::OnChange),
        }
    }
}

struct RunningWatch {
    api: Arc<FakeApi>,
    probe: RecordingReconciler,
    metrics: Metrics,
    backoff: Arc<Backoff>,
    objects: ObjectCache<ConfigMap>,
    ask: mpsc::UnboundedSender<ObjectKey>,
    stop: Token,
    task: tokio::task::JoinHandle<()>,
}

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        namespace: "ns".into(),
        name: name.into(),
    }
}

fn settings(api: &Arc<FakeApi>) -> Settings {
    let reporter = Reporter {
        component: "c".into(),
        instance: "i".into(),
        trace: false,
    };
    Settings {
        controller: "configmap",
        scope: Scope::default(),
        concurrent: 2,
        backoff: Arc::new(Backoff::new(Duration::from_millis(1), Duration::from_millis(4))),
        metrics: Metrics::new(),
        recorder: Recorder::start(api.client(), reporter, Arc::new(SystemClock)),
        random: Arc::new(Generator::seeded(1)),
    }
}

impl RunningWatch {
    fn start(api: &Arc<FakeApi>) -> Self {
        Self::start_with(api, |watch| watch)
    }

    fn start_with(api: &Arc<FakeApi>, more: impl FnOnce(Watch<ConfigMap>) -> Watch<ConfigMap>) -> Self {
        let settings = settings(api);
        let (metrics, backoff) = (settings.metrics.clone(), Arc::clone(&settings.backoff));
        let probe = RecordingReconciler {
            api: Arc::clone(api),
            passes: Arc::default(),
            calls: Arc::default(),
            gone: Arc::default(),
            held: Arc::default(),
        };
        let (ask, asked) = mpsc::unbounded();
        let watch = more(Watch::new(api.client(), settings).trigger(asked));
        let (objects, stop) = (watch.objects(), Token::new());
        let task = tokio::spawn(watch.run(probe.clone(), stop.clone()));
        Self {
            api: Arc::clone(api),
            probe,
            metrics,
            backoff,
            objects,
            ask,
            stop,
            task,
        }
    }

    fn count(&self, name: &str) -> usize {
        lock(&self.probe.passes)
            .iter()
            .filter(|seen| *seen == name)
            .count()
    }

    fn has_series(&self, line: &str) -> bool {
        self.metrics.text().contains(line)
    }

    async fn until_seen(&self, name: &str, times: usize) {
        self.api.until(|_| self.count(name) >= times).await;
    }

    async fn end(self) -> Vec<String> {
        self.stop.cancel();
        tokio::time::timeout(LONG, self.task).await.unwrap().unwrap();
        lock(&self.probe.passes).clone()
    }
}

#[tokio::test]
async fn an_undecodable_object_is_reported_and_others_continue() {
    let api = Arc::new(FakeApi::default());
    api.put("bad", &json!({"data": "no map"}));
    api.put("good", &json!({}));
    let run = RunningWatch::start(&api);
    run.until_seen("good", 1).await;
    api.until(|api| !lock(&api.events).is_empty()).await;
    let event = lock(&api.events)[0].clone();
    assert_eq!(
        (&event["reason"], &event["type"]),
        (&json!("InvalidObject"), &json!("Warning"))
    );
    assert_eq!(
        (&event["involvedObject"]["name"], &event["involvedObject"]["kind"]),
        (&json!("bad"), &json!("ConfigMap"))
    );
    assert!(run.has_series("sluice_undecodable_objects{controller=\"configmap\"} 1\n"));
    assert_eq!(run.objects.get(&key("bad")), None);
    assert_eq!(run.objects.keys(|_| true), [key("good")]);
    api.put("bad", &json!({"metadata": {"generation": 2}}));
    run.until_seen("bad", 1).await;
    assert!(run.has_series("sluice_undecodable_objects{controller=\"configmap\"} 0\n"));
    assert_eq!(run.end().await, ["good", "bad"]);
}

#[tokio::test]
async fn an_object_that_no_longer_decodes_keeps_no_series_and_counts_until_it_is_deleted() {
    let api = Arc::new(FakeApi::default());
    api.put("a", &json!({}));
    let run = RunningWatch::start(&api);
    run.until_seen("a", 1).await;
    let duration =
        "gotk_reconcile_duration_seconds_count{kind=\"ConfigMap\",name=\"a\",namespace=\"ns\"} 1\n";
    tokio::time::timeout(LONG, async {
        while !run.has_series(duration) {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    api.until(|api| !lock(&api.watchers).is_empty()).await;
    api.put("a", &json!({"metadata": {"generation": 2}, "data": "no map"}));
    let gone = |times: usize| lock(&run.probe.gone).len() >= times;
    api.until(|_| gone(1)).await;
    assert!(run.has_series("sluice_undecodable_objects{controller=\"configmap\"} 1\n"));
    assert!(!run.has_series(duration));
    api.delete_unseen("a");
    api.until(|_| gone(2)).await;
    assert!(run.has_series("sluice_undecodable_objects{controller=\"configmap\"} 0\n"));
    run.end().await;
}

#[tokio::test]
async fn panics_and_errors_affect_one_object_and_are_retried_with_back_off() {
    let api = Arc::new(FakeApi::default());
    api.put("panics", &json!({"data": {"do": "panic"}}));
    api.put("fails", &json!({"data": {"do": "fail"}}));
    api.put("good", &json!({}));
    let run = RunningWatch::start(&api);
    run.until_seen("panics", 3).await;
    run.until_seen("fails", 3).await;
    assert_eq!(run.count("good"), 1);
    assert!(run.backoff.failures(&key("fails")) >= 2);
    let text = run.metrics.text();
    assert!(
        text.contains("controller_runtime_reconcile_panics_total{controller=\"configmap\"}"),
        "{text}"
    );
    api.put("panics", &json!({"metadata": {"generation": 2}}));
    api.put("fails", &json!({"metadata": {"generation": 2}}));
    let healed = || ["panics", "fails"].map(|name| run.backoff.failures(&key(name))) == [0, 0];
    tokio::time::timeout(LONG, async {
        while !healed() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    run.end().await;
}

#[tokio::test]
async fn a_queued_object_is_reconciled_when_it_is_resumed() {
    let api = Arc::new(FakeApi::default());
    api.put("waits", &json!({"data": {"do": "queue"}}));
    let (grant, granted) = mpsc::unbounded();
    let run = RunningWatch::start_with(&api, |watch| watch.resume(granted));
    run.backoff.fail(&key("waits"));
    run.until_seen("waits", 1).await;
    grant.unbounded_send(key("waits")).unwrap();
    run.until_seen("waits", 2).await;
    assert_eq!(
        *lock(&run.probe.calls),
        [key("waits")],
        "a resumed object is not enqueued"
    );
    assert_eq!(run.backoff.failures(&key("waits")), 1, "it was no success");
    let text = run.metrics.text();
    assert!(
        !text.contains(
            "controller_runtime_reconcile_total{controller=\"configmap\",result=\"requeue_after\"} 1"
        ),
        "{text}"
    );
    // The reconciler can drop its data about the object.
    api.put("waits", &json!({"data": "no map", "metadata": {"generation": 2}}));
    api.until(|_| *lock(&run.probe.gone) == [key("waits")]).await;
    run.end().await;
}

#[tokio::test]
async fn an_object_that_is_deleted_while_the_watch_is_interrupted_is_forgotten() {
    let api = Arc::new(FakeApi::default());
    api.put("stays", &json!({}));
    api.put("goes", &json!({}));
    let run = RunningWatch::start(&api);
    run.until_seen("stays", 1).await;
    run.until_seen("goes", 1).await;
    api.until(|api| !lock(&api.watchers).is_empty()).await;
    api.delete_unseen("goes");
    api.until(|_| *lock(&run.probe.gone) == [key("goes")]).await;
    assert_eq!(run.objects.keys(|_| true), [key("stays")]);
    run.end().await;
}

#[tokio::test]
async fn own_writes_trigger_nothing_and_requests_do() {
    let api = Arc::new(FakeApi::default());
    api.put("a", &json!({}));
    api.put("b", &json!({}));
    let run = RunningWatch::start(&api);
    run.until_seen("b", 1).await;
    run.until_seen("a", 1).await;
    api.until(|api| !lock(&api.watchers).is_empty()).await;
    api.put(
        "a",
        &json!({"metadata": {"resourceVersion": "3", "labels": {"written": "status"}}}),
    );
    // The watch is ordered: the request for b comes after the change of a.
    api.put("b", &json!({"metadata": {"annotations": {REQUESTED_AT: "now"}}}));
    run.until_seen("b", 2).await;
    assert_eq!(run.count("a"), 1);
    run.ask.unbounded_send(key("a")).unwrap();
    run.until_seen("a", 2).await;
    run.ask.unbounded_send(key("unknown")).unwrap();
    run.ask.unbounded_send(key("b")).unwrap();
    run.until_seen("b", 3).await;
    run.end().await;
}

#[tokio::test]
async fn a_stop_waits_for_running_reconciliations() {
    let api = Arc::new(FakeApi::default());
    api.put("slow", &json!({"data": {"do": "hold"}}));
    let run = RunningWatch::start(&api);
    run.until_seen("slow", 1).await;
    let held = Arc::clone(&run.probe.held);
    run.stop.cancel();
    tokio::task::yield_now().await;
    assert!(!run.task.is_finished());
    held.notify_one();
    assert_eq!(run.end().await, ["slow", "slow done"]);
}

#[tokio::test]
async fn a_stop_before_the_first_list_ends_the_watch() {
    let api = Arc::new(FakeApi::default());
    api.put("a", &json!({}));
    let run = RunningWatch::start_with(&api, |watch| watch.begin_after(std::future::pending()));
    tokio::task::yield_now().await;
    assert_eq!(run.end().await, Vec::<String>::new());
}

#[tokio::test]
async fn changes_of_a_secondary_kind_trigger_affected_objects() {
    let api = Arc::new(FakeApi::default());
    api.put("source", &json!({"data": {"for": "stack"}}));
    api.put("bad", &json!({"data": 1}));
    let related = SecondaryWatch::<ConfigMap>::new(api.client(), Scope::default());
    let objects = related.objects();
    let affected = |object: Arc<ConfigMap>| {
        object
            .data
            .clone()
            .unwrap_or_default()
            .into_values()
            .map(|name| key(&name))
            .collect::<Vec<_>>()
    };
    let mut keys = related.keys(affected).boxed();
    assert_eq!(
        tokio::time::timeout(LONG, keys.next()).await.unwrap(),
        Some(key("stack"))
    );
    let reading = tokio::spawn(async move { keys.next().await });
    tokio::time::timeout(LONG, objects.ready()).await.unwrap();
    assert_eq!(objects.keys(|_| true), [key("source")]);
    api.until(|api| !lock(&api.watchers).is_empty()).await;
    api.put("source", &json!({"data": {"for": "other"}}));
    assert_eq!(
        tokio::time::timeout(LONG, reading).await.unwrap().unwrap(),
        Some(key("other"))
    );
}
