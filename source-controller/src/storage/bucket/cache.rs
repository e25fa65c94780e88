//! Which files of the bucket are on this disk, and which of them go when there are too many: those that were not used for longest.

use std::collections::HashMap;
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
    pub(super) fn insert(&self, path: &ArtifactPath, bytes: u64) -> Vec<ArtifactPath> {
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
            files.forget(&oldest);
            removed.push(oldest);
        }
        removed
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

    /// Forgets the files of an object for which `is_gone` holds.
    pub(super) fn forget(&self, directory: &ObjectDirectory, is_gone: impl Fn(&ArtifactPath) -> bool) {
        let mut files = lock(&self.files);
        let paths = files.by_path.keys();
        let gone: Vec<ArtifactPath> = paths
            .filter(|path| path.directory() == directory && is_gone(path))
            .cloned()
            .collect();
        for path in gone {
            files.forget(&path);
        }
    }
}

impl Files {
    fn forget(&mut self, path: &ArtifactPath) {
        if let Some(file) = self.by_path.remove(path) {
            self.bytes -= file.bytes;
        }
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

    #[test]
    fn the_files_used_last_stay_within_the_limit() {
        let cache = Cache::new(10);
        assert!(cache.insert(&path("a"), 4).is_empty());
        assert!(cache.insert(&path("b"), 4).is_empty());
        cache.touch(&path("a"));
        assert_eq!(cache.insert(&path("c"), 4), [path("b")]);
        // A file that is stored again counts once.
        assert!(cache.insert(&path("c"), 6).is_empty());
        assert_eq!(cache.insert(&path("d"), 11), [path("a"), path("c")]);
        cache.forget(path("d").directory(), |other| *other == path("d"));
        assert!(cache.insert(&path("a"), 10).is_empty());
        let unlimited = Cache::new(0);
        assert!(unlimited.insert(&path("a"), u64::MAX / 2).is_empty());
        assert!(unlimited.insert(&path("b"), 1).is_empty());
    }
}
