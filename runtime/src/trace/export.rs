//! The queue of spans, and the task that exports them.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_sdk::trace::SpanData;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::collector::{Collector, Endpoint, TraceError};
use super::span::Span;
use crate::metrics::Metrics;

/// Spans that wait; more are dropped.
const QUEUE: usize = 4096;
/// Maximum number of spans in one request.
const BATCH: usize = 512;
/// How long a batch waits for more spans.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// Minimum time between two log lines about failures.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Counts spans by what became of them.
#[derive(Clone, Debug, Default)]
struct SpanCounts(Family<ResultLabel, Counter>);

impl SpanCounts {
    const EXPORTED: &'static str = "exported";
    const FAILED: &'static str = "failed";
    const DROPPED: &'static str = "dropped";

    /// Registers the counter with all its series, so that the first increase is visible.
    fn register(metrics: &Metrics) -> Self {
        let counts = Self::default();
        // The encoder appends `_total` to counters.
        let help = "Spans of traces by result: exported, failed (the collector did not accept them), dropped (the queue was full)";
        metrics.register("sluice_trace_spans", help, counts.0.clone());
        for result in [Self::EXPORTED, Self::FAILED, Self::DROPPED] {
            counts.add(result, 0);
        }
        counts
    }

    fn add(&self, result: &'static str, spans: usize) {
        self.0
            .get_or_create(&ResultLabel { result })
            .inc_by(u64::try_from(spans).unwrap_or(u64::MAX));
    }
}

#[derive(Debug)]
enum Command {
    Export(Box<SpanData>),
    Flush(oneshot::Sender<()>),
}

#[derive(Debug)]
struct Queue {
    sender: mpsc::Sender<Command>,
    counts: SpanCounts,
}

/// Queues spans for the collector; cheap to clone. The default exports nothing.
#[derive(Clone, Debug, Default)]
pub struct Tracer(Option<Arc<Queue>>);

impl Tracer {
    /// Starts the export to the value of `--otlp-endpoint` under the name of the program; exports nothing if it is empty.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn start(url: &str, component: &'static str, metrics: &Metrics) -> Result<Self, TraceError> {
        let Some(endpoint) = Endpoint::parse(url)? else {
            return Ok(Self::default());
        };
        let collector = Collector::new(endpoint, component)?;
        let (sender, commands) = mpsc::channel(QUEUE);
        let counts = SpanCounts::register(metrics);
        let task = Task {
            collector,
            counts: counts.clone(),
            logged_at: None,
        };
        tokio::spawn(task.run(commands));
        Ok(Self(Some(Arc::new(Queue { sender, counts }))))
    }

    /// Returns whether spans are exported.
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    /// Queues the spans, which are created only if they are exported. Never waits: a full queue drops all of them.
    pub fn record(&self, spans: impl FnOnce() -> Vec<Span>) {
        let Some(queue) = &self.0 else { return };
        let spans = spans();
        let Ok(permits) = queue.sender.try_reserve_many(spans.len()) else {
            queue.counts.add(SpanCounts::DROPPED, spans.len());
            return;
        };
        for (permit, span) in permits.zip(spans) {
            permit.send(Command::Export(Box::new(span.into_data())));
        }
    }

    /// Exports the queued spans within the time limit.
    pub async fn close(&self, limit: Duration) {
        let Some(queue) = &self.0 else { return };
        let flush = async {
            let (done, is_done) = oneshot::channel();
            if queue.sender.send(Command::Flush(done)).await.is_ok() {
                // An error means that the task ended.
                drop(is_done.await);
            }
        };
        if tokio::time::timeout(limit, flush).await.is_err() {
            tracing::warn!("the last spans could not be exported");
        }
    }
}

/// Spans that are exported together.
#[derive(Default)]
struct Batch {
    spans: Vec<SpanData>,
    flush: Option<oneshot::Sender<()>>,
}

impl Batch {
    /// Waits for a first command, then collects spans until the batch is full, late or flushed; `None` at the end.
    async fn collect(commands: &mut mpsc::Receiver<Command>) -> Option<Self> {
        let mut batch = Self::default();
        batch.add(commands.recv().await?);
        let late = Instant::now() + BATCH_DELAY;
        while batch.flush.is_none() && batch.spans.len() < BATCH {
            match tokio::time::timeout_at(late, commands.recv()).await {
                Ok(Some(command)) => batch.add(command),
                Ok(None) | Err(_) => break,
            }
        }
        Some(batch)
    }

    fn add(&mut self, command: Command) {
        match command {
            Command::Export(span) => self.spans.push(*span),
            Command::Flush(done) => self.flush = Some(done),
        }
    }
}

struct Task {
    collector: Collector,
    counts: SpanCounts,
    /// When a failure was logged last.
    logged_at: Option<Instant>,
}

impl Task {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        while let Some(batch) = Batch::collect(&mut commands).await {
            if !batch.spans.is_empty() {
                self.export(batch.spans).await;
            }
            if let Some(done) = batch.flush {
                let _ = done.send(()); // an error means that the flush has timed out
            }
        }
    }

    async fn export(&mut self, spans: Vec<SpanData>) {
        let count = spans.len();
        let Err(error) = self.collector.export(spans).await else {
            self.counts.add(SpanCounts::EXPORTED, count);
            return;
        };
        self.counts.add(SpanCounts::FAILED, count);
        if self.logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            self.logged_at = Some(Instant::now());
            let host = self.collector.host();
            tracing::warn!(host, error, spans = count, "cannot export traces");
        }
    }
}
