//! The watch of a controller: its cache, and its bounded, isolated reconciliations.
//!
//! [`Watch`] follows the main kind of a controller; [`SecondaryWatch`] follows another kind and maps its changes to objects
//! of the main kind; [`MetadataWatch`] does so with the metadata alone; [`Watch::requeue_dependents`] is for objects of one
//! kind that depend on each other. An object that does not decode is reported and skipped, and never stops the others. A
//! panic is an error of its object. The controller's own status writes trigger no reconciliation.

mod cache;
mod debounce;
mod dependents;
mod listing;
mod metadata;
mod object;
mod reconcile;
mod secondary;
mod trigger;
mod versions;

use std::sync::Arc;
use std::time::Duration;

use cache::DeletionTracker;
pub use cache::ObjectCache;
use debounce::{DEBOUNCE, debounce};
use dependents::DependencyRule;
use futures::channel::mpsc;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, SelectAll};
use futures::{FutureExt as _, Stream, StreamExt as _};
use kube::core::NamespaceResourceScope;
use kube::runtime::controller::{self, Controller};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
pub use metadata::{MetadataWatch, ShownVersions};
use object::WatchedObject;
use reconcile::Reconciliations;
pub use secondary::SecondaryWatch;
use serde::de::DeserializeOwned;
use trigger::TriggerFilter;

use crate::event::Recorder;
use crate::metrics::Metrics;
use crate::random::Random;
use crate::schedule::{Backoff, ObjectKey};
use crate::shutdown::Token;

/// A namespaced kind that is known at compile time.
pub trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// When an object is reconciled again. The reconciliation has reported its own failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// After this time; resets the back-off.
    After(Duration),
    /// On the next change; resets the back-off.
    OnChange,
    /// The reconciliation failed: after the object's back-off.
    Backoff,
    /// The reconciler only queued the object and resumes it with [`Reconciler::wait_in_place`] or [`Watch::resume`], or after
    /// this time at the latest. Does not change the back-off.
    Queued(Duration),
}

impl Requeue {
    /// Returns [`Requeue::After`] if there is a time, otherwise [`Requeue::OnChange`].
    #[must_use]
    pub fn after_or_on_change(after: Option<Duration>) -> Self {
        after.map_or(Self::OnChange, Self::After)
    }
}

/// Reconciles objects of a kind.
pub trait Reconciler<K>: Send + Sync + 'static {
    /// A failure that the reconciliation could not report itself.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Whether the reconciler itself limits concurrency and returns [`Requeue::Queued`] for the other objects. Otherwise at
    /// most [`Settings::concurrent`] reconciliations run at once.
    const LIMITS_CONCURRENCY: bool = false;

    /// Called when a change or a trigger enqueues the object; not for timers or [`Watch::resume`].
    fn enqueued(&self, _key: &ObjectKey) {}

    /// Called when the object was deleted or does not decode, so that it is not reconciled.
    fn deleted(&self, _key: &ObjectKey) {}

    /// Removes from an object what the reconciler never reads, before it is cached. The version stays, so a write is based on
    /// the whole object.
    fn trim(_object: &mut K) {}

    /// Waits for the turn of an object that the reconciler queued ([`Requeue::Queued`]), for at most this time, and returns
    /// whether it is reconciled again at once, as the cache shows it then. That spares the way through the queue of the watch.
    /// With `false`, [`Watch::resume`] resumes it. The wait is dropped on a stop, and the object is not resumed. It is not
    /// called if the cache shows a later version already: a trigger by that needs the end of this task. By default, nothing
    /// waits here.
    fn wait_in_place(&self, _key: &ObjectKey, _at_most: Duration) -> impl Future<Output = bool> + Send {
        std::future::ready(false)
    }

    /// Moves the actual state towards the desired state. Never runs twice at once for the same object.
    fn reconcile(&self, object: Arc<K>) -> impl Future<Output = Result<Requeue, Self::Error>> + Send;
}

/// Logs an error of a watch, which starts again by itself.
pub fn log_interruption<K: Resource<DynamicType = ()>>(error: &watcher::Error) {
    let kind = K::kind(&());
    tracing::warn!(error = error as &dyn std::error::Error, %kind, "watch interrupted");
}

/// Which objects of a kind are watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Only objects with these labels, as a selector.
    pub labels: Option<String>,
}

impl Scope {
    fn config(&self) -> watcher::Config {
        let config = watcher::Config::default();
        match &self.labels {
            Some(labels) => config.labels(labels),
            None => config,
        }
    }

    fn api<K: Kind>(&self, client: Client) -> Api<WatchedObject<K>> {
        match &self.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        }
    }
}

/// Settings of a controller.
#[derive(Clone)]
pub struct Settings {
    /// Its name in metrics and logs: the kind in lower case.
    pub controller: &'static str,
    /// Which objects it watches.
    pub scope: Scope,
    /// Maximum number of concurrent reconciliations; at least one.
    pub concurrent: u16,
    /// Back-off of failed objects.
    pub backoff: Arc<Backoff>,
    /// Metrics of the reconciliations.
    pub metrics: Metrics,
    /// Records events about objects that do not decode.
    pub recorder: Recorder,
    /// Source of reconciliation ids.
    pub random: Arc<dyn Random>,
}

/// The watch of a controller's main kind.
pub struct Watch<K: Kind> {
    client: Client,
    settings: Settings,
    writer: Writer<WatchedObject<K>>,
    objects: ObjectCache<K>,
    triggers: SelectAll<BoxStream<'static, ObjectKey>>,
    resumed: SelectAll<BoxStream<'static, ObjectKey>>,
    dependencies: Option<DependencyRule<K>>,
    begin: BoxFuture<'static, ()>,
}

impl<K: Kind> Watch<K> {
    /// Prepares the watch; sends no request before [`Watch::run`].
    #[must_use]
    pub fn new(client: Client, settings: Settings) -> Self {
        let (reader, writer) = reflector::store();
        Self {
            client,
            settings,
            writer,
            objects: ObjectCache::new(reader),
            triggers: SelectAll::new(),
            resumed: SelectAll::new(),
            dependencies: None,
            begin: std::future::ready(()).boxed(),
        }
    }

    /// Returns the cache of the watch, which is filled while the watch runs.
    #[must_use]
    pub fn objects(&self) -> ObjectCache<K> {
        self.objects.clone()
    }

    /// Adds a trigger: reconciles each key that the stream yields.
    #[must_use]
    pub fn trigger(mut self, keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        self.triggers.push(keys.boxed());
        self
    }

    /// Adds reconciliations of objects that the reconciler had queued ([`Requeue::Queued`]), which do not count as triggers.
    #[must_use]
    pub fn resume(mut self, keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        self.resumed.push(keys.boxed());
        self
    }

    /// Reconciles the objects returned by `dependents` when the `version` of an object changes. A repeated list without
    /// changes triggers nothing.
    #[must_use]
    pub fn requeue_dependents<I: IntoIterator<Item = ObjectKey>>(
        mut self,
        version: impl Fn(&K) -> Option<String> + Send + 'static,
        dependents: impl Fn(&K, &ObjectCache<K>) -> I + Send + 'static,
    ) -> Self {
        self.dependencies = Some(DependencyRule::new(version, dependents));
        self
    }

    /// Starts reconciliations when `begin` completes. Triggers are collected from the start.
    #[must_use]
    pub fn begin_after(mut self, begin: impl Future<Output = ()> + Send + 'static) -> Self {
        self.begin = begin.boxed();
        self
    }

    /// Runs the reconciler until `stop`, then waits for running reconciliations and returns.
    pub async fn run<R: Reconciler<K>>(self, reconciler: R, stop: Token) {
        let Self {
            client,
            settings,
            writer,
            objects,
            mut triggers,
            resumed,
            dependencies,
            begin,
        } = self;
        let concurrent = settings.concurrent.max(1);
        let concurrency = if R::LIMITS_CONCURRENCY { 0 } else { concurrent };
        settings.metrics.set_workers(settings.controller, concurrent);
        let reconciliations = Reconciliations::new(reconciler, settings, objects.clone(), stop.clone());
        let reconciliations = Arc::new(reconciliations);
        let api = reconciliations.settings().scope.api::<K>(client);
        let [forgetting, context, observer, listener] = std::array::from_fn(|_| Arc::clone(&reconciliations));
        let (found, dependents) = mpsc::unbounded();
        let mut tracker = dependencies.map(|dependencies| dependencies.track(objects.clone(), found));
        triggers.push(debounce(dependents, DEBOUNCE).boxed());
        let (mut deletions, mut filter) = (DeletionTracker::new(objects.clone()), TriggerFilter::default());
        let changes = watcher(api, reconciliations.settings().scope.config())
            .default_backoff()
            .modify(trim::<K, R>)
            .reflect(writer)
            .flat_map(move |event| {
                if let Ok(event) = &event {
                    for key in deletions.observe(event) {
                        filter.forget(&key);
                        forgetting.forget(&key);
                    }
                    if let Some(tracker) = &mut tracker {
                        tracker.observe(event);
                    }
                }
                stream::iter(triggered(event, &mut filter))
            })
            .inspect(move |object| {
                if let Ok(object) = object {
                    observer.enqueue(&ObjectKey::of(object));
                }
            });
        let asked = stream::select(triggers.inspect(move |key| listener.enqueue(key)), resumed)
            .map(|key| ObjectRef::new(&key.name).within(&key.namespace));
        let changes = stream::once(begin).flat_map(|()| stream::empty()).chain(changes);
        let controller = Controller::for_stream(changes, objects.store())
            .with_config(controller::Config::default().concurrency(concurrency))
            .reconcile_on(asked)
            .graceful_shutdown_on(stop.clone().cancelled_owned())
            .run(Reconciliations::reconcile, |_, never, _| match *never {}, context)
            .for_each(async |ended| {
                if let Err(error) = ended {
                    reconciliations.handle_stream_error(&error);
                }
            });
        run_until_stop(controller, &objects, &stop).await;
    }
}

/// Removes what the reconciler does not read.
fn trim<K: Kind, R: Reconciler<K>>(object: &mut WatchedObject<K>) {
    if let Ok(object) = &mut object.0 {
        // It has no clones yet, so nothing is copied.
        R::trim(Arc::make_mut(object));
    }
}

/// Returns the objects that an event triggers, or the error of the watch.
fn triggered<K: Kind>(
    event: watcher::Result<watcher::Event<WatchedObject<K>>>,
    filter: &mut TriggerFilter<WatchedObject<K>>,
) -> Vec<watcher::Result<WatchedObject<K>>> {
    match event {
        Ok(event) => filter.triggered(event).into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    }
}

/// Runs kube's controller to its end, or to a stop before the first list, for which it would wait forever. Reconciliations start after
/// that list, so none is interrupted.
async fn run_until_stop<K: Kind>(
    controller: impl Future<Output = ()>,
    objects: &ObjectCache<K>,
    stop: &Token,
) {
    let stopped_before_first_list = async {
        tokio::select! {
            biased;
            () = objects.ready() => std::future::pending().await,
            () = stop.cancelled() => {}
        }
    };
    tokio::select! {
        biased;
        () = controller => {}
        () = stopped_before_first_list => {}
    }
}

#[cfg(test)]
mod tests;
