//! One pass: isolated, measured, and turned into the time of the next one.

use std::any::Any;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::controller::{self, Action};
use kube::runtime::watcher;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{Kind, Next, Objects, Reconciler, Settings};
use crate::event::{Event, reference};
use crate::metrics::{PassResult, Queue};
use crate::random::uuid;
use crate::schedule::ObjectKey;

/// All that passes share.
pub(super) struct Passes<K: Kind, R> {
    reconciler: R,
    settings: Settings,
    objects: Objects<K>,
    queue: Queue,
}

impl<K: Kind, R: Reconciler<K>> Passes<K, R> {
    pub(super) fn new(reconciler: R, settings: Settings, objects: Objects<K>) -> Self {
        Self {
            queue: settings.metrics.queue(settings.controller),
            reconciler,
            settings,
            objects,
        }
    }

    /// Somebody asks for a pass over this object.
    pub(super) fn asked(&self, key: &ObjectKey) {
        self.queue.ask(key, Instant::now());
        self.reconciler.called(key);
    }

    pub(super) const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A pass over what the cache holds. Never fails: what goes wrong is counted, logged and given its back-off here.
    pub(super) async fn pass(
        object: Arc<DeserializeGuard<K>>,
        passes: Arc<Self>,
    ) -> Result<Action, Infallible> {
        let key = ObjectKey::of(&*object);
        passes.queue.begin(&key, Instant::now());
        let object = match &object.0 {
            Ok(object) => Arc::new(object.clone()),
            Err(invalid) => {
                passes.undecodable(&key, invalid);
                passes.reconciler.gone(&key);
                passes.queue.end(&key, Instant::now(), None, false);
                return Ok(Action::await_change());
            }
        };
        let span = tracing::info_span!(
            "pass",
            controller = passes.settings.controller,
            controllerGroup = &*K::group(&()),
            controllerKind = &*K::kind(&()),
            namespace = key.namespace,
            name = key.name,
            reconcileID = uuid(&*passes.settings.random),
            generation = object.meta().generation,
        );
        Ok(passes.measured(key, object).instrument(span).await)
    }

    async fn measured(&self, key: ObjectKey, object: Arc<K>) -> Action {
        let Settings {
            controller,
            metrics,
            backoff,
            ..
        } = &self.settings;
        let _running = metrics.begin(controller);
        let started = Instant::now();
        let caught = AssertUnwindSafe(async { self.reconciler.reconcile(object).await })
            .catch_unwind()
            .await;
        let next = match caught {
            Ok(Ok(next)) => next,
            Ok(Err(error)) => {
                tracing::error!(error = &error as &dyn std::error::Error, "Reconciler error");
                Next::Backoff
            }
            Err(payload) => {
                metrics.panicked(controller);
                tracing::error!(error = text_of(&*payload), "Reconciler error: the pass panicked");
                Next::Backoff
            }
        };
        let (result, after) = match next {
            Next::Queued(after) => {
                self.queue.put_back(&key, Instant::now());
                return Action::requeue(after.max(SHORTEST));
            }
            Next::OnChange => (PassResult::Success, None),
            Next::After(after) => (PassResult::RequeueAfter, Some(after)),
            Next::Backoff => (PassResult::Error, Some(backoff.fail(&key))),
        };
        if result != PassResult::Error {
            backoff.reset(&key);
        }
        let took = started.elapsed();
        metrics.end(controller, &K::kind(&()), &key, result, took);
        self.queue
            .end(&key, Instant::now(), after, result == PassResult::Error);
        if !self.objects.has(&key) {
            self.forget(&key);
        }
        tracing::debug!(result = ?result, after = ?after, took = ?took, "pass ended");
        after.map_or_else(Action::await_change, |after| Action::requeue(after.max(SHORTEST)))
    }

    /// Drops what is kept about an object that is gone.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.settings.backoff.reset(key);
        self.queue.forget(key);
        self.reconciler.gone(key);
        self.settings.metrics.forget(&K::kind(&()), key);
    }

    fn undecodable(&self, key: &ObjectKey, invalid: &InvalidObject) {
        self.settings.metrics.undecodable(self.settings.controller);
        tracing::error!(
            controller = self.settings.controller,
            controllerKind = &*K::kind(&()),
            namespace = key.namespace,
            name = key.name,
            error = invalid.error,
            "object does not decode and is left alone"
        );
        let guarded = DeserializeGuard::<K>(Err(invalid.clone()));
        let message = format!(
            "object does not decode and is left alone until it is mended: {}",
            invalid.error
        );
        self.settings
            .recorder
            .record_reference(reference(&guarded), Event::warning("InvalidObject", message));
    }

    /// Something went wrong outside of any pass.
    pub(super) fn outside(&self, error: &controller::Error<Infallible, watcher::Error>) {
        let controller = self.settings.controller;
        match error {
            // Deleted between the request and the pass.
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

/// A pass that asks to be called at once gives others a turn first.
const SHORTEST: Duration = Duration::from_millis(1);

fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no text".to_owned())
}
