//! The pointers that this process has read or written. Requests and reconciliations use them instead of another read of the bucket.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use sluice_runtime::sync::lock;
use tokio::time::Instant;

use super::pointer::Pointer;
use crate::storage::{ArtifactPath, ObjectDirectory};

/// How long an unused pointer stays.
const MAX_AGE: Duration = Duration::from_hours(24);
/// Number of pointers below which none is removed for its age.
const MIN_PURGED: usize = 1024;

/// A pointer with the times of its last checks.
#[derive(Clone, Debug)]
pub(super) struct CachedPointer {
    pub(super) pointer: Pointer,
    /// When the pointer was read or written.
    pub(super) read_at: Instant,
    /// When the content was found or written.
    pub(super) found_at: Option<Instant>,
}

/// Pointers by the paths of their artifacts. The collection of an artifact removes its pointer; where another process collects, age does.
#[derive(Debug, Default)]
pub(super) struct PointerCache(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_path: HashMap<ArtifactPath, CachedPointer>,
    /// Number of entries at which the old ones are removed: twice what the last purge has left, so that a purge is rare.
    purge_at: usize,
}

impl PointerCache {
    /// Returns the pointer of a path.
    pub(super) fn get(&self, path: &ArtifactPath) -> Option<CachedPointer> {
        lock(&self.0).by_path.get(path).cloned()
    }

    /// Records a pointer. Without a new time, the content of an equal pointer counts as found when it was found last.
    pub(super) fn insert(
        &self,
        path: &ArtifactPath,
        pointer: &Pointer,
        read_at: Instant,
        found_at: Option<Instant>,
    ) {
        let mut entries = lock(&self.0);
        let earlier = entries.by_path.get(path);
        let equal = earlier.filter(|earlier| earlier.pointer == *pointer);
        let found_at = found_at.or_else(|| equal.and_then(|equal| equal.found_at));
        let cached = CachedPointer {
            pointer: pointer.clone(),
            read_at,
            found_at,
        };
        entries.by_path.insert(path.clone(), cached);
        entries.purge(read_at);
    }

    /// Removes the pointer of a path.
    pub(super) fn remove(&self, path: &ArtifactPath) {
        lock(&self.0).by_path.remove(path);
    }

    /// Removes the pointers of an object.
    pub(super) fn remove_directory(&self, directory: &ObjectDirectory) {
        let mut entries = lock(&self.0);
        entries.by_path.retain(|path, _| path.directory() != directory);
    }

    /// Removes everything, as after a restart.
    #[cfg(test)]
    pub(super) fn clear(&self) {
        lock(&self.0).by_path.clear();
    }
}

impl Entries {
    fn purge(&mut self, now: Instant) {
        if self.by_path.len() < self.purge_at.max(MIN_PURGED) {
            return;
        }
        self.by_path
            .retain(|_, cached| now.saturating_duration_since(cached.read_at) < MAX_AGE);
        self.purge_at = 2 * self.by_path.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer() -> Pointer {
        Pointer::parse(format!("sha256:{} 1", "0a".repeat(32)).as_bytes()).unwrap()
    }

    fn path(number: usize) -> ArtifactPath {
        let directory = ObjectDirectory::git_repository("ns", "n").unwrap();
        directory.artifact(&format!("{number:x}")).unwrap()
    }

    #[test]
    fn old_pointers_are_removed_when_there_are_many() {
        let (cache, start) = (PointerCache::default(), Instant::now());
        let days = |days: u32| start + MAX_AGE * days;
        for number in 0..10 * MIN_PURGED {
            let age = u32::try_from(number / MIN_PURGED).unwrap();
            cache.insert(&path(number), &pointer(), days(age), None);
            let count = lock(&cache.0).by_path.len();
            assert!(count <= 2 * MIN_PURGED + 1, "{count}");
        }
        assert!(cache.get(&path(10 * MIN_PURGED - 1)).is_some());
        assert!(cache.get(&path(0)).is_none());
    }

    #[test]
    fn a_content_counts_as_found_while_its_pointer_is_the_same() {
        let (cache, start) = (PointerCache::default(), Instant::now());
        let later = start + Duration::from_secs(1);
        cache.insert(&path(1), &pointer(), start, Some(start));
        cache.insert(&path(1), &pointer(), later, None);
        let cached = cache.get(&path(1)).unwrap();
        assert_eq!((cached.read_at, cached.found_at), (later, Some(start)));
        let damaged = Pointer {
            is_damaged: true,
            ..pointer()
        };
        cache.insert(&path(1), &damaged, later, None);
        assert_eq!(cache.get(&path(1)).unwrap().found_at, None);
        cache.remove_directory(path(1).directory());
        assert!(cache.get(&path(1)).is_none());
    }
}
