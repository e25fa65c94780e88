//! Detects version changes from the events of a watch. A repeated list, e.g. after an interruption, changes nothing by
//! itself.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use kube::runtime::watcher::Event;

use crate::schedule::ObjectKey;

/// The last observed versions.
///
/// Versions are only compared, so their hashes suffice: of an artifact, a text takes ten times as much memory.
#[derive(Debug, Default)]
pub(super) struct VersionIndex {
    hasher: RandomState,
    current: HashMap<ObjectKey, Option<u64>>,
    listing: HashMap<ObjectKey, Option<u64>>,
    listed: bool,
}

impl VersionIndex {
    /// Processes an event and returns the keys of the objects with a new version. Objects without a version, deletions and
    /// the first list are not changes.
    pub(super) fn observe<T>(
        &mut self,
        event: &Event<T>,
        read: impl Fn(&T) -> (ObjectKey, Option<String>),
    ) -> Vec<ObjectKey> {
        let read = |object: &T| {
            let (key, version) = read(object);
            (key, version.map(|version| self.hasher.hash_one(version)))
        };
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(object) => {
                let (key, version) = read(object);
                self.listing.insert(key, version);
            }
            Event::InitDone => return self.finish_list(),
            Event::Apply(object) => {
                let (key, version) = read(object);
                let changed = self.differs(&key, version);
                self.current.insert(key.clone(), version);
                return changed.then_some(key).into_iter().collect();
            }
            Event::Delete(object) => drop(self.current.remove(&read(object).0)),
        }
        Vec::new()
    }

    /// Returns whether the first list is complete.
    pub(super) const fn is_listed(&self) -> bool {
        self.listed
    }

    /// Returns whether the index contains an object.
    pub(super) fn contains(&self, key: &ObjectKey) -> bool {
        self.current.contains_key(key)
    }

    /// Returns whether this is the version of an object.
    pub(super) fn is_current(&self, key: &ObjectKey, version: &str) -> bool {
        self.current.get(key) == Some(&Some(self.hasher.hash_one(version)))
    }

    /// Returns the keys of all objects.
    pub(super) fn keys(&self) -> Vec<ObjectKey> {
        self.current.keys().cloned().collect()
    }

    fn finish_list(&mut self) -> Vec<ObjectKey> {
        let listing = std::mem::take(&mut self.listing);
        let changed = if self.listed {
            let changed = listing
                .iter()
                .filter(|(key, version)| self.differs(key, **version));
            changed.map(|(key, _)| key.clone()).collect()
        } else {
            Vec::new()
        };
        self.current = listing;
        self.listed = true;
        changed
    }

    fn differs(&self, key: &ObjectKey, version: Option<u64>) -> bool {
        version.is_some() && self.current.get(key).copied().flatten() != version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(versions: &mut VersionIndex, event: &Event<(&str, Option<&str>)>) -> Vec<String> {
        let key = |name: &str| ObjectKey {
            namespace: "ns".into(),
            name: name.into(),
        };
        let mut names: Vec<_> = versions
            .observe(event, |(name, version)| (key(name), version.map(str::to_owned)))
            .into_iter()
            .map(|key| key.name)
            .collect();
        names.sort();
        names
    }

    #[test]
    fn only_another_version_is_a_change() {
        use Event::{Apply, Delete, Init, InitApply, InitDone};
        let mut versions = VersionIndex::default();
        let nobody: [&str; 0] = [];
        for (event, changed) in [
            (Init, &nobody[..]),
            (InitApply(("a", Some("1"))), &nobody),
            (InitApply(("b", Some("1"))), &nobody),
            (InitApply(("c", None)), &nobody),
            (InitDone, &nobody),
            (Apply(("a", Some("1"))), &nobody),
            (Apply(("a", Some("2"))), &["a"]),
            (Apply(("c", Some("1"))), &["c"]),
            (Apply(("c", None)), &nobody),
            (Apply(("c", Some("1"))), &["c"]),
            (Apply(("new", Some("1"))), &["new"]),
            (Delete(("a", Some("2"))), &nobody),
            (Apply(("a", Some("2"))), &["a"]),
            // A list after an interruption.
            (Init, &nobody),
            (InitApply(("a", Some("2"))), &nobody),
            (InitApply(("b", Some("2"))), &nobody),
            (InitApply(("c", Some("1"))), &nobody),
            (InitApply(("d", Some("1"))), &nobody),
            // One that breaks off counts for nothing.
            (Init, &nobody),
            (InitApply(("a", Some("2"))), &nobody),
            (InitApply(("b", Some("3"))), &nobody),
            (InitApply(("e", Some("1"))), &nobody),
            (InitDone, &["b", "e"]),
            (Apply(("c", Some("1"))), &["c"]),
        ] {
            assert_eq!(seen(&mut versions, &event), changed, "{event:?}");
        }
        let key = |name: &str| ObjectKey {
            namespace: "ns".into(),
            name: name.into(),
        };
        assert!(versions.is_current(&key("b"), "3") && !versions.is_current(&key("b"), "2"));
        assert!(!versions.is_current(&key("new"), "1"));
        let kept = format!("{versions:?}");
        assert!(!kept.contains("\"3\""), "{kept}");
    }
}
