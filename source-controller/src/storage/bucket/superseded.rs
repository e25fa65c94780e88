//! The objects of the bucket that no status names any more, and since when. The leader deletes them after the retention time.
//!
//! What this process supersedes is known here, with its time. What an earlier one left is found by the listing at the start and once a day,
//! and its time counts from there. A listing also removes the records of objects that another process has deleted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use object_store::path::Path;
use sluice_runtime::sync::lock;

use crate::storage::ObjectDirectory;

/// Keys by their objects, with the times of their supersession.
#[derive(Debug, Default)]
pub(super) struct Superseded(Mutex<HashMap<ObjectDirectory, BTreeMap<Path, Timestamp>>>);

impl Superseded {
    /// Records keys that are superseded from `now` on. A listing may have recorded them before, while they were in use.
    pub(super) fn insert(
        &self,
        directory: &ObjectDirectory,
        keys: impl IntoIterator<Item = Path>,
        now: Timestamp,
    ) {
        let keys = keys.into_iter().map(|key| (key, now));
        lock(&self.0).entry(directory.clone()).or_default().extend(keys);
    }

    /// Records what a listing that was started at `started_at` has found, unless it is recorded, and removes what it has not found. Keys of
    /// current artifacts are among them: the collection omits those.
    pub(super) fn insert_listing(
        &self,
        listed: &BTreeMap<ObjectDirectory, BTreeSet<Path>>,
        started_at: Timestamp,
        now: Timestamp,
    ) {
        let mut all = lock(&self.0);
        all.retain(|directory, recorded| {
            let found = listed.get(directory);
            recorded
                .retain(|key, since| *since >= started_at || found.is_some_and(|found| found.contains(key)));
            !recorded.is_empty()
        });
        for (directory, keys) in listed {
            let recorded = all.entry(directory.clone()).or_default();
            for key in keys {
                recorded.entry(key.clone()).or_insert(now);
            }
        }
    }

    /// Forgets keys: they are in use again, or deleted.
    pub(super) fn remove(&self, directory: &ObjectDirectory, keys: &[Path]) {
        let mut all = lock(&self.0);
        if let Some(recorded) = all.get_mut(directory) {
            recorded.retain(|key, _| !keys.contains(key));
            if recorded.is_empty() {
                all.remove(directory);
            }
        }
    }

    /// Forgets an object.
    pub(super) fn remove_directory(&self, directory: &ObjectDirectory) {
        lock(&self.0).remove(directory);
    }

    /// Returns the keys of an object whose retention time has ended.
    pub(super) fn expired(
        &self,
        directory: &ObjectDirectory,
        retention: Duration,
        now: Timestamp,
    ) -> Vec<Path> {
        let all = lock(&self.0);
        let recorded = all.get(directory).into_iter().flatten();
        let is_expired = |since: &Timestamp| {
            Duration::try_from(now.duration_since(*since)).is_ok_and(|since| since > retention)
        };
        recorded
            .filter(|&(_, since)| is_expired(since))
            .map(|(key, _)| key.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> ObjectDirectory {
        ObjectDirectory::git_repository("ns", "n").unwrap()
    }

    fn after(seconds: u64) -> Timestamp {
        Timestamp::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn expired(superseded: &Superseded, seconds: u64) -> Vec<Path> {
        superseded.expired(&directory(), Duration::from_mins(1), after(seconds))
    }

    fn listing<const N: usize>(keys: [&Path; N]) -> BTreeMap<ObjectDirectory, BTreeSet<Path>> {
        BTreeMap::from([(directory(), keys.into_iter().cloned().collect())])
    }

    #[test]
    fn the_retention_time_counts_from_the_supersession() {
        let superseded = Superseded::default();
        let (a, b) = (Path::from("a"), Path::from("b"));
        superseded.insert_listing(&listing([&a, &b]), after(0), after(0));
        // Another listing is no supersession.
        superseded.insert_listing(&listing([&a, &b]), after(30), after(30));
        superseded.insert(&directory(), [a.clone()], after(40));
        assert!(expired(&superseded, 60).is_empty());
        assert_eq!(expired(&superseded, 61), std::slice::from_ref(&b));
        superseded.remove(&directory(), &[b]);
        assert!(expired(&superseded, 100).is_empty());
        assert_eq!(expired(&superseded, 101), [a]);
        superseded.remove_directory(&directory());
        assert!(expired(&superseded, 1000).is_empty());
    }

    #[test]
    fn a_listing_removes_the_records_of_what_is_gone() {
        let superseded = Superseded::default();
        let (a, b, c) = (Path::from("a"), Path::from("b"), Path::from("c"));
        superseded.insert(&directory(), [a.clone(), b], after(0));
        // Recorded while the listing ran.
        superseded.insert(&directory(), [c.clone()], after(10));
        superseded.insert_listing(&listing([&a]), after(10), after(11));
        assert_eq!(expired(&superseded, 1000), [a, c]);
        superseded.insert_listing(&BTreeMap::new(), after(20), after(21));
        assert!(lock(&superseded.0).is_empty());
    }
}
