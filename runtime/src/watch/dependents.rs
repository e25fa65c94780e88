//! Dependencies between objects of one kind: an object's dependents are queued when its version changes.

use futures::channel::mpsc::UnboundedSender;
use kube::runtime::watcher;

use super::object::WatchedObject;
use super::versions::VersionIndex;
use super::{Kind, ObjectCache};
use crate::schedule::ObjectKey;

/// Returns the version of an object that its dependents use.
type VersionFn<K> = Box<dyn Fn(&K) -> Option<String> + Send>;
/// Returns the dependents of an object.
type DependentsFn<K> = Box<dyn Fn(&K, &ObjectCache<K>) -> Vec<ObjectKey> + Send>;

/// How objects of a kind depend on each other.
pub(super) struct DependencyRule<K: Kind> {
    version: VersionFn<K>,
    dependents: DependentsFn<K>,
}

impl<K: Kind> DependencyRule<K> {
    pub(super) fn new<I: IntoIterator<Item = ObjectKey>>(
        version: impl Fn(&K) -> Option<String> + Send + 'static,
        dependents: impl Fn(&K, &ObjectCache<K>) -> I + Send + 'static,
    ) -> Self {
        Self {
            version: Box::new(version),
            dependents: Box::new(move |object, objects| dependents(object, objects).into_iter().collect()),
        }
    }

    /// Creates the tracker. `objects` must process each event before the tracker observes it.
    pub(super) fn track(
        self,
        objects: ObjectCache<K>,
        queue: UnboundedSender<ObjectKey>,
    ) -> DependentTracker<K> {
        DependentTracker {
            rule: self,
            objects,
            versions: VersionIndex::default(),
            queue,
        }
    }
}

/// A dependency rule that follows a watch.
pub(super) struct DependentTracker<K: Kind> {
    rule: DependencyRule<K>,
    objects: ObjectCache<K>,
    versions: VersionIndex,
    queue: UnboundedSender<ObjectKey>,
}

impl<K: Kind> DependentTracker<K> {
    pub(super) fn observe(&mut self, event: &watcher::Event<WatchedObject<K>>) {
        let version = &self.rule.version;
        let changed = self.versions.observe(event, |object| {
            let decoded = object.0.as_ref().ok();
            (
                ObjectKey::of(object),
                decoded.and_then(|object| version(object.as_ref())),
            )
        });
        for object in changed.iter().filter_map(|key| self.objects.get(key)) {
            for key in (self.rule.dependents)(&object, &self.objects) {
                tracing::debug!(changed = %ObjectKey::of(&*object), dependent = %key, "dependent queued");
                // The receiver is dropped only when the controller ends.
                drop(self.queue.unbounded_send(key));
            }
        }
    }
}
