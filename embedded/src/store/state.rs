//! All objects at one version, and the changes that led there.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::Arc,
};

use serde_json::Value;

use super::history::{Change, History, Verb};
use crate::meta;

/// Where an object lies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// `plural.group`.
    pub(crate) resource: String,
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: String,
    /// Name of the object.
    pub(crate) name: String,
}

impl Key {
    /// The key of an object of `resource`.
    pub(crate) fn new(resource: impl Into<String>, namespace: &str, name: &str) -> Self {
        Self {
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// `resource/namespace/name`; no part can hold a slash.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.resource, self.namespace, self.name)
    }
}

/// The objects and the window of changes.
#[derive(Debug, Default)]
pub(crate) struct State {
    objects: BTreeMap<Key, Arc<Value>>,
    /// Where the object with a uid lies.
    places: HashMap<String, Key>,
    /// The objects that name an owner, by the owner's uid.
    dependents: HashMap<String, BTreeSet<Key>>,
    /// The changes that watches resume from.
    pub(super) history: History,
}

impl State {
    /// What a file held at `revision`.
    pub(super) fn restore(objects: BTreeMap<Key, Arc<Value>>, revision: u64) -> Self {
        let mut state = Self {
            history: History::starting_at(revision),
            ..Self::default()
        };
        for (key, object) in &objects {
            state.index(key, object);
        }
        state.objects = objects;
        state
    }

    /// The newest version.
    pub(crate) const fn revision(&self) -> u64 {
        self.history.newest()
    }

    /// One object.
    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(key)
    }

    /// Objects of one resource, of one namespace if it is not empty, by namespace and name.
    pub(crate) fn list(&self, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        self.objects
            .range(Key::new(resource, namespace, "")..)
            .take_while(|(key, _)| {
                key.resource == resource && (namespace.is_empty() || key.namespace == namespace)
            })
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// The keys of every object.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.objects.keys()
    }

    /// Where the object with this uid lies.
    pub(crate) fn place(&self, uid: &str) -> Option<&Key> {
        self.places.get(uid)
    }

    /// The objects that name the object with this uid as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> impl Iterator<Item = &Key> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// The keys of all objects in a namespace, whatever their kind.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<Key> {
        let mut found = Vec::new();
        let mut next = self.objects.keys().next();
        while let Some(Key { resource, .. }) = next {
            let inside = self.objects.range(Key::new(resource, namespace, "")..);
            found.extend(
                inside
                    .map(|(key, _)| key)
                    .take_while(|key| key.resource == *resource && key.namespace == namespace)
                    .cloned(),
            );
            // No resource has a name between these two.
            let after = Key::new(format!("{resource}\0"), "", "");
            next = self.objects.range(after..).next().map(|(key, _)| key);
        }
        found
    }

    fn index(&mut self, key: &Key, object: &Value) {
        self.places.insert(meta::uid(object).to_owned(), key.clone());
        for owner in owner_uids(object) {
            self.dependents.entry(owner).or_default().insert(key.clone());
        }
    }

    fn unindex(&mut self, key: &Key, object: &Value) {
        self.places.remove(meta::uid(object));
        for owner in owner_uids(object) {
            if let Some(keys) = self.dependents.get_mut(&owner) {
                keys.remove(key);
                if keys.is_empty() {
                    self.dependents.remove(&owner);
                }
            }
        }
    }

    /// Changes after `revision`, oldest first.
    pub(crate) fn changes_since(&self, revision: u64) -> Result<Vec<Arc<Change>>, super::Gone> {
        self.history.since(revision)
    }

    /// Makes a change visible. It has been persisted.
    pub(super) fn publish(&mut self, key: Key, verb: Verb, object: Arc<Value>, revision: u64) {
        let before = match verb {
            Verb::Put => self.objects.insert(key.clone(), object.clone()),
            Verb::Remove => self.objects.remove(&key),
        };
        if let Some(before) = &before {
            self.unindex(&key, before);
        }
        if verb == Verb::Put {
            self.index(&key, &object);
        }
        self.history
            .push(Change::new(revision, key, verb, object, before));
    }
}

fn owner_uids(object: &Value) -> impl Iterator<Item = String> {
    meta::owners(object)
        .iter()
        .filter_map(|owner| owner["uid"].as_str().map(str::to_owned))
}
