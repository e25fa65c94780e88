//! Reconciles `GitRepository` objects: the dependencies of a reconciliation ([`Context`]), its entry point
//! ([`GitRepositories`]), and the phases, whose order `reconciliation` defines.

mod content;
mod dependents;
mod durations;
mod entries;
mod error;
mod events;
mod include;
mod lookups;
mod network;
mod observe;
mod pack;
mod reconciliation;
mod resolve;
mod secrets;
mod slots;
mod submodules;
mod throttle;
mod tracker;
mod verify;
mod warnings;

use std::sync::Arc;
use std::time::Duration;

pub use dependents::watch;
pub use durations::DurationBounds;
pub use error::ReconcileError;
pub use include::{CopyError, IncludeError, Repositories};
use kube::{Api, Client};
pub use network::{Network, Origin};
pub use pack::PackError;
use reconciliation::{QueueWait, Reconciliation};
pub use resolve::{Parts, ResolveError, Source};
pub use secrets::Secrets;
use slots::{Acquisition, SlotRequest};
pub use slots::{SlotLimits, Slots};
use sluice_api::source::GitRepository;
use sluice_runtime::blocking::Pool;
use sluice_runtime::clock::Clock;
use sluice_runtime::event::Recorder;
use sluice_runtime::schedule::{ObjectKey, Schedule};
use sluice_runtime::shutdown::Token;
use sluice_runtime::status::WriteError;
use sluice_runtime::trace::Tracer;
use sluice_runtime::watch::{Reconciler, Requeue};
pub use submodules::SubmoduleError;
use tokio::time::Instant;
pub use tracker::ObjectTracker;
pub use verify::VerifyError;

use crate::archive::{Algorithm, Capacity};
use crate::git::{Limits, Transport};
use crate::identity::Tokens;
use crate::storage::{Retention, Storage};

/// Annotation in which `kubectl apply` keeps the object that it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The dependencies of a reconciliation; everything with a side effect goes through them.
pub struct Context {
    /// Client for the Kubernetes API.
    pub client: Client,
    /// The Secrets that objects name.
    pub secrets: Secrets,
    /// Source of the current time.
    pub clock: Arc<dyn Clock>,
    /// Access to Git remotes.
    pub origin: Arc<dyn Origin>,
    /// Cached objects of this controller, for includes.
    pub repositories: Arc<dyn Repositories>,
    /// Delay before a retry when an include is not available.
    pub dependency_wait: Duration,
    /// How long a reconciliation runs before it writes its progress.
    pub progress_delay: Duration,
    /// Artifact storage.
    pub storage: Arc<dyn Storage>,
    /// Recorder for Kubernetes events.
    pub recorder: Recorder,
    /// Jitter of intervals.
    pub schedule: Schedule,
    /// Connection settings and pools for remotes.
    pub transport: Transport,
    /// Tokens from identity providers.
    pub tokens: Arc<Tokens>,
    /// Size limits of repositories.
    pub limits: Limits,
    /// Bounds of the durations in specs.
    pub durations: DurationBounds,
    /// Retention of superseded artifacts.
    pub retention: Retention,
    /// Digest algorithm of new artifacts.
    pub algorithm: Algorithm,
    /// Threads for blocking reads of storage and mirrors.
    pub blocking_pool: Pool,
    /// Threads for packing artifacts, which is bound by CPU and disk.
    pub packing: Pool,
    /// Threads and memory for building archives.
    pub capacity: Capacity,
    /// Concurrency slots for hosts and for packing.
    pub slots: Slots,
    /// State of each object between reconciliations.
    pub tracker: ObjectTracker,
    /// Exports traces.
    pub tracer: Tracer,
    /// Shutdown token of the process.
    pub stop: Token,
}

/// An error that prevents a reconciliation from writing its result to the object.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnreportedError {
    /// The object cannot be read.
    #[error("cannot read the object")]
    Read(#[source] Box<kube::Error>),
    /// The status or finalizer cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Reconciler for objects of kind `GitRepository`.
#[derive(Clone)]
pub(crate) struct GitRepositories(Arc<Context>);

impl GitRepositories {
    /// Creates a reconciler with the given context.
    #[must_use]
    pub(crate) const fn new(context: Arc<Context>) -> Self {
        Self(context)
    }
}

impl Reconciler<GitRepository> for GitRepositories {
    type Error = UnreportedError;

    const LIMITS_CONCURRENCY: bool = true;

    fn enqueued(&self, key: &ObjectKey) {
        self.0.tracker.record_trigger(key, Instant::now());
        self.0.slots.end_wait(key);
    }

    fn deleted(&self, key: &ObjectKey) {
        self.0.slots.forget(key);
        self.0.tracker.forget(key);
    }

    /// The history of an object is often larger than the rest of it.
    fn trim(object: &mut GitRepository) {
        object.metadata.managed_fields = None;
        if let Some(annotations) = &mut object.metadata.annotations {
            annotations.remove(LAST_APPLIED);
            if annotations.is_empty() {
                // An empty map still takes the memory of eleven annotations.
                object.metadata.annotations = None;
            }
        }
    }

    fn wait_in_place(&self, key: &ObjectKey, at_most: Duration) -> impl Future<Output = bool> + Send {
        self.0.slots.wait_in_place(key, at_most)
    }

    async fn reconcile(&self, cached: Arc<GitRepository>) -> Result<Requeue, UnreportedError> {
        let context = &*self.0;
        let key = ObjectKey::of(&*cached);
        // Created where it is used: an object that only queues needs none.
        let api = || Api::<GitRepository>::namespaced(context.client.clone(), &key.namespace);
        let mut object = cached;
        let slot = loop {
            // Acquire a slot before sending any request, so that a queued object costs no API call.
            let request = SlotRequest::of(&object);
            let slot = match context.slots.acquire(&key, &request) {
                Acquisition::Slot(slot) => slot,
                Acquisition::Queued { since, is_reported } => {
                    let wait = QueueWait { since, is_reported };
                    return match wait.until_report(context) {
                        Some(left) => Ok(Requeue::Queued(left)),
                        None => Box::pin(wait.report(context, api(), &object, &request)).await,
                    };
                }
            };
            // The cache may lag behind our own last write. A decision on stale data could undo that write.
            if context.tracker.is_current(&key, &object) {
                break slot;
            }
            let read = Box::pin(api().get_opt(&key.name)).await;
            let read = read.map_err(|error| UnreportedError::Read(Box::new(error)))?;
            let Some(read) = read else {
                return Ok(Requeue::OnChange);
            };
            context.tracker.record_read(&key, &read);
            object = Arc::new(read);
            if SlotRequest::of(&object).lane == request.lane {
                break slot;
            }
        };
        let triggered_at = context.tracker.last_trigger(&key);
        // Rare and large futures are boxed where they are needed: an object that only queues needs none of them.
        let reconciliation = Reconciliation::new(context, api(), object, key.namespace.clone());
        let result = Box::pin(reconciliation.with_slot(slot, triggered_at).run()).await;
        if matches!(result, Ok(Requeue::After(_) | Requeue::OnChange)) {
            context.tracker.clear_trigger(&key, triggered_at);
        }
        result
    }
}

#[cfg(test)]
mod tests;
