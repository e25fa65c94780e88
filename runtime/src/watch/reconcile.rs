//! One reconciliation: isolated, measured, and followed by the schedule of the next one.

use std::any::Any;
use std::collections::HashSet;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::controller::{self, Action};
use kube::runtime::watcher;
use tokio::time::Instant;
use tracing::Instrument as _;
use uuid::Uuid;

use super::object::WatchedObject;
use super::{Kind, ObjectCache, Reconciler, Requeue, Settings};
use crate::event::{Event, reference};
use crate::metrics::{Queue, QueueKey, ReconcileResult};
use crate::random::uuid;
use crate::schedule::{ObjectKey, align};
use crate::shutdown::Token;
use crate::sync::lock;

/// State shared by all reconciliations of a controller.
pub(super) struct Reconciliations<K: Kind, R> {
    reconciler: R,
    settings: Settings,
    objects: ObjectCache<K>,
    queue: Queue,
    /// The objects that do not decode.
    undecodable: Mutex<HashSet<ObjectKey>>,
    /// When it was created.
    began: Instant,
    /// Ends the waits of queued objects.
    stop: Token,
}

impl<K: Kind, R: Reconciler<K>> Reconciliations<K, R> {
    pub(super) fn new(reconciler: R, settings: Settings, objects: ObjectCache<K>, stop: Token) -> Self {
        Self {
            queue: settings.metrics.queue(settings.controller),
            reconciler,
            settings,
            objects,
            undecodable: Mutex::default(),
            began: Instant::now(),
            stop,
        }
    }

    /// Enqueues an object after a change or a trigger.
    pub(super) fn enqueue(&self, key: &ObjectKey) {
        self.queue.enqueue(key, Instant::now());
        self.reconciler.enqueued(key);
    }

    pub(super) const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Reconciles an object of the cache. Never fails: errors are counted, logged and scheduled with back-off.
    pub(super) async fn reconcile(
        object: Arc<WatchedObject<K>>,
        shared: Arc<Self>,
    ) -> Result<Action, Infallible> {
        let key = ObjectKey::of(&*object);
        let begun = shared.queue.begin(&key, Instant::now());
        let object = match &object.0 {
            Ok(object) => {
                shared.set_decodable(&key);
                Arc::clone(object)
            }
            Err(invalid) => {
                shared.set_undecodable(&key, &object, invalid);
                shared.reconciler.deleted(&key);
                shared.queue.end(begun, Instant::now(), None, false);
                if !shared.objects.contains(&key) {
                    shared.forget(&key);
                }
                return Ok(Action::await_change());
            }
        };
        let span = tracing::info_span!(
            "reconcile",
            controller = shared.settings.controller,
            controllerGroup = &*K::group(&()),
            controllerKind = &*K::kind(&()),
            namespace = key.namespace,
            name = key.name,
            reconcileID = &*uuid(&*shared.settings.random)
                .hyphenated()
                .encode_lower(&mut Uuid::encode_buffer()),
            generation = object.meta().generation,
        );
        Ok(shared.measure(key, begun, object).instrument(span).await)
    }

    /// Reconciles the object, again after each wait in place. Only the reconciler's own time counts as work.
    async fn measure(&self, key: ObjectKey, begun: QueueKey, mut object: Arc<K>) -> Action {
        loop {
            let (next, started) = self.attempt(Arc::clone(&object)).await;
            let (result, after) = match next {
                Requeue::Queued(after) => {
                    self.queue.requeue(begun, Instant::now());
                    // In a box, like the reconciliation.
                    if !self.is_newest(&key, &object) || !Box::pin(self.wait_in_place(&key, after)).await {
                        return Action::requeue(after.max(MIN_REQUEUE));
                    }
                    let Some(newest) = self.objects.get(&key) else {
                        // Deleted or undecodable. The reconciler may hold something for its turn.
                        self.forget(&key);
                        return Action::await_change();
                    };
                    self.queue.resume(begun, Instant::now());
                    if newest.meta().generation != object.meta().generation {
                        tracing::Span::current().record("generation", newest.meta().generation);
                    }
                    object = newest;
                    continue;
                }
                Requeue::OnChange => (ReconcileResult::Success, None),
                Requeue::After(after) => (ReconcileResult::RequeueAfter, Some(after)),
                Requeue::Backoff => (ReconcileResult::Error, Some(self.settings.backoff.fail(&key))),
            };
            return self.end(&key, begun, result, after, started.elapsed());
        }
    }

    /// Runs the reconciler once. Returns what follows, and when it started.
    async fn attempt(&self, object: Arc<K>) -> (Requeue, Instant) {
        let Settings {
            controller, metrics, ..
        } = &self.settings;
        let _running = metrics.begin(controller);
        let started = Instant::now();
        // In a box: kube starts a task for every object of a list at once, and a task has the size of its future from the start.
        let reconciliation = Box::pin(async { self.reconciler.reconcile(object).await });
        let caught = AssertUnwindSafe(reconciliation).catch_unwind().await;
        let next = match caught {
            Ok(Ok(next)) => next,
            Ok(Err(error)) => {
                tracing::error!(error = &error as &dyn std::error::Error, "Reconciler error");
                Requeue::Backoff
            }
            Err(payload) => {
                metrics.panicked(controller);
                tracing::error!(
                    error = panic_message(&*payload),
                    "Reconciler error: the reconciliation panicked"
                );
                Requeue::Backoff
            }
        };
        (next, started)
    }

    /// Returns whether the cache shows no later version of the object. A trigger by a later one takes effect after the end of this task.
    fn is_newest(&self, key: &ObjectKey, object: &Arc<K>) -> bool {
        let shown = self.objects.get(key);
        shown.is_some_and(|shown| Arc::ptr_eq(&shown, object))
    }

    /// Waits for the turn of a queued object, but not beyond a stop. Returns whether to reconcile it again now.
    async fn wait_in_place(&self, key: &ObjectKey, at_most: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            is_due = self.reconciler.wait_in_place(key, at_most) => is_due,
        }
    }

    /// Records the end of a reconciliation, and returns when the next one is due.
    fn end(
        &self,
        key: &ObjectKey,
        begun: QueueKey,
        result: ReconcileResult,
        after: Option<Duration>,
        took: Duration,
    ) -> Action {
        let Settings {
            controller,
            metrics,
            backoff,
            ..
        } = &self.settings;
        let has_failed = result == ReconcileResult::Error;
        if !has_failed {
            backoff.reset(key);
        }
        let after = after.map(|after| align(after, self.began.elapsed()));
        metrics.end(controller, &K::kind(&()), key, result, took);
        self.queue.end(begun, Instant::now(), after, has_failed);
        if !self.objects.contains(key) {
            self.forget(key);
        }
        tracing::debug!(result = ?result, after = ?after, took = ?took, "reconciliation ended");
        after.map_or_else(Action::await_change, |after| {
            Action::requeue(after.max(MIN_REQUEUE))
        })
    }

    /// Drops all data about a deleted object.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.settings.backoff.reset(key);
        self.queue.forget(key);
        self.set_decodable(key);
        self.reconciler.deleted(key);
        self.settings.metrics.forget(&K::kind(&()), key);
    }

    /// Uncounts an object that decodes again or is gone.
    fn set_decodable(&self, key: &ObjectKey) {
        let mut undecodable = lock(&self.undecodable);
        // Most often there is none, and the key needs no hash.
        if !undecodable.is_empty() && undecodable.remove(key) {
            let (controller, count) = (self.settings.controller, undecodable.len());
            self.settings.metrics.set_undecodable(controller, count);
        }
    }

    /// Counts and reports an object that does not decode. Its series would show the state of an earlier version.
    fn set_undecodable(&self, key: &ObjectKey, object: &WatchedObject<K>, invalid: &InvalidObject) {
        let mut undecodable = lock(&self.undecodable);
        undecodable.insert(key.clone());
        let (controller, count) = (self.settings.controller, undecodable.len());
        self.settings.metrics.set_undecodable(controller, count);
        drop(undecodable);
        self.settings.metrics.forget(&K::kind(&()), key);
        tracing::error!(
            controller = self.settings.controller,
            controllerKind = &*K::kind(&()),
            namespace = key.namespace,
            name = key.name,
            error = invalid.error,
            "object cannot be decoded and is skipped"
        );
        let message = format!(
            "object cannot be decoded and is skipped until it is corrected: {}",
            invalid.error
        );
        self.settings
            .recorder
            .record_reference(reference(object), Event::warning("InvalidObject", message));
    }

    /// Handles an error of the watch or of kube's controller.
    pub(super) fn handle_stream_error(&self, error: &controller::Error<Infallible, watcher::Error>) {
        let controller = self.settings.controller;
        match error {
            // Deleted between the trigger and the reconciliation.
            controller::Error::ObjectNotFound(object) => {
                let namespace = object.namespace.clone().unwrap_or_default();
                self.forget(&ObjectKey {
                    namespace,
                    name: object.name.clone(),
                });
            }
            controller::Error::QueueError(error) => {
                tracing::warn!(
                    controller,
                    error = error as &dyn std::error::Error,
                    "watch interrupted"
                );
            }
            other => tracing::error!(
                controller,
                error = other as &dyn std::error::Error,
                "controller failed"
            ),
        }
    }
}

/// Minimum delay, so that an object that requeues immediately does not starve others.
const MIN_REQUEUE: Duration = Duration::from_millis(1);

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no text".to_owned())
}
