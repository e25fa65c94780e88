//! A list at one revision: its size and its objects from any key on, without a copy of the whole list. kube-apiserver 1.34 serves such
//! lists from the snapshots of its watch cache.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::state::{Key, State};
use super::watch_cache::{Change, ChangeType};

/// The number of objects by resource and namespace. A count of the whole range would make each page cost the whole list.
#[derive(Debug, Default)]
pub(super) struct ListSizes(HashMap<String, ResourceSize>);

/// The number of objects of one resource.
#[derive(Debug, Default)]
struct ResourceSize {
    all: usize,
    by_namespace: HashMap<String, usize>,
}

impl ListSizes {
    /// Counts a new object.
    pub(super) fn add(&mut self, key: &Key) {
        let size = self.0.entry(key.resource.clone()).or_default();
        size.all += 1;
        *size.by_namespace.entry(key.namespace.clone()).or_default() += 1;
    }

    /// No longer counts a removed object.
    pub(super) fn remove(&mut self, key: &Key) {
        let Some(size) = self.0.get_mut(&key.resource) else {
            return;
        };
        size.all = size.all.saturating_sub(1);
        if let Some(count) = size.by_namespace.get_mut(&key.namespace) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                size.by_namespace.remove(&key.namespace);
            }
        }
        if size.all == 0 {
            self.0.remove(&key.resource);
        }
    }

    /// Returns the number of objects in a list; an empty namespace means all namespaces.
    fn of(&self, resource: &str, namespace: &str) -> usize {
        let Some(size) = self.0.get(resource) else {
            return 0;
        };
        if namespace.is_empty() {
            size.all
        } else {
            size.by_namespace.get(namespace).copied().unwrap_or(0)
        }
    }
}

/// A list at one revision.
#[derive(Debug)]
pub(crate) struct ListSnapshot<'a> {
    state: &'a State,
    resource: &'a str,
    namespace: &'a str,
    /// Objects that have changed since the revision, as they were; `None` for those that did not exist.
    earlier: BTreeMap<Key, Option<Arc<Value>>>,
    len: usize,
}

impl<'a> ListSnapshot<'a> {
    /// Creates the snapshot before these changes, which are all since its revision. The cost is that of the changes.
    pub(super) fn before(
        state: &'a State,
        resource: &'a str,
        namespace: &'a str,
        changes: &[Arc<Change>],
    ) -> Self {
        let mut earlier = BTreeMap::new();
        let mut len = state.list_sizes().of(resource, namespace);
        let undone = changes.iter().rev();
        for change in undone.filter(|change| change.key.is_listed(resource, namespace)) {
            match (change.kind, &change.before) {
                (ChangeType::Put, None) => len = len.saturating_sub(1),
                (ChangeType::Remove, Some(_)) => len += 1,
                (ChangeType::Put, Some(_)) | (ChangeType::Remove, None) => {}
            }
            earlier.insert(change.key.clone(), change.before.clone());
        }
        Self {
            state,
            resource,
            namespace,
            earlier,
            len,
        }
    }

    /// Returns the number of objects.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns the objects from this namespace and name on, in their order. The first one costs the logarithm of the list.
    pub(crate) fn range_from(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        let first = if namespace < self.namespace {
            Key::new(self.resource, self.namespace, "")
        } else {
            Key::new(self.resource, namespace, name)
        };
        let changed = &self.earlier;
        let current = self.state.entries_from(&first, self.resource, self.namespace);
        let mut current = current
            .filter(move |(key, _)| !changed.contains_key(*key))
            .peekable();
        let mut earlier = changed
            .range(first..)
            .filter_map(|(key, object)| object.as_ref().map(|object| (key, object)))
            .peekable();
        std::iter::from_fn(move || {
            let takes_current = match (current.peek(), earlier.peek()) {
                (Some((one, _)), Some((other, _))) => one < other,
                (one, _) => one.is_some(),
            };
            if takes_current {
                current.next()
            } else {
                earlier.next()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Changes the object of this number: two kinds, two namespaces, four names.
    fn change(state: &mut State, number: u8, removes: bool, revision: u64) {
        let resource = if number & 8 == 0 { "configmaps" } else { "secrets" };
        let namespace = if number & 4 == 0 { "a" } else { "b" };
        let name = ["a", "b", "c", "d"][usize::from(number & 3)];
        let key = Key::new(resource, namespace, name);
        let object = json!({"metadata": {"name": name, "namespace": namespace, "resourceVersion": revision.to_string()}});
        match state.get(&key).cloned() {
            Some(last) if removes => state.publish(key, ChangeType::Remove, last, revision),
            _ => state.publish(key, ChangeType::Put, Arc::new(object), revision),
        }
    }

    type Listed = Vec<(Key, Arc<Value>)>;

    fn listed(snapshot: &ListSnapshot<'_>, namespace: &str, name: &str) -> Listed {
        let found = snapshot.range_from(namespace, name);
        found.map(|(key, object)| (key.clone(), object.clone())).collect()
    }

    proptest! {
        #[test]
        fn a_snapshot_is_the_list_of_its_revision(
            changes in proptest::collection::vec((0_u8..16, any::<bool>()), 0..40),
            first in "[a-d]{0,2}",
        ) {
            let mut state = State::default();
            let (lists, places) = (["", "a", "b"], ["", "a", "b"]);
            // All lists at each revision, read when it was the newest.
            let mut read: Vec<(u64, &str, Listed)> = Vec::new();
            for (revision, (number, removes)) in (2..).zip(changes) {
                change(&mut state, number, removes, revision);
                for namespace in lists {
                    let at = state.list_at("configmaps", namespace, revision).unwrap();
                    let all = listed(&at, "", "");
                    let newest = state.list("configmaps", namespace);
                    prop_assert!(all.iter().map(|(_, object)| object).eq(&newest));
                    read.push((revision, namespace, all));
                }
            }
            for (revision, namespace, all) in read {
                let at = state.list_at("configmaps", namespace, revision).unwrap();
                prop_assert_eq!(at.len(), all.len());
                for place in places {
                    let rest = all.iter().filter(|(key, _)| (&*key.namespace, &*key.name) >= (place, &*first));
                    prop_assert_eq!(listed(&at, place, &first), rest.cloned().collect::<Listed>());
                }
            }
        }
    }

    #[test]
    fn removed_objects_are_not_counted() {
        let mut state = State::default();
        change(&mut state, 0, false, 2);
        change(&mut state, 4, false, 3);
        change(&mut state, 4, false, 4);
        let len = |state: &State, namespace: &str, revision: u64| {
            state.list_at("configmaps", namespace, revision).unwrap().len()
        };
        assert_eq!((len(&state, "", 4), len(&state, "b", 4)), (2, 1));
        change(&mut state, 4, true, 5);
        change(&mut state, 0, true, 6);
        assert_eq!((len(&state, "", 6), len(&state, "b", 6)), (0, 0));
        assert_eq!((len(&state, "", 4), len(&state, "b", 3)), (2, 1));
        assert!(state.list_sizes().0.is_empty(), "{:?}", state.list_sizes());
    }
}
