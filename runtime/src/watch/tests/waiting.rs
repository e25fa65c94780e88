//! Queued objects that wait in their tasks.

use kube::runtime::controller::Action;
use tokio::task::JoinHandle;
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;
use crate::telemetry::JsonLines;

/// The lines of a log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Queues an object once.
struct QueueingReconciler {
    /// The generations that it reconciled.
    seen: Arc<Mutex<Vec<Option<i64>>>>,
    /// The objects that it was told to drop.
    gone: Arc<Mutex<Vec<ObjectKey>>>,
    turn: Arc<Notify>,
    /// Whether the object waits in place.
    waits: bool,
}

impl Reconciler<ConfigMap> for QueueingReconciler {
    type Error = Lost;

    fn deleted(&self, key: &ObjectKey) {
        lock(&self.gone).push(key.clone());
    }

    async fn wait_in_place(&self, _key: &ObjectKey, at_most: Duration) -> bool {
        assert_eq!(at_most, LONG);
        if self.waits {
            self.turn.notified().await;
        }
        self.waits
    }

    async fn reconcile(&self, object: Arc<ConfigMap>) -> Result<Requeue, Lost> {
        let mut seen = lock(&self.seen);
        seen.push(object.metadata.generation);
        Ok(if seen.len() == 1 {
            Requeue::Queued(LONG)
        } else {
            Requeue::OnChange
        })
    }
}

/// A reconciliation of an object that is queued.
struct QueuedReconciliation {
    writer: Writer<WatchedObject<ConfigMap>>,
    seen: Arc<Mutex<Vec<Option<i64>>>>,
    gone: Arc<Mutex<Vec<ObjectKey>>>,
    turn: Arc<Notify>,
    metrics: Metrics,
    stop: Token,
    task: JoinHandle<Action>,
}

impl QueuedReconciliation {
    /// Starts it and runs it up to its wait.
    async fn start(waits: bool) -> Self {
        Self::start_with(waits, None).await
    }

    /// Starts it, with a version in the cache that it does not have yet.
    async fn start_with(waits: bool, later: Option<WatchedObject<ConfigMap>>) -> Self {
        let api = Arc::new(FakeApi::default());
        let settings = settings(&api);
        let (reader, mut writer) = reflector::store();
        let first = version(1);
        let shown = later.unwrap_or_else(|| first.clone());
        writer.apply_watcher_event(&watcher::Event::Apply(shown));
        let reconciler = QueueingReconciler {
            seen: Arc::default(),
            gone: Arc::default(),
            turn: Arc::default(),
            waits,
        };
        let (seen, gone) = (Arc::clone(&reconciler.seen), Arc::clone(&reconciler.gone));
        let (turn, metrics, stop) = (
            Arc::clone(&reconciler.turn),
            settings.metrics.clone(),
            Token::new(),
        );
        let objects = ObjectCache::new(reader);
        let shared = Arc::new(Reconciliations::new(reconciler, settings, objects, stop.clone()));
        let task = tokio::spawn(async move {
            let Ok(action) = Reconciliations::reconcile(Arc::new(first), shared).await;
            action
        });
        while lock(&seen).is_empty() {
            tokio::task::yield_now().await;
        }
        Self {
            writer,
            seen,
            gone,
            turn,
            metrics,
            stop,
            task,
        }
    }

    fn has_series(&self, line: &str) -> bool {
        self.metrics.text().contains(line)
    }

    /// Returns whether the object counts as waiting and none as running.
    fn counts_as_waiting(&self) -> bool {
        self.has_series("workqueue_depth{name=\"configmap\",controller=\"configmap\"} 1\n")
            && self.has_series("controller_runtime_active_workers{controller=\"configmap\"} 0\n")
            && self.has_series("workqueue_longest_running_processor_seconds{name=\"configmap\",controller=\"configmap\"} 0.0\n")
    }

    /// Waits for the end; returns the reconciled generations and what follows.
    async fn end(self) -> (Vec<Option<i64>>, Action) {
        let action = tokio::time::timeout(LONG, self.task).await.unwrap().unwrap();
        (lock(&self.seen).clone(), action)
    }
}

fn version(generation: i64) -> WatchedObject<ConfigMap> {
    let object = json!({"metadata": {"name": "a", "namespace": "ns", "generation": generation}});
    WatchedObject(Ok(Arc::new(serde_json::from_value(object).unwrap())))
}

#[tokio::test]
async fn a_queued_object_goes_on_in_its_task_as_the_cache_shows_it() {
    let mut queued = QueuedReconciliation::start(true).await;
    assert!(queued.counts_as_waiting(), "{}", queued.metrics.text());
    queued
        .writer
        .apply_watcher_event(&watcher::Event::Apply(version(2)));
    queued.turn.notify_one();
    let metrics = queued.metrics.clone();
    assert_eq!(
        queued.end().await,
        (vec![Some(1), Some(2)], Action::await_change())
    );
    let text = metrics.text();
    for line in [
        "controller_runtime_reconcile_total{controller=\"configmap\",result=\"success\"} 1\n",
        "workqueue_adds_total{name=\"configmap\",controller=\"configmap\"} 1\n",
        "workqueue_depth{name=\"configmap\",controller=\"configmap\"} 0\n",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}

#[tokio::test]
async fn a_queued_object_that_does_not_wait_in_place_is_left_to_the_watch() {
    let queued = QueuedReconciliation::start(false).await;
    assert!(queued.counts_as_waiting());
    assert_eq!(queued.end().await, (vec![Some(1)], Action::requeue(LONG)));
}

#[tokio::test]
async fn a_queued_object_with_a_later_version_in_the_cache_is_left_to_its_trigger() {
    let queued = QueuedReconciliation::start_with(true, Some(version(2))).await;
    assert_eq!(queued.end().await, (vec![Some(1)], Action::requeue(LONG)));
}

#[tokio::test]
async fn log_lines_after_a_wait_have_the_generation_that_is_reconciled() {
    let lines = Lines::default();
    let out = lines.clone();
    let layer = JsonLines::new(Arc::new(SystemClock), move || out.clone());
    let _logging = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    let mut queued = QueuedReconciliation::start(true).await;
    queued
        .writer
        .apply_watcher_event(&watcher::Event::Apply(version(2)));
    queued.turn.notify_one();
    assert_eq!(queued.end().await.0, [Some(1), Some(2)]);
    let text = String::from_utf8(lock(&lines.0).clone()).unwrap();
    let end = text.lines().find(|line| line.contains("reconciliation ended"));
    assert!(
        end.is_some_and(|line| line.contains("\"generation\":2,")),
        "{text}"
    );
}

#[tokio::test]
async fn a_stop_ends_the_wait_of_a_queued_object() {
    let queued = QueuedReconciliation::start(true).await;
    queued.stop.cancel();
    queued.turn.notify_one();
    assert_eq!(queued.end().await, (vec![Some(1)], Action::requeue(LONG)));
}

#[tokio::test]
async fn an_object_that_was_deleted_during_its_wait_gives_its_turn_back() {
    let mut queued = QueuedReconciliation::start(true).await;
    queued
        .writer
        .apply_watcher_event(&watcher::Event::Delete(version(1)));
    queued.turn.notify_one();
    let gone = Arc::clone(&queued.gone);
    assert_eq!(queued.end().await, (vec![Some(1)], Action::await_change()));
    assert_eq!(*lock(&gone), [key("a")]);
}
