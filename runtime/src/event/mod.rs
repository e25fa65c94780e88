//! Events of `core/v1`: recorded without waiting, limited per object, aggregated, and written by a few tasks. Another task
//! posts them to a receiver such as Flux's notification-controller.
//!
//! kube's recorder is not used: it writes `events.k8s.io`, which the roles of existing installations do not allow, supports
//! no annotations, and repeats the first message of a reason. This one needs `create` and `patch` on core `events`.

mod body;
mod correlator;
mod post;
mod writer;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use correlator::{Aggregation, Correlator};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource};
pub use post::{InvalidReceiver, Poster, PosterError, Receiver, RetryLimits};
use tokio::sync::{mpsc, oneshot};

use crate::clock::Clock;
use crate::sync::lock;

/// Maximum length of a message in the API.
pub const MAX_MESSAGE: usize = 1024;

/// Capacity of the queues of each writer and of the poster; further events are dropped and logged.
const QUEUE: usize = 1000;

/// Number of writers. Each object has one writer, so that its events stay in order; a hanging call delays only the objects
/// of its writer.
const WRITERS: usize = 8;

/// Timeout for writing one event. Events are lost if the API is slower.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Information.
    Normal,
    /// Information for readers of the cluster's events only: written as `Normal`, never posted (Flux's trace events about a
    /// change).
    ClusterOnly,
    /// A failure.
    Warning,
    /// Routine: logged; written as `Normal` only with `--trace-events`.
    Trace,
}

/// One event about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its severity.
    pub severity: Severity,
    /// Its reason in `CamelCase`.
    pub reason: String,
    /// Its message; truncated to [`MAX_MESSAGE`].
    pub message: String,
    /// Annotations of the Event object, e.g. the revision.
    pub annotations: BTreeMap<String, String>,
}

impl Event {
    /// Creates a `Normal` event.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Normal, reason, message)
    }

    /// Creates a `Normal` event that is not posted.
    pub fn cluster_only(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::ClusterOnly, reason, message)
    }

    /// Creates a `Warning` event.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, reason, message)
    }

    /// Creates a routine event.
    pub fn trace(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Trace, reason, message)
    }

    fn new(severity: Severity, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity,
            reason: reason.into(),
            message: message.into(),
            annotations: BTreeMap::new(),
        }
    }

    /// Adds an annotation.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }
}

/// The reporting controller.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// The controller, e.g. `source-controller`.
    pub component: String,
    /// The instance, e.g. the pod's name.
    pub instance: String,
    /// Whether [`Severity::Trace`] is written (`--trace-events`).
    pub trace: bool,
}

/// Records events; cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    writers: Arc<[mpsc::Sender<Command>]>,
    correlator: Arc<Mutex<Correlator>>,
    clock: Arc<dyn Clock>,
    trace: bool,
    poster: Option<Poster>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

/// A command for a writing task.
#[derive(Debug)]
enum Command {
    Write(Box<(ObjectReference, Event, Aggregation)>),
    Flush(oneshot::Sender<()>),
}

impl Recorder {
    /// Starts the writing tasks, which end when all clones of the recorder are dropped and their queues are empty.
    #[must_use]
    pub fn start(client: Client, reporter: Reporter, clock: Arc<dyn Clock>) -> Self {
        Self::start_within(client, reporter, clock, WRITE_LIMIT)
    }

    fn start_within(client: Client, reporter: Reporter, clock: Arc<dyn Clock>, limit: Duration) -> Self {
        let trace = reporter.trace;
        let each = std::iter::repeat_n((client, reporter, Arc::clone(&clock)), WRITERS);
        let writers = each.map(|(client, reporter, clock)| {
            let (queue, commands) = mpsc::channel(QUEUE);
            tokio::spawn(writer::Writer::new(client, reporter, clock, limit).run(commands));
            queue
        });
        Self {
            writers: writers.collect(),
            correlator: Arc::default(),
            clock,
            trace,
            poster: None,
        }
    }

    /// Posts future events as well.
    #[must_use]
    pub(crate) fn with_poster(self, poster: Option<Poster>) -> Self {
        Self { poster, ..self }
    }

    /// Returns whether events of this severity are written, posted or logged. Others need not be built.
    #[must_use]
    pub fn is_read(&self, severity: Severity) -> bool {
        severity != Severity::Trace || self.trace || tracing::enabled!(tracing::Level::DEBUG)
    }

    /// Records an event about an object. Never waits and never fails: a full queue drops the event with a log line. The
    /// correlator limits the events that are written per object; all are posted.
    pub fn record<K: Resource<DynamicType = ()>>(&self, object: &K, event: Event) {
        if event.severity == Severity::Trace && !self.trace {
            let meta = object.meta();
            let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
            tracing::debug!(namespace, name, reason = event.reason, "{}", event.message);
            return;
        }
        self.record_reference(reference(object), event);
    }

    /// Records an event about a referenced object, see [`Recorder::record`].
    pub(crate) fn record_reference(&self, object: ObjectReference, event: Event) {
        let (namespace, name) = (object.namespace.as_deref(), object.name.as_deref());
        if let Some(poster) = &self.poster {
            poster.post(&object, &event);
        }
        let Some(form) = lock(&self.correlator).admit(&object, &event, self.clock.now()) else {
            tracing::debug!(
                namespace,
                name,
                reason = event.reason,
                "too many events of the object: {}",
                event.message
            );
            return;
        };
        let writer = self.writer(&object);
        if let Err(error) = writer.try_send(Command::Write(Box::new((object, event, form)))) {
            tracing::warn!(error = &error as &dyn std::error::Error, "unable to record event");
        }
    }

    /// Returns the writer of an object. Objects with equal names share a writer, because it makes the event names unique.
    fn writer(&self, object: &ObjectReference) -> &mpsc::Sender<Command> {
        let mut hasher = DefaultHasher::new();
        (&object.namespace, &object.name).hash(&mut hasher);
        let count = self.writers.len() as u64;
        &self.writers[usize::try_from(hasher.finish() % count).unwrap_or_default()]
    }

    /// Waits until all recorded events are written and posted, or dropped.
    pub async fn flush(&self) {
        let posted = async {
            if let Some(poster) = &self.poster {
                poster.flush().await;
            }
        };
        tokio::join!(self.written(), posted);
    }

    /// Flushes at the end of a program, with a timeout after which the remaining events are lost.
    pub async fn close(&self, limit: Duration) {
        if tokio::time::timeout(limit, self.flush()).await.is_err() {
            tracing::warn!("the last events could not be delivered");
        }
    }

    async fn written(&self) {
        let flushes = self.writers.iter().map(|writer| async {
            let (done, is_done) = oneshot::channel();
            if writer.send(Command::Flush(done)).await.is_ok() {
                // An error says that the task is gone: nothing is left to wait for.
                drop(is_done.await);
            }
        });
        futures::future::join_all(flushes).await;
    }
}

/// The reference to an object that its events carry. Its `apiVersion` is filled in even if the object came from a
/// list, whose items have none: receivers derive the API group from it.
pub fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    let meta = object.meta();
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

/// Cuts a text to `most` bytes at a character, ending in `...` if anything was cut.
#[must_use]
pub fn bounded(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    format!("{}...", &text[..boundary(text, most.saturating_sub(3))])
}

/// Returns the last character boundary at or before `most`.
fn boundary(text: &str, most: usize) -> usize {
    (0..=most.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
