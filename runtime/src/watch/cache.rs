//! The cache of a watch, and what vanishes from it. Reads skip objects that do not decode.

use std::sync::Arc;

use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;

use super::Kind;
use super::object::WatchedObject;
use crate::schedule::ObjectKey;

/// The cached objects of a kind: may lag behind the API, including the controller's own writes.
#[derive(Clone, Debug)]
pub struct ObjectCache<K: Kind>(Store<WatchedObject<K>>);

impl<K: Kind> ObjectCache<K> {
    pub(super) const fn new(store: Store<WatchedObject<K>>) -> Self {
        Self(store)
    }

    pub(super) fn store(&self) -> Store<WatchedObject<K>> {
        self.0.clone()
    }

    /// Returns whether the cache contains an object, decodable or not.
    #[must_use]
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.0.get(&reference(key)).is_some()
    }

    /// Returns one object.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        decoded(&self.0.get(&reference(key))?)
    }

    /// Returns the objects that match `predicate`, in no particular order.
    pub fn filter(&self, predicate: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let matches = |object: &WatchedObject<K>| match &object.0 {
            Ok(object) => predicate(object.as_ref()),
            Err(_) => false,
        };
        self.0.state_filter(matches).iter().filter_map(decoded).collect()
    }

    /// Returns the keys of the objects that match `predicate`.
    pub fn keys(&self, predicate: impl Fn(&K) -> bool) -> Vec<ObjectKey> {
        self.filter(predicate)
            .iter()
            .map(|object| ObjectKey::of(&**object))
            .collect()
    }

    /// Returns the keys of all objects, decodable or not.
    fn all_keys(&self) -> Vec<ObjectKey> {
        self.0
            .state()
            .iter()
            .map(|object| ObjectKey::of(&**object))
            .collect()
    }

    /// Waits for the first complete list.
    pub async fn ready(&self) {
        if self.0.wait_until_ready().await.is_err() {
            // The watch ended; it never becomes ready.
            std::future::pending::<()>().await;
        }
    }
}

/// Finds deleted objects in the events of a watch. A deletion during an interruption shows only in the next list, which lacks
/// the object.
#[derive(Debug)]
pub(super) struct DeletionTracker<K: Kind> {
    objects: ObjectCache<K>,
    /// The keys before the current list.
    before: Vec<ObjectKey>,
}

impl<K: Kind> DeletionTracker<K> {
    /// Creates the tracker. `objects` must process each event before the tracker observes it.
    pub(super) const fn new(objects: ObjectCache<K>) -> Self {
        Self {
            objects,
            before: Vec::new(),
        }
    }

    /// Returns the keys of the objects that the event shows as deleted.
    pub(super) fn observe(&mut self, event: &Event<WatchedObject<K>>) -> Vec<ObjectKey> {
        match event {
            Event::Delete(object) => vec![ObjectKey::of(object)],
            // The cache keeps the old objects until the list is complete.
            Event::Init => {
                self.before = self.objects.all_keys();
                Vec::new()
            }
            Event::InitDone => {
                let mut deleted = std::mem::take(&mut self.before);
                deleted.retain(|key| !self.objects.contains(key));
                deleted
            }
            Event::InitApply(_) | Event::Apply(_) => Vec::new(),
        }
    }
}

fn reference<K: Kind>(key: &ObjectKey) -> ObjectRef<WatchedObject<K>> {
    let reference = ObjectRef::new(&key.name);
    if key.namespace.is_empty() {
        reference
    } else {
        reference.within(&key.namespace)
    }
}

fn decoded<K: Kind>(object: &Arc<WatchedObject<K>>) -> Option<Arc<K>> {
    object.0.as_ref().ok().cloned()
}
