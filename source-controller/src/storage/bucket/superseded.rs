//! The objects of the bucket that no status names any more, and since when. The leader deletes them after the retention time.
//!
//! What this process supersedes is known here. What an earlier one left is found by the listing at the start and once a day, and its
//! time counts from there.

use std::collections::{BTreeMap, HashMap};
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
    /// Records keys, unless they are.
    pub(super) fn insert(
        &self,
        directory: &ObjectDirectory,
        keys: impl IntoIterator<Item = Path>,
        now: Timestamp,
    ) {
        let mut all = lock(&self.0);
        let recorded = all.entry(directory.clone()).or_default();
        for key in keys {
            recorded.entry(key).or_insert(now);
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

    #[test]
    fn the_retention_time_counts_from_the_first_record() {
        let (superseded, start) = (Superseded::default(), Timestamp::UNIX_EPOCH);
        let directory = ObjectDirectory::git_repository("ns", "n").unwrap();
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        let expired = |seconds| superseded.expired(&directory, Duration::from_mins(1), after(seconds));
        let (a, b) = (Path::from("a"), Path::from("b"));
        superseded.insert(&directory, [a.clone()], start);
        superseded.insert(&directory, [a.clone(), b.clone()], after(30));
        assert!(expired(60).is_empty());
        assert_eq!(expired(61), std::slice::from_ref(&a));
        superseded.remove(&directory, &[a]);
        assert!(expired(61).is_empty());
        assert_eq!(expired(91), [b]);
        superseded.remove_directory(&directory);
        assert!(expired(1000).is_empty());
    }
}
