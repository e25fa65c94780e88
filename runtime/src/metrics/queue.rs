//! Workqueue metrics of a controller: waiting and running objects, and their durations.
//!
//! The queue itself is kube's scheduler. The metrics follow it from outside: an object is enqueued, its reconciliation
//! starts, and ends with the time of the next one.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

use super::Metrics;
use crate::schedule::ObjectKey;
use crate::sync::lock;

/// Bounds of the durations: 10 ns to 1000 s in powers of ten.
const BOUNDS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    name: &'static str,
    controller: &'static str,
}

type Histograms = Family<Labels, Histogram, fn() -> Histogram>;
type Seconds = Family<Labels, Gauge<f64, AtomicU64>>;

/// The families of all queues.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    depth: Family<Labels, Gauge>,
    adds: Family<Labels, Counter>,
    retries: Family<Labels, Counter>,
    waited: Histograms,
    worked: Histograms,
    unfinished: Seconds,
    longest: Seconds,
    all: Arc<Mutex<Vec<Queue>>>,
}

impl Queues {
    pub(super) fn new() -> Self {
        Self {
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            waited: Family::new_with_constructor(|| Histogram::new(BOUNDS)),
            worked: Family::new_with_constructor(|| Histogram::new(BOUNDS)),
            unfinished: Family::default(),
            longest: Family::default(),
            all: Arc::default(),
        }
    }

    pub(super) fn register(&self, metrics: &Metrics) {
        let of = |name: &str| format!("workqueue_{name}");
        metrics.register(
            &of("depth"),
            "Objects waiting for a reconciliation",
            self.depth.clone(),
        );
        metrics.register(&of("adds"), "Reconciliations requested", self.adds.clone());
        metrics.register(
            &of("retries"),
            "Reconciliations requested after a failure",
            self.retries.clone(),
        );
        metrics.register(
            &of("queue_duration_seconds"),
            "How long objects wait for a reconciliation",
            self.waited.clone(),
        );
        metrics.register(
            &of("work_duration_seconds"),
            "Duration of reconciliations",
            self.worked.clone(),
        );
        metrics.register(
            &of("unfinished_work_seconds"),
            "Total time of the running reconciliations",
            self.unfinished.clone(),
        );
        metrics.register(
            &of("longest_running_processor_seconds"),
            "Time of the longest running reconciliation",
            self.longest.clone(),
        );
    }

    /// Creates the queue metrics of a controller with all their series.
    pub(super) fn queue(&self, controller: &'static str) -> Queue {
        let labels = Labels {
            name: controller,
            controller,
        };
        let queue = Queue {
            labels: labels.clone(),
            hasher: RandomState::new(),
            state: Arc::default(),
            adds: self.adds.get_or_create_owned(&labels),
            retries: self.retries.get_or_create_owned(&labels),
            waited: self.waited.get_or_create_owned(&labels),
            worked: self.worked.get_or_create_owned(&labels),
        };
        lock(&self.all).push(queue.clone());
        queue
    }

    /// Updates the gauges that are computed on demand.
    pub(super) fn refresh(&self, now: Instant) {
        for queue in lock(&self.all).iter() {
            let state = lock(&queue.state);
            let depth = state.waiting.values().filter(|wait| wait.since <= now).count();
            let running = state
                .running
                .values()
                .map(|begun| now.saturating_duration_since(*begun));
            let (sum, longest) = running.fold((Duration::ZERO, Duration::ZERO), |(sum, longest), took| {
                (sum + took, longest.max(took))
            });
            self.depth
                .get_or_create(&queue.labels)
                .set(i64::try_from(depth).unwrap_or(i64::MAX));
            self.unfinished
                .get_or_create(&queue.labels)
                .set(sum.as_secs_f64());
            self.longest
                .get_or_create(&queue.labels)
                .set(longest.as_secs_f64());
        }
    }
}

/// When an object started to wait; in the future if it is scheduled for later.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Instant,
    is_counted: bool,
}

/// The objects of a queue, by the hashes of their keys: the metrics show none of them, and the texts take more memory than all else.
#[derive(Debug, Default)]
struct State {
    waiting: HashMap<u64, Wait>,
    running: HashMap<u64, Instant>,
}

/// An object in a queue whose reconciliation began: the hash of its key.
#[derive(Clone, Copy, Debug)]
pub struct QueueKey(u64);

/// The queue metrics of one controller; cheap to clone.
#[derive(Clone, Debug)]
pub struct Queue {
    labels: Labels,
    hasher: RandomState,
    state: Arc<Mutex<State>>,
    adds: Counter,
    retries: Counter,
    waited: Histogram,
    worked: Histogram,
}

impl Queue {
    /// Records that the object was enqueued now.
    pub fn enqueue(&self, key: &ObjectKey, now: Instant) {
        let key = self.hasher.hash_one(key);
        let mut state = lock(&self.state);
        if state.waiting.get(&key).is_some_and(|wait| wait.since <= now) {
            return;
        }
        let wait = Wait {
            since: now,
            is_counted: true,
        };
        state.waiting.insert(key, wait);
        self.adds.inc();
    }

    /// Records the start of its reconciliation.
    #[must_use]
    pub fn begin(&self, key: &ObjectKey, now: Instant) -> QueueKey {
        let key = QueueKey(self.hasher.hash_one(key));
        self.resume(key, now);
        key
    }

    /// Records the start of its reconciliation after it kept waiting ([`Self::requeue`]).
    pub fn resume(&self, key: QueueKey, now: Instant) {
        let mut state = lock(&self.state);
        let wait = state.waiting.remove(&key.0);
        if !wait.is_some_and(|wait| wait.is_counted) {
            self.adds.inc();
        }
        let waited = wait.map_or(Duration::ZERO, |wait| now.saturating_duration_since(wait.since));
        self.waited.observe(waited.as_secs_f64());
        state.running.insert(key.0, now);
    }

    /// Records that it keeps waiting.
    pub fn requeue(&self, key: QueueKey, now: Instant) {
        let mut state = lock(&self.state);
        state.running.remove(&key.0);
        let wait = Wait {
            since: now,
            is_counted: true,
        };
        state.waiting.insert(key.0, wait);
    }

    /// Records the end of its reconciliation, and the time until the next one.
    pub fn end(&self, key: QueueKey, now: Instant, again: Option<Duration>, failed: bool) {
        let mut state = lock(&self.state);
        if let Some(begun) = state.running.remove(&key.0) {
            self.worked
                .observe(now.saturating_duration_since(begun).as_secs_f64());
        }
        if failed {
            self.retries.inc();
        }
        if let Some(since) = again.and_then(|after| now.checked_add(after)) {
            let wait = Wait {
                since,
                is_counted: false,
            };
            // Enqueued in the meantime: the earlier time counts.
            state.waiting.entry(key.0).or_insert(wait);
        }
    }

    /// Drops a deleted object.
    pub fn forget(&self, key: &ObjectKey) {
        lock(&self.state).waiting.remove(&self.hasher.hash_one(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey {
            namespace: "ns".into(),
            name: name.into(),
        }
    }

    fn shown(metrics: &Metrics, now: Instant, name: &str) -> String {
        metrics.queues.refresh(now);
        let start = format!("workqueue_{name}{{name=\"gitrepository\",controller=\"gitrepository\"}} ");
        let text = metrics.text_at(now);
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{start} is missing in\n{text}"))
            .to_owned()
    }

    #[test]
    fn an_empty_queue_shows_all_its_series() {
        let metrics = Metrics::new();
        let _queue = metrics.queue("gitrepository");
        let now = Instant::now();
        for name in [
            "depth",
            "adds_total",
            "retries_total",
            "queue_duration_seconds_count",
            "work_duration_seconds_count",
            "unfinished_work_seconds",
            "longest_running_processor_seconds",
        ] {
            assert!(matches!(&*shown(&metrics, now, name), "0" | "0.0"), "{name}");
        }
    }

    #[test]
    fn no_names_of_objects_are_kept() {
        let queue = Metrics::new().queue("gitrepository");
        queue.enqueue(&key("the-object"), Instant::now());
        let _running = queue.begin(&key("the-object"), Instant::now());
        queue.enqueue(&key("the-object"), Instant::now());
        let kept = format!("{queue:?}");
        assert!(!kept.contains("the-object"), "{kept}");
    }

    #[test]
    fn waiting_and_running_objects_are_counted_and_timed() {
        let metrics = Metrics::new();
        let queue = metrics.queue("gitrepository");
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        queue.enqueue(&key("a"), at(0));
        queue.enqueue(&key("a"), at(1));
        queue.enqueue(&key("b"), at(1));
        assert_eq!(shown(&metrics, at(1), "depth"), "2");
        assert_eq!(shown(&metrics, at(1), "adds_total"), "2");
        let a = queue.begin(&key("a"), at(3));
        let b = queue.begin(&key("b"), at(4));
        assert_eq!(shown(&metrics, at(4), "depth"), "0");
        assert_eq!(shown(&metrics, at(4), "queue_duration_seconds_sum"), "6.0");
        assert_eq!(shown(&metrics, at(6), "unfinished_work_seconds"), "5.0");
        assert_eq!(shown(&metrics, at(6), "longest_running_processor_seconds"), "3.0");
        queue.end(a, at(7), Some(Duration::from_secs(10)), true);
        queue.end(b, at(7), None, false);
        assert_eq!(shown(&metrics, at(7), "work_duration_seconds_sum"), "7.0");
        assert_eq!(shown(&metrics, at(7), "retries_total"), "1");
        // A repetition waits from its time on, and is counted when it comes.
        assert_eq!(shown(&metrics, at(16), "depth"), "0");
        assert_eq!(shown(&metrics, at(17), "depth"), "1");
        let a = queue.begin(&key("a"), at(18));
        assert_eq!(shown(&metrics, at(18), "adds_total"), "3");
        assert_eq!(shown(&metrics, at(18), "queue_duration_seconds_sum"), "7.0");
        queue.end(a, at(18), Some(Duration::from_secs(10)), false);
        queue.forget(&key("a"));
        assert_eq!(shown(&metrics, at(40), "depth"), "0");
    }

    #[test]
    fn an_object_that_keeps_waiting_is_added_once_and_runs_no_longer() {
        let metrics = Metrics::new();
        let queue = metrics.queue("gitrepository");
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let a = queue.begin(&key("a"), at(0));
        queue.requeue(a, at(1));
        assert_eq!(shown(&metrics, at(4), "depth"), "1");
        assert_eq!(shown(&metrics, at(4), "unfinished_work_seconds"), "0.0");
        queue.resume(a, at(4));
        assert_eq!(shown(&metrics, at(4), "depth"), "0");
        assert_eq!(shown(&metrics, at(4), "adds_total"), "1");
        assert_eq!(shown(&metrics, at(4), "queue_duration_seconds_sum"), "3.0");
        assert_eq!(shown(&metrics, at(6), "unfinished_work_seconds"), "2.0");
    }
}
