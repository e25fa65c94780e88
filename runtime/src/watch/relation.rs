//! Objects that build on others of their own kind: told when one of those becomes another version.

use futures::channel::mpsc::UnboundedSender;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;

use super::versions::Versions;
use super::{Kind, Objects};
use crate::schedule::ObjectKey;

/// What of an object the others build on.
type Version<K> = Box<dyn Fn(&K) -> Option<String> + Send>;
/// The objects that build on one.
type Dependants<K> = Box<dyn Fn(&K, &Objects<K>) -> Vec<ObjectKey> + Send>;

/// How objects of a kind build on each other.
pub(super) struct Relation<K: Kind> {
    version: Version<K>,
    dependants: Dependants<K>,
}

impl<K: Kind> Relation<K> {
    pub(super) fn new<I: IntoIterator<Item = ObjectKey>>(
        version: impl Fn(&K) -> Option<String> + Send + 'static,
        dependants: impl Fn(&K, &Objects<K>) -> I + Send + 'static,
    ) -> Self {
        Self {
            version: Box::new(version),
            dependants: Box::new(move |object, objects| dependants(object, objects).into_iter().collect()),
        }
    }

    /// The relation at work. `objects` must have taken each event before it is seen here.
    pub(super) fn between(self, objects: Objects<K>, found: UnboundedSender<ObjectKey>) -> Related<K> {
        Related {
            relation: self,
            objects,
            versions: Versions::default(),
            found,
        }
    }
}

/// A relation that follows a watch.
pub(super) struct Related<K: Kind> {
    relation: Relation<K>,
    objects: Objects<K>,
    versions: Versions,
    found: UnboundedSender<ObjectKey>,
}

impl<K: Kind> Related<K> {
    pub(super) fn see(&mut self, event: &watcher::Event<DeserializeGuard<K>>) {
        let version = &self.relation.version;
        let changed = self.versions.see(event, |object| {
            (ObjectKey::of(object), object.0.as_ref().ok().and_then(version))
        });
        for object in changed.iter().filter_map(|key| self.objects.get(key)) {
            for key in (self.relation.dependants)(&object, &self.objects) {
                tracing::debug!(changed = %ObjectKey::of(&*object), dependant = %key, "a dependant is queued");
                // Nobody reads it any more: the controller is at its end.
                drop(self.found.unbounded_send(key));
            }
        }
    }
}
