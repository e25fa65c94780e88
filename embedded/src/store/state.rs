//! All objects at one version, and the changes that led there.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde_json::Value;

use super::history::{Change, History, Verb};

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
    /// The changes that watches resume from.
    pub(super) history: History,
}

impl State {
    /// What a file held at `revision`.
    pub(super) fn restore(objects: BTreeMap<Key, Arc<Value>>, revision: u64) -> Self {
        Self {
            objects,
            history: History::starting_at(revision),
        }
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

    /// Every object.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.objects.iter()
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
        self.history.push(Change {
            revision,
            key,
            verb,
            object,
            before,
        });
    }
}
