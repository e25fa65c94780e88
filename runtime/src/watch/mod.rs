//! Being called for objects: a controller's watch, its cache, and its bounded, isolated passes.
//!
//! [`Watch`] is the main kind of a controller; [`Related`] follows another kind and maps its changes to objects of
//! the main one; [`Changes`] does with the metadata alone; [`Watch::relate`] is for objects of one kind that build on each
//! other. An object that does not decode is reported and left alone: it never stops the others. A pass that
//! panics is an error of its object. Own status writes call nobody.

mod changes;
mod gathered;
mod objects;
mod pass;
mod predicate;
mod related;
mod relation;
mod versions;

use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, SelectAll};
use futures::{FutureExt as _, Stream, StreamExt as _};
use kube::core::{DeserializeGuard, NamespaceResourceScope};
use kube::runtime::controller::{self, Controller};
use kube::runtime::reflector::{self, ObjectRef, store::Writer};
use kube::runtime::{PredicateConfig, WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::event::Recorder;
use crate::metrics::Metrics;
use crate::random::Random;
use crate::schedule::{Backoff, ObjectKey};
use crate::shutdown::Token;

pub use changes::Changes;
pub use objects::Objects;
pub use predicate::REQUESTED_AT;
pub use related::Related;

use gathered::{SPAN, gathered};
use pass::Passes;
use relation::Relation;

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

/// What a pass asks for. Failures were reported by the pass itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Look again after this long; the back-off starts anew.
    After(Duration),
    /// Look again when something changes; the back-off starts anew.
    OnChange,
    /// The pass failed: look again by the object's back-off.
    Backoff,
    /// There was no pass yet: the reconciler has queued the object and calls for it itself, by [`Watch::resume`]. It is
    /// looked at again after this long all the same; the back-off stays as it is.
    Queued(Duration),
}

impl Next {
    /// [`Next::After`] if there is a time, else [`Next::OnChange`].
    #[must_use]
    pub fn at(after: Option<Duration>) -> Self {
        after.map_or(Self::OnChange, Self::After)
    }
}

/// One pass over one object.
pub trait Reconciler<K>: Send + Sync + 'static {
    /// What a pass fails with when it could not even report.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Whether the reconciler itself bounds how many passes run at once, and answers the others with [`Next::Queued`].
    /// Otherwise no more than [`Settings::concurrent`] are called at once.
    const QUEUES: bool = false;

    /// An event calls for a pass over this object: a change, or a trigger. Timers and [`Watch::resume`] are none.
    fn called(&self, _key: &ObjectKey) {}

    /// The object is gone, or does not decode: there will be no pass over it.
    fn gone(&self, _key: &ObjectKey) {}

    /// Brings the world closer to what the object wants. Called for an object at most once at a time.
    fn reconcile(&self, object: Arc<K>) -> impl Future<Output = Result<Next, Self::Error>> + Send;
}

/// Which objects of a kind are seen.
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

    fn api<K: Kind>(&self, client: Client) -> Api<DeserializeGuard<K>> {
        match &self.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        }
    }
}

/// How a controller runs.
#[derive(Clone)]
pub struct Settings {
    /// Its name in metrics and logs: the kind in lower case.
    pub controller: &'static str,
    /// Which objects it sees.
    pub scope: Scope,
    /// Passes at once; at least one.
    pub concurrent: u16,
    /// Back-off of failed objects.
    pub backoff: Arc<Backoff>,
    /// Where passes are counted.
    pub metrics: Metrics,
    /// Where undecodable objects are reported.
    pub recorder: Recorder,
    /// Where pass ids come from.
    pub random: Arc<dyn Random>,
}

/// The watch of a controller's main kind.
pub struct Watch<K: Kind> {
    client: Client,
    settings: Settings,
    writer: Writer<DeserializeGuard<K>>,
    objects: Objects<K>,
    triggers: SelectAll<BoxStream<'static, ObjectKey>>,
    resumed: SelectAll<BoxStream<'static, ObjectKey>>,
    relation: Option<Relation<K>>,
    begin: BoxFuture<'static, ()>,
}

impl<K: Kind> Watch<K> {
    /// Prepares the watch; nothing is asked before [`Watch::run`].
    #[must_use]
    pub fn new(client: Client, settings: Settings) -> Self {
        let (reader, writer) = reflector::store();
        Self {
            client,
            settings,
            writer,
            objects: Objects::new(reader),
            triggers: SelectAll::new(),
            resumed: SelectAll::new(),
            relation: None,
            begin: std::future::ready(()).boxed(),
        }
    }

    /// The objects as last seen; filled once the watch runs.
    #[must_use]
    pub fn objects(&self) -> Objects<K> {
        self.objects.clone()
    }

    /// Adds reasons for a pass: each key that the stream yields is looked at.
    #[must_use]
    pub fn trigger(mut self, keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        self.triggers.push(keys.boxed());
        self
    }

    /// Adds passes over objects that the reconciler had queued ([`Next::Queued`]): they are no events of their own.
    #[must_use]
    pub fn resume(mut self, keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        self.resumed.push(keys.boxed());
        self
    }

    /// Adds passes for objects that build on others of the same kind. Where `version` of an object becomes another one, the
    /// objects that `dependants` names are looked at; a list that only repeats what is known calls nobody.
    #[must_use]
    pub fn relate<I: IntoIterator<Item = ObjectKey>>(
        mut self,
        version: impl Fn(&K) -> Option<String> + Send + 'static,
        dependants: impl Fn(&K, &Objects<K>) -> I + Send + 'static,
    ) -> Self {
        self.relation = Some(Relation::new(version, dependants));
        self
    }

    /// Begins the passes no sooner than `begin` ends. Triggers are followed from the start.
    #[must_use]
    pub fn after(mut self, begin: impl Future<Output = ()> + Send + 'static) -> Self {
        self.begin = begin.boxed();
        self
    }

    /// Calls the reconciler until `stop`; then lets the running passes finish and returns.
    pub async fn run<R: Reconciler<K>>(self, reconciler: R, stop: Token) {
        let Self {
            client,
            settings,
            writer,
            objects,
            mut triggers,
            resumed,
            relation,
            begin,
        } = self;
        let concurrent = settings.concurrent.max(1);
        settings.metrics.set_workers(settings.controller, concurrent);
        let passes = Arc::new(Passes::new(reconciler, settings, objects.clone()));
        let api = passes.settings().scope.api::<K>(client);
        let forgetting = Arc::clone(&passes);
        let (observer, listener) = (Arc::clone(&passes), Arc::clone(&passes));
        let (found, dependants) = mpsc::unbounded();
        let mut related = relation.map(|relation| relation.between(objects.clone(), found));
        triggers.push(gathered(dependants, SPAN).boxed());
        let changes = watcher(api, passes.settings().scope.config())
            .default_backoff()
            .reflect(writer)
            .inspect(move |event| {
                if let Ok(watcher::Event::Delete(object)) = event {
                    forgetting.forget(&ObjectKey::of(object));
                }
                if let (Ok(event), Some(related)) = (event, &mut related) {
                    related.see(event);
                }
            })
            .applied_objects()
            .predicate_filter(predicate::worth_a_look, PredicateConfig::default())
            .inspect(move |object| {
                if let Ok(object) = object {
                    observer.asked(&ObjectKey::of(object));
                }
            });
        let asked = stream::select(triggers.inspect(move |key| listener.asked(key)), resumed)
            .map(|key| ObjectRef::new(&key.name).within(&key.namespace));
        let changes = stream::once(begin).flat_map(|()| stream::empty()).chain(changes);
        let controller = Controller::for_stream(changes, objects.store())
            .with_config(controller::Config::default().concurrency(if R::QUEUES { 0 } else { concurrent }))
            .reconcile_on(asked)
            .graceful_shutdown_on(stop.clone().cancelled_owned())
            .run(Passes::pass, |_, never, _| match *never {}, Arc::clone(&passes))
            .for_each(|ended| {
                if let Err(error) = ended {
                    passes.outside(&error);
                }
                std::future::ready(())
            });
        tokio::select! {
            biased;
            () = controller => {}
            () = stopped_early(&objects, &stop) => {}
        }
    }
}

/// Ends when `stop` comes before the first list. The controller would wait for that list to the end of time, since at the
/// stop it no longer listens; passes begin after the list only, so none is cut off.
async fn stopped_early<K: Kind>(objects: &Objects<K>, stop: &Token) {
    tokio::select! {
        biased;
        () = objects.ready() => std::future::pending().await,
        () = stop.cancelled() => {}
    }
}

#[cfg(test)]
mod tests;
