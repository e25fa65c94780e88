//! Metrics with the names that existing dashboards of Flux and controller-runtime use.

mod duration;
mod pages;
mod parts;
mod process;
mod queue;
mod requests;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duration::DurationHistogram;
use pages::Pages;
use parts::Parts;
use process::Process;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use queue::Queues;
pub use queue::{Queue, QueueKey};
use requests::Requests;
pub use requests::{CountRequests, CountedService};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::schedule::ObjectKey;
use crate::serve::serve;
use crate::shutdown::Token;
use crate::sync::lock;

/// Bounds of `controller_runtime_reconcile_time_seconds`, as in controller-runtime.
const TIME_BOUNDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

/// Results whose series exist from the start, so that the first increase is visible.
const RESULTS: [&str; 4] = ["error", "requeue", "requeue_after", "success"];

/// The result of a reconciliation, as controller-runtime names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReconcileResult {
    /// Succeeded; next on a change.
    Success,
    /// Failed; next after the back-off.
    Error,
    /// Succeeded or waiting; next at a time.
    RequeueAfter,
}

impl ReconcileResult {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::RequeueAfter => "requeue_after",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabel {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLabels {
    event_type: &'static str,
    name: String,
    namespace: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabels {
    kind: String,
    name: String,
    namespace: String,
}

/// Called with kind and key of each deleted object.
type ForgetCallback = Box<dyn Fn(&str, &ObjectKey) + Send + Sync>;

/// Owners of other series with labels of objects.
#[derive(Default)]
struct ForgetCallbacks(Mutex<Vec<ForgetCallback>>);

impl fmt::Debug for ForgetCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ForgetCallbacks")
    }
}

/// The metrics of a program; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    forget_callbacks: Arc<ForgetCallbacks>,
    duration: Family<ObjectLabels, DurationHistogram>,
    total: Family<ResultLabels, Counter>,
    errors: Family<ControllerLabel, Counter>,
    panics: Family<ControllerLabel, Counter>,
    undecodable: Family<ControllerLabel, Gauge>,
    time: Family<ControllerLabel, Histogram, fn() -> Histogram>,
    active: Family<ControllerLabel, Gauge>,
    workers: Family<ControllerLabel, Gauge>,
    queues: Queues,
    requests: Requests,
    process: Process,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Creates and registers all metric families.
    #[must_use]
    pub fn new() -> Self {
        let metrics = Self {
            registry: Arc::default(),
            forget_callbacks: Arc::default(),
            duration: Family::default(),
            total: Family::default(),
            errors: Family::default(),
            panics: Family::default(),
            undecodable: Family::default(),
            time: Family::new_with_constructor(|| Histogram::new(TIME_BOUNDS)),
            active: Family::default(),
            workers: Family::default(),
            queues: Queues::new(),
            requests: Requests::default(),
            process: Process::default(),
        };
        metrics.register_reconciliations();
        metrics.queues.register(&metrics);
        metrics.requests.register(&metrics);
        metrics.process.register(&metrics);
        // The cache of Helm indexes does not exist yet, so this family has no series.
        metrics.register(
            "gotk_cache_events",
            "Hits and misses of the cache of Helm indexes",
            Family::<CacheLabels, Counter>::default(),
        );
        metrics
    }

    fn register_reconciliations(&self) {
        let metrics = self;
        metrics.register(
            "gotk_reconcile_duration_seconds",
            "Duration of a reconciliation of an object",
            metrics.duration.clone(),
        );
        // The encoder appends `_total` to counters.
        metrics.register(
            "controller_runtime_reconcile",
            "Reconciliations by result",
            metrics.total.clone(),
        );
        metrics.register(
            "controller_runtime_reconcile_errors",
            "Failed reconciliations",
            metrics.errors.clone(),
        );
        metrics.register(
            "controller_runtime_reconcile_panics",
            "Reconciliations that panicked",
            metrics.panics.clone(),
        );
        metrics.register(
            "controller_runtime_reconcile_time_seconds",
            "Duration of reconciliations",
            metrics.time.clone(),
        );
        metrics.register(
            "controller_runtime_active_workers",
            "Running reconciliations",
            metrics.active.clone(),
        );
        let workers = metrics.workers.clone();
        metrics.register(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of concurrent reconciliations",
            workers,
        );
        metrics.register(
            "sluice_undecodable_objects",
            "Objects that cannot be decoded and are skipped",
            metrics.undecodable.clone(),
        );
    }

    /// Registers another metric.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        lock(&self.registry).register(name, help, metric);
    }

    /// Registers metrics whose values are computed for each request of the page.
    pub fn register_collector(&self, collector: impl Collector) {
        lock(&self.registry).register_collector(Box::new(collector));
    }

    /// Sets the maximum number of concurrent reconciliations, and creates the series of the controller.
    pub(crate) fn set_workers(&self, controller: &'static str, workers: u16) {
        let label = ControllerLabel { controller };
        self.workers.get_or_create(&label).set(i64::from(workers));
        self.active.get_or_create(&label).set(0);
        self.undecodable.get_or_create(&label).set(0);
        drop(self.time.get_or_create(&label));
        for counter in [&self.errors, &self.panics] {
            drop(counter.get_or_create(&label));
        }
        for result in RESULTS {
            drop(self.total.get_or_create(&ResultLabels { controller, result }));
        }
    }

    /// Returns the queue metrics of a controller.
    #[must_use]
    pub fn queue(&self, controller: &'static str) -> Queue {
        self.queues.queue(controller)
    }

    /// Returns a layer that counts the requests to the API at this host.
    #[must_use]
    pub(crate) fn requests_to(&self, host: &str) -> CountRequests {
        self.requests.to(host)
    }

    /// Records the start of a reconciliation, which counts as running until the guard is dropped.
    #[must_use]
    pub fn begin(&self, controller: &'static str) -> ActiveGuard {
        let gauge = self.active.get_or_create_owned(&ControllerLabel { controller });
        gauge.inc();
        ActiveGuard(gauge)
    }

    /// Records the end of a reconciliation.
    pub fn end(
        &self,
        controller: &'static str,
        kind: &str,
        key: &ObjectKey,
        result: ReconcileResult,
        took: Duration,
    ) {
        let label = ControllerLabel { controller };
        self.total
            .get_or_create(&ResultLabels {
                controller,
                result: result.as_str(),
            })
            .inc();
        self.time.get_or_create(&label).observe(took.as_secs_f64());
        self.duration
            .get_or_create(&object_labels(kind, key))
            .observe(took.as_secs_f64());
        if result == ReconcileResult::Error {
            self.errors.get_or_create(&label).inc();
        }
    }

    /// Records a panic.
    pub fn panicked(&self, controller: &'static str) {
        self.panics.get_or_create(&ControllerLabel { controller }).inc();
    }

    /// Sets the number of objects that do not decode.
    pub(crate) fn set_undecodable(&self, controller: &'static str, count: usize) {
        self.undecodable
            .get_or_create(&ControllerLabel { controller })
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Registers a callback for each deleted object, for other metrics with labels of objects.
    pub fn on_forget(&self, forget: impl Fn(&str, &ObjectKey) + Send + Sync + 'static) {
        lock(&self.forget_callbacks.0).push(Box::new(forget));
    }

    /// Removes the series of a deleted object.
    pub fn forget(&self, kind: &str, key: &ObjectKey) {
        for forget in &*lock(&self.forget_callbacks.0) {
            forget(kind, key);
        }
        self.duration.remove(&object_labels(kind, key));
    }

    /// Returns all metrics in the `OpenMetrics` text format.
    #[must_use]
    pub fn text(&self) -> String {
        self.text_at(Instant::now())
    }

    fn text_at(&self, now: Instant) -> String {
        self.parts_at(now).concat()
    }

    /// Returns the text in parts.
    fn parts_at(&self, now: Instant) -> Vec<String> {
        self.queues.refresh(now);
        self.process.refresh();
        let mut parts = Parts::new();
        // Writing to a string does not fail; a metric that cannot be encoded truncates the page.
        if let Err(error) = encode(&mut parts, &lock(&self.registry)) {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot encode metrics");
        }
        parts.into_vec()
    }
}

fn object_labels(kind: &str, key: &ObjectKey) -> ObjectLabels {
    ObjectLabels {
        kind: kind.to_owned(),
        name: key.name.clone(),
        namespace: key.namespace.clone(),
    }
}

/// A running reconciliation.
#[derive(Debug)]
pub struct ActiveGuard(Gauge);

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Serves `/metrics` until `stop`.
pub async fn run(listener: TcpListener, metrics: Metrics, stop: Token) {
    let pages = Arc::new(Pages::new(metrics, stop.clone()));
    let page = move |path: &str| Arc::clone(&pages).page(path.to_owned());
    serve(listener, page, stop).await;
}

#[cfg(test)]
mod tests;
