//! The cache of a watch, without the objects that do not decode.

use std::sync::Arc;

use kube::core::DeserializeGuard;
use kube::runtime::reflector::{ObjectRef, Store};

use super::Kind;
use crate::schedule::ObjectKey;

/// The objects of a kind as last seen: may lag behind the API, also behind own writes.
#[derive(Clone, Debug)]
pub struct Objects<K: Kind>(Store<DeserializeGuard<K>>);

impl<K: Kind> Objects<K> {
    pub(super) const fn new(store: Store<DeserializeGuard<K>>) -> Self {
        Self(store)
    }

    pub(super) fn store(&self) -> Store<DeserializeGuard<K>> {
        self.0.clone()
    }

    /// Whether an object is there, decodable or not.
    #[must_use]
    pub fn has(&self, key: &ObjectKey) -> bool {
        self.0.get(&reference(key)).is_some()
    }

    /// One object.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        decoded(&self.0.get(&reference(key))?)
    }

    /// The objects for which `wanted` says yes, in no order.
    pub fn filter(&self, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let guarded = |object: &DeserializeGuard<K>| object.0.as_ref().is_ok_and(&wanted);
        self.0.state_filter(guarded).iter().filter_map(decoded).collect()
    }

    /// The keys of the objects for which `wanted` says yes.
    pub fn keys(&self, wanted: impl Fn(&K) -> bool) -> Vec<ObjectKey> {
        self.filter(wanted)
            .iter()
            .map(|object| ObjectKey::of(&**object))
            .collect()
    }

    /// Waits until the first complete list has come.
    pub async fn ready(&self) {
        if self.0.wait_until_ready().await.is_err() {
            // The watch is gone; it will not become ready.
            std::future::pending::<()>().await;
        }
    }
}

fn reference<K: Kind>(key: &ObjectKey) -> ObjectRef<DeserializeGuard<K>> {
    let reference = ObjectRef::new(&key.name);
    if key.namespace.is_empty() {
        reference
    } else {
        reference.within(&key.namespace)
    }
}

fn decoded<K: Kind>(object: &Arc<DeserializeGuard<K>>) -> Option<Arc<K>> {
    object.0.as_ref().ok().cloned().map(Arc::new)
}
