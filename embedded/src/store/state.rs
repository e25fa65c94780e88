//! All objects at one revision, and the changes before it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::list_snapshot::{ListSizes, ListSnapshot};
use super::watch_cache::{Change, ChangeType, Expired, WatchCache};
use crate::{meta, rbac};

/// The key of an object.
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
    /// Creates the key of an object of `resource`.
    pub(crate) fn new(resource: impl Into<String>, namespace: &str, name: &str) -> Self {
        Self {
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Whether the key is in a list of `resource`; an empty namespace means all namespaces.
    pub(super) fn is_listed(&self, resource: &str, namespace: &str) -> bool {
        self.resource == resource && (namespace.is_empty() || self.namespace == namespace)
    }
}

/// `resource/namespace/name`; no part contains a slash.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.resource, self.namespace, self.name)
    }
}

/// The objects and the watch cache.
#[derive(Debug, Default)]
pub(crate) struct State {
    objects: BTreeMap<Key, Arc<Value>>,
    /// Keys by uid.
    keys_by_uid: HashMap<String, Key>,
    /// Keys of dependents by the uid of their owner.
    dependents: HashMap<String, BTreeSet<Key>>,
    /// Number of objects in each list.
    list_sizes: ListSizes,
    /// Number of changes of roles and bindings.
    role_changes: u64,
    /// Changes from which watches resume.
    pub(super) watch_cache: WatchCache,
    /// Kinds of which changes before the start are missing, as group resources.
    kinds_without_history: BTreeSet<&'static str>,
    /// Objects that do not exist in this process because their files are not valid.
    invalid_objects: BTreeSet<Key>,
}

impl State {
    /// Restores the content of a file at `revision`.
    pub(super) fn restore(objects: BTreeMap<Key, Arc<Value>>, revision: u64) -> Self {
        Self::resume(objects, WatchCache::starting_at(revision), BTreeSet::new())
    }

    /// Restores objects with the changes before them, which are complete but for `kinds_without_history`.
    pub(super) fn resume(
        objects: BTreeMap<Key, Arc<Value>>,
        watch_cache: WatchCache,
        kinds_without_history: BTreeSet<&'static str>,
    ) -> Self {
        let mut state = Self {
            watch_cache,
            kinds_without_history,
            ..Self::default()
        };
        for (key, object) in &objects {
            state.index(key, object);
            state.list_sizes.add(key);
        }
        state.objects = objects;
        state
    }

    /// Returns all objects.
    pub(super) fn into_objects(self) -> BTreeMap<Key, Arc<Value>> {
        self.objects
    }

    /// Returns the newest revision.
    pub(crate) const fn revision(&self) -> u64 {
        self.watch_cache.newest()
    }

    /// Returns the number of changes of roles and bindings since the start.
    pub(crate) const fn role_changes(&self) -> u64 {
        self.role_changes
    }

    /// Returns one object.
    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(key)
    }

    /// Lists objects of a resource by namespace and name; an empty namespace means all namespaces.
    pub(crate) fn list(&self, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        let listed = self.entries(resource, namespace);
        listed.map(|(_, object)| object.clone()).collect()
    }

    /// Returns the list as it was at `revision`. The watch cache must reach back to it.
    pub(crate) fn list_at<'a>(
        &'a self,
        resource: &'a str,
        namespace: &'a str,
        revision: u64,
    ) -> Result<ListSnapshot<'a>, Expired> {
        let changes = self.changes_of(resource, revision)?;
        Ok(ListSnapshot::before(self, resource, namespace, &changes))
    }

    /// Returns the number of objects in each list.
    pub(super) const fn list_sizes(&self) -> &ListSizes {
        &self.list_sizes
    }

    /// Returns keys and objects of a list, in order.
    fn entries<'a>(
        &'a self,
        resource: &'a str,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> {
        self.entries_from(&Key::new(resource, namespace, ""), resource, namespace)
    }

    /// Returns keys and objects of a list from this key on, in order.
    pub(super) fn entries_from<'a>(
        &'a self,
        first: &Key,
        resource: &'a str,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> + use<'a> {
        self.objects
            .range::<Key, _>(first..)
            .take_while(move |(key, _)| key.is_listed(resource, namespace))
    }

    /// Returns the keys of all objects.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.objects.keys()
    }

    /// Returns the key of the object with this uid.
    pub(crate) fn key_by_uid(&self, uid: &str) -> Option<&Key> {
        self.keys_by_uid.get(uid)
    }

    /// Returns the keys of the dependents of the object with this uid.
    pub(crate) fn dependents(&self, uid: &str) -> impl Iterator<Item = &Key> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// Returns the objects that do not exist in this process because their files are not valid. They can exist in other processes.
    pub(crate) const fn invalid_objects(&self) -> &BTreeSet<Key> {
        &self.invalid_objects
    }

    /// Replaces the objects whose files are not valid.
    pub(super) fn set_invalid_objects(&mut self, objects: BTreeSet<Key>) {
        self.invalid_objects = objects;
    }

    /// Returns the keys of all objects in a namespace, of any kind.
    pub(crate) fn keys_in_namespace(&self, namespace: &str) -> Vec<Key> {
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
            // The next key of another resource: no name is between these two.
            let after = Key::new(format!("{resource}\0"), "", "");
            next = self.objects.range(after..).next().map(|(key, _)| key);
        }
        found
    }

    fn index(&mut self, key: &Key, object: &Value) {
        self.keys_by_uid.insert(meta::uid(object).to_owned(), key.clone());
        for owner in owner_uids(object) {
            self.dependents.entry(owner).or_default().insert(key.clone());
        }
    }

    fn unindex(&mut self, key: &Key, object: &Value) {
        self.keys_by_uid.remove(meta::uid(object));
        for owner in owner_uids(object) {
            if let Some(keys) = self.dependents.get_mut(&owner) {
                keys.remove(key);
                if keys.is_empty() {
                    self.dependents.remove(&owner);
                }
            }
        }
    }

    /// Returns the changes after `revision`, oldest first.
    pub(crate) fn changes_since(&self, revision: u64) -> Result<Vec<Arc<Change>>, Expired> {
        self.watch_cache.since(revision)
    }

    /// Returns the changes after `revision`, oldest first. Those of this resource are complete, also before a restart if they have a
    /// history.
    pub(crate) fn changes_of(&self, resource: &str, revision: u64) -> Result<Vec<Arc<Change>>, Expired> {
        if self.has_history(resource) {
            self.watch_cache.since_in_history(revision)
        } else {
            self.changes_since(revision)
        }
    }

    /// Whether the changes of a resource before the start are known, if those of any are.
    pub(super) fn has_history(&self, resource: &str) -> bool {
        !self.kinds_without_history.contains(resource)
    }

    /// Publishes a persisted change.
    pub(super) fn publish(&mut self, key: Key, kind: ChangeType, object: Arc<Value>, revision: u64) {
        if key.resource.ends_with(rbac::GROUP) {
            self.role_changes += 1;
        }
        let before = match kind {
            ChangeType::Put => self.objects.insert(key.clone(), object.clone()),
            ChangeType::Remove => self.objects.remove(&key),
        };
        match (kind, &before) {
            (ChangeType::Put, None) => self.list_sizes.add(&key),
            (ChangeType::Remove, Some(_)) => self.list_sizes.remove(&key),
            (ChangeType::Put, Some(_)) | (ChangeType::Remove, None) => {}
        }
        if let Some(before) = &before {
            self.unindex(&key, before);
        }
        if kind == ChangeType::Put {
            self.index(&key, &object);
        }
        self.watch_cache
            .push(Change::new(revision, key, kind, object, before));
    }
}

fn owner_uids(object: &Value) -> impl Iterator<Item = String> {
    meta::owners(object)
        .iter()
        .filter_map(|owner| owner["uid"].as_str().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn put(state: &mut State, name: &str, revision: u64) {
        let object =
            json!({"metadata": {"name": name, "uid": name, "resourceVersion": revision.to_string()}});
        let key = Key::new("configmaps", "default", name);
        state.publish(key, ChangeType::Put, Arc::new(object), revision);
    }

    fn remove(state: &mut State, name: &str, revision: u64) {
        let key = Key::new("configmaps", "default", name);
        let last = state.get(&key).unwrap().clone();
        state.publish(key, ChangeType::Remove, last, revision);
    }

    /// Returns names and revisions of the objects at a revision.
    fn listed(state: &State, revision: u64) -> Result<Vec<(String, String)>, Expired> {
        let objects = state.list_at("configmaps", "", revision)?;
        let pair = |object: &Arc<Value>| {
            (
                meta::name(object).to_owned(),
                meta::resource_version(object).to_owned(),
            )
        };
        Ok(objects
            .range_from("", "")
            .map(|(_, object)| pair(object))
            .collect())
    }

    #[test]
    fn earlier_revisions_are_restored_from_the_changes_after_them() {
        let mut state = State::default();
        put(&mut state, "b", 2);
        put(&mut state, "a", 3);
        put(&mut state, "b", 4);
        remove(&mut state, "a", 5);
        let other = Key::new("secrets", "default", "a");
        state.publish(other, ChangeType::Put, Arc::default(), 6);
        put(&mut state, "a", 7);
        let pairs = |pairs: &[(&str, &str)]| {
            let owned = pairs
                .iter()
                .map(|(name, revision)| ((*name).to_owned(), (*revision).to_owned()));
            Ok(owned.collect::<Vec<_>>())
        };
        assert_eq!(listed(&state, 1), pairs(&[]));
        assert_eq!(listed(&state, 3), pairs(&[("a", "3"), ("b", "2")]));
        assert_eq!(listed(&state, 4), pairs(&[("a", "3"), ("b", "4")]));
        assert_eq!(listed(&state, 6), pairs(&[("b", "4")]));
        assert_eq!(listed(&state, 7), pairs(&[("a", "7"), ("b", "4")]));
        assert_eq!(listed(&state, 0), Err(Expired { oldest: 1 }));
    }
}
