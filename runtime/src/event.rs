//! Events of `core/v1`: recorded without waiting, bounded per object, aggregated, written by a few tasks of their own; and
//! posted to a receiver such as Flux's notification-controller, where there is one, by another.
//!
//! kube's recorder writes `events.k8s.io`, which the roles of existing installations do not allow, has no annotations
//! and repeats the first message of a reason. Needs `create` and `patch` on core `events` only.

mod body;
mod correlator;
mod post;
mod writer;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource};
use tokio::sync::{mpsc, oneshot};

use crate::clock::{Clock, lock};
use correlator::{Correlator, Form};

pub use post::{Attempts, BadReceiver, Poster, PosterError, Receiver};

/// Longest message that the API accepts.
pub const MAX_MESSAGE: usize = 1024;

/// Events waiting for one writer, and to be posted; more are dropped, which the log says.
const QUEUE: usize = 1000;

/// Events written at once. Those of one object have one writer, so that they stay in order; a call that hangs holds up
/// the objects of its writer only.
const WRITERS: usize = 8;

/// How long the write of one event may take. An API that is slower than this loses events.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Something worth knowing happened.
    Normal,
    /// The same, for readers of the cluster's events only: written as `Normal`, never posted (Flux's trace events about
    /// a change).
    Unposted,
    /// Something went wrong.
    Warning,
    /// Routine: logged, and written (as `Normal`) only if the recorder traces.
    Trace,
}

/// One event about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// How much it matters.
    pub severity: Severity,
    /// Why it was emitted: one `CamelCase` word.
    pub reason: String,
    /// What happened, for people; cut to [`MAX_MESSAGE`].
    pub message: String,
    /// Annotations of the Event object, e.g. the revision.
    pub annotations: BTreeMap<String, String>,
}

impl Event {
    /// A `Normal` event.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Normal, reason, message)
    }

    /// A `Normal` event that is not posted.
    pub fn unposted(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Unposted, reason, message)
    }

    /// A `Warning` event.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, reason, message)
    }

    /// A routine event.
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

    /// With one more annotation.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }
}

/// Who records.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// The controller, e.g. `source-controller`.
    pub component: String,
    /// Which instance of it, e.g. the pod's name.
    pub instance: String,
    /// Whether [`Severity::Trace`] is written too (`--trace-events`).
    pub trace: bool,
}

/// Takes events; cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    writers: Arc<[mpsc::Sender<Order>]>,
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

/// What a writing task gets.
#[derive(Debug)]
enum Order {
    Write(Box<(ObjectReference, Event, Form)>),
    Flush(oneshot::Sender<()>),
}

impl Recorder {
    /// Starts the writing tasks. They end when the last clone of the recorder is gone and their queues are empty.
    #[must_use]
    pub fn start(client: Client, reporter: Reporter, clock: Arc<dyn Clock>) -> Self {
        Self::start_within(client, reporter, clock, WRITE_LIMIT)
    }

    fn start_within(client: Client, reporter: Reporter, clock: Arc<dyn Clock>, limit: Duration) -> Self {
        let trace = reporter.trace;
        let each = std::iter::repeat_n((client, reporter, Arc::clone(&clock)), WRITERS);
        let writers = each.map(|(client, reporter, clock)| {
            let (queue, orders) = mpsc::channel(QUEUE);
            tokio::spawn(writer::Writer::new(client, reporter, clock, limit).run(orders));
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

    /// Posts as well what it records from now on.
    #[must_use]
    pub fn posting(self, poster: Option<Poster>) -> Self {
        Self { poster, ..self }
    }

    /// Records an event about an object. Never waits and never fails: a full queue drops the event and says so in
    /// the log. Of an object that has many events in a short time only some are written; all are posted.
    pub fn record<K: Resource<DynamicType = ()>>(&self, object: &K, event: Event) {
        self.record_reference(reference(object), event);
    }

    /// As [`Recorder::record`], for an object that is known by its reference.
    pub fn record_reference(&self, object: ObjectReference, event: Event) {
        let (namespace, name) = (object.namespace.as_deref(), object.name.as_deref());
        if event.severity == Severity::Trace && !self.trace {
            tracing::debug!(namespace, name, reason = event.reason, "{}", event.message);
            return;
        }
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
        if let Err(error) = writer.try_send(Order::Write(Box::new((object, event, form)))) {
            tracing::warn!(error = &error as &dyn std::error::Error, "unable to record event");
        }
    }

    /// The writer of an object's events. Objects of one name have the same, since the names of their events must differ.
    fn writer(&self, object: &ObjectReference) -> &mpsc::Sender<Order> {
        let mut hasher = DefaultHasher::new();
        (&object.namespace, &object.name).hash(&mut hasher);
        let count = self.writers.len() as u64;
        &self.writers[usize::try_from(hasher.finish() % count).unwrap_or_default()]
    }

    /// Waits until what was recorded before has been written and posted, or given up.
    pub async fn flush(&self) {
        let posted = async {
            if let Some(poster) = &self.poster {
                poster.flush().await;
            }
        };
        tokio::join!(self.written(), posted);
    }

    /// As [`Recorder::flush`], for the end of a program: what is not out by then is lost.
    pub async fn close(&self, limit: Duration) {
        if tokio::time::timeout(limit, self.flush()).await.is_err() {
            tracing::warn!("the last events could not be delivered");
        }
    }

    async fn written(&self) {
        let flushes = self.writers.iter().map(|writer| async {
            let (done, is_done) = oneshot::channel();
            if writer.send(Order::Flush(done)).await.is_ok() {
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

/// The last place at or before `most` where a text can be cut.
fn boundary(text: &str, most: usize) -> usize {
    (0..=most.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
