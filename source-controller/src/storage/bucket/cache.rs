//! Which files of the bucket are on this disk, and which of them go when there are too many: those that were not used for longest.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Mutex;

use sluice_runtime::sync::lock;

use crate::storage::{ArtifactPath, ObjectDirectory};

/// The files on disk, with a limit on their sizes together.
#[derive(Debug)]
pub(super) struct Cache {
    /// Maximum size in bytes; 0: unlimited.
    limit: u64,
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    by_path: HashMap<ArtifactPath, CachedFile>,
    bytes: u64,
    /// Counter of uses.
    uses: u64,
}

#[derive(Debug)]
struct CachedFile {
    bytes: u64,
    last_use: u64,
}

/// A file that must be removed from the disk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EvictedFile {
    pub(super) path: ArtifactPath,
    bytes: u64,
}

impl Cache {
    /// Creates an empty cache for at most `limit` bytes; 0: unlimited.
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            files: Mutex::default(),
        }
    }

    /// Adds a file that is on disk. Returns those that must be removed from it. The new file stays, also if it is larger than the limit:
    /// somebody waits for it.
    pub(super) fn insert(&self, path: &ArtifactPath, bytes: u64) -> Vec<EvictedFile> {
        let mut files = lock(&self.files);
        files.forget(path);
        files.uses += 1;
        let last_use = files.uses;
        files.bytes += bytes;
        files.by_path.insert(path.clone(), CachedFile { bytes, last_use });
        let mut removed = Vec::new();
        while self.limit > 0 && files.bytes > self.limit {
            let Some(oldest) = files.oldest_except(path) else {
                break;
            };
            let bytes = files.forget(&oldest);
            removed.push(EvictedFile { path: oldest, bytes });
        }
        removed
    }

    /// Adds a file that cannot be removed now, as the first to go the next time. Its writer may have added it again meanwhile.
    pub(super) fn restore(&self, evicted: EvictedFile) {
        let mut files = lock(&self.files);
        let files = &mut *files;
        let EvictedFile { path, bytes } = evicted;
        if let Entry::Vacant(entry) = files.by_path.entry(path) {
            entry.insert(CachedFile { bytes, last_use: 0 });
            files.bytes += bytes;
        }
    }

    /// Records a use of a file.
    pub(super) fn touch(&self, path: &ArtifactPath) {
        let mut files = lock(&self.files);
        files.uses += 1;
        let uses = files.uses;
        if let Some(file) = files.by_path.get_mut(path) {
            file.last_use = uses;
        }
    }

    /// Forgets the files of an object for which `is_gone` holds, except those that are used meanwhile. It may look at the disk: downloads
    /// do not wait for it.
    pub(super) fn forget(&self, directory: &ObjectDirectory, is_gone: impl Fn(&ArtifactPath) -> bool) {
        let mut gone = self.files_of(directory);
        gone.retain(|(path, _)| is_gone(path));
        let mut files = lock(&self.files);
        for (path, last_use) in gone {
            let file = files.by_path.get(&path);
            if file.is_some_and(|file| file.last_use == last_use) {
                files.forget(&path);
            }
        }
    }

    /// Returns the files of an object with their last uses.
    fn files_of(&self, directory: &ObjectDirectory) -> Vec<(ArtifactPath, u64)> {
        let files = lock(&self.files);
        let of_object = files
            .by_path
            .iter()
            .filter(|(path, _)| path.directory() == directory);
        of_object
            .map(|(path, file)| (path.clone(), file.last_use))
            .collect()
    }
}

impl Files {
    /// Returns the size of the file.
    fn forget(&mut self, path: &ArtifactPath) -> u64 {
        let bytes = self.by_path.remove(path).map_or(0, |file| file.bytes);
        self.bytes -= bytes;
        bytes
    }

    fn oldest_except(&self, kept: &ArtifactPath) -> Option<ArtifactPath> {
        let others = self.by_path.iter().filter(|(path, _)| *path != kept);
        let oldest = others.min_by_key(|(_, file)| file.last_use);
        oldest.map(|(path, _)| path.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(commit: &str) -> ArtifactPath {
        let directory = ObjectDirectory::git_repository("ns", "n").unwrap();
        directory.artifact(commit).unwrap()
    }

    /// Adds a file. Returns the paths of those that go.
    fn insert(cache: &Cache, commit: &str, bytes: u64) -> Vec<ArtifactPath> {
        let evicted = cache.insert(&path(commit), bytes);
        evicted.into_iter().map(|evicted| evicted.path).collect()
    }

    #[test]
    fn the_files_used_last_stay_within_the_limit() {
        let cache = Cache::new(10);
        assert!(insert(&cache, "a", 4).is_empty());
        assert!(insert(&cache, "b", 4).is_empty());
        cache.touch(&path("a"));
        assert_eq!(insert(&cache, "c", 4), [path("b")]);
        // A file that is stored again counts once.
        assert!(insert(&cache, "c", 6).is_empty());
        assert_eq!(insert(&cache, "d", 11), [path("a"), path("c")]);
        cache.forget(path("d").directory(), |other| *other == path("d"));
        assert!(insert(&cache, "a", 10).is_empty());
        let unlimited = Cache::new(0);
        assert!(insert(&unlimited, "a", u64::MAX / 2).is_empty());
        assert!(insert(&unlimited, "b", 1).is_empty());
    }

    #[test]
    fn a_file_that_was_stored_again_meanwhile_is_not_forgotten() {
        let cache = Cache::new(10);
        assert!(insert(&cache, "a", 4).is_empty());
        assert!(insert(&cache, "b", 4).is_empty());
        cache.forget(path("a").directory(), |other| {
            if *other == path("b") {
                assert!(insert(&cache, "b", 4).is_empty());
            }
            true
        });
        assert_eq!(insert(&cache, "c", 7), [path("b")]);
    }

    #[test]
    fn a_file_that_could_not_be_removed_goes_first() {
        let cache = Cache::new(10);
        assert!(insert(&cache, "a", 4).is_empty());
        assert!(insert(&cache, "b", 4).is_empty());
        for evicted in cache.insert(&path("c"), 4) {
            cache.restore(evicted);
        }
        assert_eq!(insert(&cache, "d", 2), [path("a")]);
    }

    #[test]
    fn a_file_that_was_stored_again_meanwhile_is_not_restored() {
        let cache = Cache::new(4);
        assert!(insert(&cache, "a", 4).is_empty());
        for evicted in cache.insert(&path("b"), 4) {
            assert!(insert(&cache, "a", 0).is_empty());
            cache.restore(evicted);
        }
        assert!(insert(&cache, "c", 0).is_empty());
    }
}
