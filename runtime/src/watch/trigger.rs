//! Which changes of an object trigger a reconciliation.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use kube::Resource;
use kube::runtime::watcher::Event;
use sluice_api::annotation::{REJECTED_PLAN, REQUESTED_AT};

use super::listing::Listing;
use crate::schedule::ObjectKey;

/// The last observed triggers of the objects: uid, generation, reconcile request, rejected plan, finalizers and start of deletion. Status
/// writes of the controller change none of them.
///
/// kube's predicates do the same, but keep 300 bytes for each object instead of 35, and forget them after an hour without an event, so
/// that the next status write triggers a reconciliation.
#[derive(Debug)]
pub(super) struct TriggerFilter<K> {
    hasher: RandomState,
    /// The hash of the triggers, by that of the key.
    observed: HashMap<u64, u64>,
    listing: Listing<K>,
}

impl<K> Default for TriggerFilter<K> {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            observed: HashMap::new(),
            listing: Listing::default(),
        }
    }
}

impl<K: Resource> TriggerFilter<K> {
    /// Processes an event, and returns the objects to reconcile.
    pub(super) fn triggered(&mut self, event: Event<K>) -> Vec<K> {
        let mut shown = self.listing.shown(event);
        shown.retain(|object| self.observe(object));
        shown
    }

    /// Returns whether the triggers of the object differ from those that were observed last.
    fn observe(&mut self, object: &K) -> bool {
        let meta = object.meta();
        let annotation = |key: &str| meta.annotations.as_ref().and_then(|all| all.get(key));
        let triggers = self.hasher.hash_one((
            &meta.uid,
            meta.generation,
            annotation(REQUESTED_AT),
            annotation(REJECTED_PLAN),
            &meta.finalizers,
            meta.deletion_timestamp.is_some(),
        ));
        let key = self.hasher.hash_one(ObjectKey::of(object));
        self.observed.insert(key, triggers) != Some(triggers)
    }

    /// Forgets a deleted object.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.observed.remove(&self.hasher.hash_one(key));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::{Value, json};

    use super::*;

    fn object(metadata: &Value) -> ConfigMap {
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn user_changes_trigger_and_status_writes_do_not() {
        let observe = |metadata: &Value| {
            let mut filter = TriggerFilter::default();
            assert!(filter.observe(&object(&json!({"generation": 1}))), "it is new");
            filter.observe(&object(metadata))
        };
        for same in [
            json!({"generation": 1, "resourceVersion": "9"}),
            json!({"generation": 1, "labels": {"a": "b"}, "annotations": {"a": "b"}}),
        ] {
            assert!(!observe(&same), "{same}");
        }
        for other in [
            json!({"generation": 2}),
            json!({"generation": 1, "annotations": {REQUESTED_AT: "now"}}),
            json!({"generation": 1, "annotations": {REJECTED_PLAN: "now"}}),
            json!({"generation": 1, "finalizers": ["x"]}),
            json!({"generation": 1, "deletionTimestamp": "2026-01-02T03:04:05Z"}),
            json!({"generation": 1, "uid": "another object of this name"}),
        ] {
            assert!(observe(&other), "{other}");
        }
    }

    #[test]
    fn a_list_triggers_when_it_is_complete() {
        let mut filter = TriggerFilter::default();
        let version = |generation: u64| object(&json!({"name": "a", "generation": generation}));
        let mut count = |event: Event<ConfigMap>| filter.triggered(event).len();
        for (event, triggered) in [
            (Event::Init, 0),
            (Event::InitApply(version(1)), 0),
            (Event::InitDone, 1),
            (Event::Apply(version(1)), 0),
            // A list after an interruption. Its first attempt breaks off.
            (Event::Init, 0),
            (Event::InitApply(version(2)), 0),
            (Event::Init, 0),
            (Event::InitApply(version(2)), 0),
            (Event::InitDone, 1),
            (Event::Delete(version(2)), 0),
        ] {
            let text = format!("{event:?}");
            assert_eq!(count(event), triggered, "{text}");
        }
    }

    #[test]
    fn objects_are_distinguished_and_a_deleted_one_is_forgotten() {
        let mut filter = TriggerFilter::default();
        let (first, second) = (
            object(&json!({"name": "a", "namespace": "x"})),
            object(&json!({"name": "a", "namespace": "y"})),
        );
        assert!(filter.observe(&first) && filter.observe(&second));
        assert!(!filter.observe(&first) && !filter.observe(&second));
        filter.forget(&ObjectKey::of(&first));
        assert_eq!(filter.observed.len(), 1);
        assert!(filter.observe(&first) && !filter.observe(&second));
    }
}
