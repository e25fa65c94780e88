//! Which objects of a watch became another version, told from its events: a list that is repeated, at the start or after
//! an interruption, is no change of what it repeats.

use std::collections::HashMap;

use kube::runtime::watcher::Event;

use crate::schedule::ObjectKey;

/// The versions last seen.
#[derive(Debug, Default)]
pub(super) struct Versions {
    known: HashMap<ObjectKey, Option<String>>,
    listing: HashMap<ObjectKey, Option<String>>,
    listed: bool,
}

impl Versions {
    /// Takes an event and gives the keys of the objects that now have another version than before. An object without a
    /// version, one that goes, and all of the first list are no change.
    pub(super) fn see<T>(
        &mut self,
        event: &Event<T>,
        read: impl Fn(&T) -> (ObjectKey, Option<String>),
    ) -> Vec<ObjectKey> {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(object) => {
                let (key, version) = read(object);
                self.listing.insert(key, version);
            }
            Event::InitDone => return self.relisted(),
            Event::Apply(object) => {
                let (key, version) = read(object);
                let changed = self.differs(&key, version.as_ref());
                self.known.insert(key.clone(), version);
                return changed.then_some(key).into_iter().collect();
            }
            Event::Delete(object) => drop(self.known.remove(&read(object).0)),
        }
        Vec::new()
    }

    /// Whether the first list came.
    pub(super) const fn has_list(&self) -> bool {
        self.listed
    }

    /// Whether an object is known.
    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        self.known.contains_key(key)
    }

    /// All objects that are known.
    pub(super) fn keys(&self) -> Vec<ObjectKey> {
        self.known.keys().cloned().collect()
    }

    fn relisted(&mut self) -> Vec<ObjectKey> {
        let listing = std::mem::take(&mut self.listing);
        let changed = if self.listed {
            let changed = listing
                .iter()
                .filter(|(key, version)| self.differs(key, version.as_ref()));
            changed.map(|(key, _)| key.clone()).collect()
        } else {
            Vec::new()
        };
        self.known = listing;
        self.listed = true;
        changed
    }

    fn differs(&self, key: &ObjectKey, version: Option<&String>) -> bool {
        version.is_some() && self.known.get(key).and_then(Option::as_ref) != version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(versions: &mut Versions, event: &Event<(&str, Option<&str>)>) -> Vec<String> {
        let key = |name: &str| ObjectKey {
            namespace: "ns".into(),
            name: name.into(),
        };
        let mut names: Vec<_> = versions
            .see(event, |(name, version)| (key(name), version.map(str::to_owned)))
            .into_iter()
            .map(|key| key.name)
            .collect();
        names.sort();
        names
    }

    #[test]
    fn only_another_version_is_a_change() {
        use Event::{Apply, Delete, Init, InitApply, InitDone};
        let mut versions = Versions::default();
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
    }
}
