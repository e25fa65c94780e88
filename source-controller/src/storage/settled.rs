//! The directories of objects in which nothing is to be collected. A pass without a change lists none of them.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::sync::Mutex;

use sluice_runtime::sync::lock;

use super::digest_cache::FileIdentity;

/// Directories that held only the current artifact of their object, with its lock and its index.
///
/// Paths and states are hashes: their texts take 400 bytes for each object. A directory that wrongly counts as settled is listed after
/// the next change.
#[derive(Debug, Default)]
pub(super) struct SettledDirectories {
    hasher: RandomState,
    /// The hashes of the state and of the name of the artifact, by that of the path. Any file that is added or removed changes the state.
    settled: Mutex<HashMap<u64, u64>>,
}

impl SettledDirectories {
    /// Records that a directory in this state held nothing but the artifact `current`. The state must be stable and older than the
    /// list of its files.
    pub(super) fn insert(&self, directory: &Path, identity: FileIdentity, current: &str) {
        let settled = self.hasher.hash_one((identity, current));
        lock(&self.settled).insert(self.hash(directory), settled);
    }

    /// Returns whether a directory in this state holds nothing but the artifact `current`.
    pub(super) fn contains(&self, directory: &Path, identity: &FileIdentity, current: &str) -> bool {
        let settled = self.hasher.hash_one((identity, current));
        lock(&self.settled).get(&self.hash(directory)) == Some(&settled)
    }

    /// Forgets a directory.
    pub(super) fn remove(&self, directory: &Path) {
        lock(&self.settled).remove(&self.hash(directory));
    }

    /// Hashes the bytes of a path at once, not its components.
    fn hash(&self, directory: &Path) -> u64 {
        self.hasher.hash_one(directory.as_os_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_settled_in_one_state_with_one_artifact() {
        let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let state = |directory: &tempfile::TempDir| FileIdentity::of(&directory.path().metadata().unwrap());
        let (before, path) = (state(&directory), directory.path());
        let settled = SettledDirectories::default();
        settled.insert(path, before, "a.tar.gz");
        assert!(settled.contains(path, &before, "a.tar.gz"));
        assert!(!settled.contains(path, &before, "b.tar.gz"));
        assert!(!settled.contains(path, &state(&other), "a.tar.gz"));
        assert!(!settled.contains(other.path(), &before, "a.tar.gz"));
        let kept = format!("{settled:?}");
        assert!(!kept.contains("tar.gz"), "{kept}");
        settled.remove(path);
        assert!(!settled.contains(path, &before, "a.tar.gz"));
    }
}
