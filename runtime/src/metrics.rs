//! The metrics that existing dashboards read, under the names that they read.

mod process;
mod queue;
mod requests;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::clock::lock;
use crate::schedule::ObjectKey;
use crate::serve::{Page, serve};
use crate::shutdown::Token;

pub use queue::Queue;
pub use requests::{CountRequests, Counted};

use process::Process;
use queue::Queues;
use requests::Requests;

/// Bounds of `gotk_reconcile_duration_seconds`: ten exponential steps from 10 ms to 30 min, rounded as Flux shows them.
const DURATION_BOUNDS: [f64; 10] = [
    0.01,
    0.038_364,
    0.147_176,
    0.564_622,
    2.166_091,
    8.309_901,
    31.879_757,
    122.302_172,
    469.194_959,
    1800.0,
];

/// Bounds of `controller_runtime_reconcile_time_seconds`, controller-runtime's.
const TIME_BOUNDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

/// Results of passes that have a series from the start, so that an increase from nothing is seen.
const RESULTS: [&str; 4] = ["error", "requeue", "requeue_after", "success"];

/// What a pass came to, as controller-runtime names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PassResult {
    /// Done; nothing until a change.
    Success,
    /// Failed; back-off.
    Error,
    /// Done or waiting; again at a time.
    RequeueAfter,
}

impl PassResult {
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

/// Told of the kind and key of each object that is gone.
type Forgetting = Box<dyn Fn(&str, &ObjectKey) + Send + Sync>;

/// Who else has series of single objects.
#[derive(Default)]
struct Forgetful(Mutex<Vec<Forgetting>>);

impl fmt::Debug for Forgetful {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Forgetful")
    }
}

/// The metrics of a program; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    forgetful: Arc<Forgetful>,
    duration: Family<ObjectLabels, Histogram, fn() -> Histogram>,
    total: Family<ResultLabels, Counter>,
    errors: Family<ControllerLabel, Counter>,
    panics: Family<ControllerLabel, Counter>,
    undecodable: Family<ControllerLabel, Counter>,
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
    /// All families, registered and empty.
    #[must_use]
    pub fn new() -> Self {
        let metrics = Self {
            registry: Arc::default(),
            forgetful: Arc::default(),
            duration: Family::new_with_constructor(|| Histogram::new(DURATION_BOUNDS)),
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
        metrics.register_passes();
        metrics.queues.register(&metrics);
        metrics.requests.register(&metrics);
        metrics.process.register(&metrics);
        // Helm indexes: a kind that is not there yet, so that this one has no series.
        metrics.register(
            "gotk_cache_events",
            "Hits and misses of the cache of Helm indexes",
            Family::<CacheLabels, Counter>::default(),
        );
        metrics
    }

    fn register_passes(&self) {
        let metrics = self;
        metrics.register(
            "gotk_reconcile_duration_seconds",
            "Duration of a pass over an object",
            metrics.duration.clone(),
        );
        // Counters get their `_total` when they are printed.
        metrics.register(
            "controller_runtime_reconcile",
            "Passes by result",
            metrics.total.clone(),
        );
        metrics.register(
            "controller_runtime_reconcile_errors",
            "Passes that failed",
            metrics.errors.clone(),
        );
        metrics.register(
            "controller_runtime_reconcile_panics",
            "Passes that panicked",
            metrics.panics.clone(),
        );
        metrics.register(
            "controller_runtime_reconcile_time_seconds",
            "Duration of passes",
            metrics.time.clone(),
        );
        metrics.register(
            "controller_runtime_active_workers",
            "Passes running now",
            metrics.active.clone(),
        );
        let workers = metrics.workers.clone();
        metrics.register(
            "controller_runtime_max_concurrent_reconciles",
            "Passes that may run at once",
            workers,
        );
        metrics.register(
            "sluice_undecodable_objects",
            "Objects seen that do not decode",
            metrics.undecodable.clone(),
        );
    }

    /// Adds a metric of the program's own.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        lock(&self.registry).register(name, help, metric);
    }

    /// Says how many passes may run at once. The series of the controller are there from now on.
    pub fn set_workers(&self, controller: &'static str, workers: u16) {
        let label = ControllerLabel { controller };
        self.workers.get_or_create(&label).set(i64::from(workers));
        self.active.get_or_create(&label).set(0);
        drop(self.time.get_or_create(&label));
        for counter in [&self.errors, &self.panics] {
            drop(counter.get_or_create(&label));
        }
        for result in RESULTS {
            drop(self.total.get_or_create(&ResultLabels { controller, result }));
        }
    }

    /// The queue of a controller.
    #[must_use]
    pub fn queue(&self, controller: &'static str) -> Queue {
        self.queues.queue(controller)
    }

    /// A layer that counts the requests to the API at this host.
    #[must_use]
    pub fn requests_to(&self, host: &str) -> CountRequests {
        self.requests.to(host)
    }

    /// A pass has begun; it counts as running until the guard goes.
    #[must_use]
    pub fn begin(&self, controller: &'static str) -> Running {
        let gauge = self.active.get_or_create_owned(&ControllerLabel { controller });
        gauge.inc();
        Running(gauge)
    }

    /// A pass has ended.
    pub fn end(
        &self,
        controller: &'static str,
        kind: &str,
        key: &ObjectKey,
        result: PassResult,
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
        if result == PassResult::Error {
            self.errors.get_or_create(&label).inc();
        }
    }

    /// A pass panicked.
    pub fn panicked(&self, controller: &'static str) {
        self.panics.get_or_create(&ControllerLabel { controller }).inc();
    }

    /// An object did not decode.
    pub fn undecodable(&self, controller: &'static str) {
        self.undecodable
            .get_or_create(&ControllerLabel { controller })
            .inc();
    }

    /// Has `forget` called for each object that is gone, for metrics of the program's own that name objects.
    pub fn on_forget(&self, forget: impl Fn(&str, &ObjectKey) + Send + Sync + 'static) {
        lock(&self.forgetful.0).push(Box::new(forget));
    }

    /// Drops the series of an object that is gone.
    pub fn forget(&self, kind: &str, key: &ObjectKey) {
        for forget in &*lock(&self.forgetful.0) {
            forget(kind, key);
        }
        self.duration.remove(&object_labels(kind, key));
    }

    /// All metrics in the text form of `OpenMetrics`.
    #[must_use]
    pub fn text(&self) -> String {
        self.text_at(Instant::now())
    }

    fn text_at(&self, now: Instant) -> String {
        self.queues.refresh(now);
        self.process.refresh();
        let mut text = String::new();
        // Writing to a string does not fail; a metric that does not encode leaves the page short.
        if let Err(error) = encode(&mut text, &lock(&self.registry)) {
            tracing::warn!(error = &error as &dyn std::error::Error, "metrics do not encode");
        }
        text
    }
}

fn object_labels(kind: &str, key: &ObjectKey) -> ObjectLabels {
    ObjectLabels {
        kind: kind.to_owned(),
        name: key.name.clone(),
        namespace: key.namespace.clone(),
    }
}

/// A pass that is running.
#[derive(Debug)]
pub struct Running(Gauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// What asks for Go's profiles is told where to look instead.
const NO_PROFILES: &str =
    "no Go program: there are no pprof profiles; use perf or /proc/<pid> of the process\n";

/// Serves `/metrics` until `stop`.
pub async fn run(listener: TcpListener, metrics: Metrics, stop: Token) {
    serve(listener, move |path| page(&metrics, path), stop).await;
}

fn page(metrics: &Metrics, path: &str) -> Option<Page> {
    match path {
        "/metrics" => Some(Page {
            status: StatusCode::OK,
            content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8",
            body: metrics.text(),
        }),
        _ if path.starts_with("/debug/pprof") => Some(Page::text(StatusCode::NOT_FOUND, NO_PROFILES)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
