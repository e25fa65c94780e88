//! The watch cache: a window of changes from which watches resume. Revisions rise, with gaps where a store counts by commits. Count
//! and size are limited: a few large objects that change often must not fill the memory.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

use super::state::Key;

/// Maximum number of changes that a watch may lag behind.
const MAX_CHANGES: usize = 10_000;
/// Approximate size limit of these changes, in bytes.
const MAX_BYTES: usize = 32 << 20;

/// The type of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeType {
    /// The object was created or updated.
    Put,
    /// The object was removed.
    Remove,
}

/// A change of an object.
#[derive(Debug)]
pub(crate) struct Change {
    /// Revision of the change.
    pub(crate) revision: u64,
    /// Key of the object.
    pub(crate) key: Key,
    /// Type of the change.
    pub(crate) kind: ChangeType,
    /// Object after the change; for a removal its last state, with the revision of the removal.
    pub(crate) object: Arc<Value>,
    /// Object before the change.
    pub(crate) before: Option<Arc<Value>>,
    /// Object as JSON, once a watch has sent it.
    json: OnceLock<Bytes>,
    /// Approximate size in bytes, including the JSON.
    size: usize,
}

impl Change {
    /// Creates a change.
    pub(crate) fn new(
        revision: u64,
        key: Key,
        kind: ChangeType,
        object: Arc<Value>,
        before: Option<Arc<Value>>,
    ) -> Self {
        // Strings count twice: in the object and in its JSON.
        let size = 2 * approximate_size(&object);
        Self {
            revision,
            key,
            kind,
            object,
            before,
            json: OnceLock::new(),
            size,
        }
    }

    /// Returns the object as JSON, encoded once for all watches.
    pub(crate) fn json(&self) -> &Bytes {
        self.json.get_or_init(|| Bytes::from(self.object.to_string()))
    }
}

/// Returns the approximate size of a value in memory, in bytes.
pub(super) fn approximate_size(value: &Value) -> usize {
    const NODE: usize = size_of::<Value>();
    NODE + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(approximate_size).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| NODE + key.len() + approximate_size(value))
            .sum(),
        _ => 0,
    }
}

/// The requested revision is older than the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    /// Oldest revision from which watches can resume.
    pub(crate) oldest: u64,
}

/// The newest changes.
#[derive(Debug)]
pub(crate) struct WatchCache {
    changes: VecDeque<Arc<Change>>,
    newest: u64,
    /// Oldest revision from which watches can resume.
    oldest: u64,
    /// The same for objects whose changes before the start are known.
    oldest_in_history: u64,
    max_changes: usize,
    /// Size of all changes.
    total_size: usize,
}

impl Default for WatchCache {
    fn default() -> Self {
        // Revision 0 means "any" in requests.
        Self::starting_at(1)
    }
}

impl WatchCache {
    /// Creates an empty cache at this revision.
    pub(crate) const fn starting_at(newest: u64) -> Self {
        Self {
            changes: VecDeque::new(),
            newest,
            oldest: newest,
            oldest_in_history: newest,
            max_changes: MAX_CHANGES,
            total_size: 0,
        }
    }

    /// Returns the cache of a start at this revision, with the changes of earlier runs. They are not complete: objects without a history
    /// can have changed, too.
    pub(super) const fn resumed_at(mut self, newest: u64) -> Self {
        self.newest = newest;
        self.oldest = newest;
        self
    }

    /// Returns the newest revision.
    pub(crate) const fn newest(&self) -> u64 {
        self.newest
    }

    /// Limits the number of changes.
    pub(crate) fn set_max_changes(&mut self, max_changes: usize) {
        self.max_changes = max_changes;
    }

    /// Appends a change.
    pub(crate) fn push(&mut self, change: Change) {
        self.newest = change.revision;
        self.total_size += change.size;
        self.changes.push_back(Arc::new(change));
        // The newest change remains regardless of its size: watches that are up to date need it.
        while self.changes.len() > self.max_changes || (self.total_size > MAX_BYTES && self.changes.len() > 1)
        {
            let Some(oldest) = self.changes.pop_front() else {
                break;
            };
            self.total_size -= oldest.size;
            self.oldest = self.oldest.max(oldest.revision);
            self.oldest_in_history = oldest.revision;
        }
    }

    /// Forgets all changes: a watch from an older revision gets 410.
    pub(crate) fn forget(&mut self) {
        self.changes.clear();
        self.total_size = 0;
        self.oldest = self.newest;
        self.oldest_in_history = self.newest;
    }

    /// Returns the changes after `revision`; none if it is the newest or a later one.
    pub(crate) fn since(&self, revision: u64) -> Result<Vec<Arc<Change>>, Expired> {
        self.after(revision, self.oldest)
    }

    /// As [`WatchCache::since`], for objects whose changes before the start are known. The changes of others can be missing.
    pub(crate) fn since_in_history(&self, revision: u64) -> Result<Vec<Arc<Change>>, Expired> {
        self.after(revision, self.oldest_in_history)
    }

    fn after(&self, revision: u64, oldest: u64) -> Result<Vec<Arc<Change>>, Expired> {
        if revision < oldest {
            return Err(Expired { oldest });
        }
        let skip = self.changes.partition_point(|change| change.revision <= revision);
        Ok(self.changes.iter().skip(skip).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(changes: u64, max_changes: usize) -> WatchCache {
        let mut cache = WatchCache::starting_at(10);
        cache.set_max_changes(max_changes);
        for revision in 11..11 + changes {
            let key = Key::new("secrets", "default", "a");
            cache.push(Change::new(revision, key, ChangeType::Put, Arc::default(), None));
        }
        cache
    }

    fn revisions(cache: &WatchCache, since: u64) -> Result<Vec<u64>, Expired> {
        cache
            .since(since)
            .map(|changes| changes.iter().map(|c| c.revision).collect())
    }

    #[test]
    fn changes_after_a_revision_are_in_order() {
        let cache = filled(3, 100);
        assert_eq!(revisions(&cache, 10), Ok(vec![11, 12, 13]));
        assert_eq!(revisions(&cache, 12), Ok(vec![13]));
        assert_eq!(revisions(&cache, 13), Ok(vec![]));
        assert_eq!(revisions(&cache, 99), Ok(vec![]));
    }

    #[test]
    fn a_revision_before_the_window_is_expired() {
        assert_eq!(revisions(&filled(3, 2), 10), Err(Expired { oldest: 11 }));
        assert_eq!(revisions(&filled(3, 2), 11), Ok(vec![12, 13]));
        assert_eq!(
            revisions(&filled(0, 2), 9),
            Err(Expired { oldest: 10 }),
            "revisions before a restart are unknown"
        );
    }

    #[test]
    fn revisions_may_have_gaps() {
        let mut cache = filled(2, 100);
        let key = Key::new("secrets", "default", "a");
        cache.push(Change::new(1 << 32, key, ChangeType::Put, Arc::default(), None));
        assert_eq!(revisions(&cache, 11), Ok(vec![12, 1 << 32]));
        assert_eq!(revisions(&cache, 500), Ok(vec![1 << 32]));
        cache.forget();
        assert_eq!(revisions(&cache, 12), Err(Expired { oldest: 1 << 32 }));
        assert_eq!(revisions(&cache, 1 << 32), Ok(vec![]));
    }

    #[test]
    fn changes_of_earlier_runs_are_in_the_history_only() {
        // 11, 12 and 13 happened before the start at 20.
        let mut cache = filled(3, 4).resumed_at(20);
        assert_eq!(cache.newest(), 20);
        assert_eq!(revisions(&cache, 19), Err(Expired { oldest: 20 }));
        let in_history = |cache: &WatchCache, since: u64| {
            let changes = cache.since_in_history(since);
            changes.map(|changes| changes.iter().map(|change| change.revision).collect::<Vec<_>>())
        };
        assert_eq!(in_history(&cache, 9), Err(Expired { oldest: 10 }));
        assert_eq!(in_history(&cache, 11), Ok(vec![12, 13]));
        for revision in [21, 22] {
            let key = Key::new("secrets", "default", "a");
            cache.push(Change::new(revision, key, ChangeType::Put, Arc::default(), None));
        }
        assert_eq!(in_history(&cache, 11), Ok(vec![12, 13, 21, 22]));
        assert_eq!(in_history(&cache, 10), Err(Expired { oldest: 11 }));
        assert_eq!(revisions(&cache, 20), Ok(vec![21, 22]));
        assert_eq!(revisions(&cache, 19), Err(Expired { oldest: 20 }));
        cache.forget();
        assert_eq!(in_history(&cache, 21), Err(Expired { oldest: 22 }));
    }

    #[test]
    fn large_objects_shorten_the_window() {
        let mut cache = WatchCache::starting_at(1);
        let large = serde_json::json!({"data": {"a": "x".repeat(700 << 10)}});
        for revision in 2..302 {
            let key = Key::new("secrets", "default", "a");
            cache.push(Change::new(
                revision,
                key,
                ChangeType::Put,
                Arc::new(large.clone()),
                None,
            ));
            assert!(cache.total_size <= MAX_BYTES, "{}", cache.total_size);
        }
        assert_eq!(revisions(&cache, 300), Ok(vec![301]));
        assert!(revisions(&cache, 100).is_err());
        let huge = serde_json::json!({"data": "x".repeat(MAX_BYTES)});
        cache.push(Change::new(
            302,
            Key::new("secrets", "default", "b"),
            ChangeType::Put,
            Arc::new(huge),
            None,
        ));
        assert_eq!(
            revisions(&cache, 301),
            Ok(vec![302]),
            "a change larger than the limit is delivered"
        );
    }
}
