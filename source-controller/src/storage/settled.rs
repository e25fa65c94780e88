//! The directories of objects in which nothing is to be collected. A pass without a change lists none of them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use sluice_runtime::sync::lock;

use super::digest_cache::FileIdentity;

/// Directories that held only the current artifact of their object, with its lock and its index.
#[derive(Debug, Default)]
pub(super) struct SettledDirectories(Mutex<HashMap<PathBuf, Settled>>);

#[derive(Debug)]
struct Settled {
    /// The state of the directory. Any file that is added or removed changes it.
    identity: FileIdentity,
    /// Name of the current artifact.
    current: Box<str>,
}

impl SettledDirectories {
    /// Records that a directory in this state held nothing but the artifact `current`. The state must be stable and older than the
    /// list of its files.
    pub(super) fn insert(&self, directory: &Path, identity: FileIdentity, current: &str) {
        let settled = Settled {
            identity,
            current: current.into(),
        };
        lock(&self.0).insert(directory.to_owned(), settled);
    }

    /// Returns whether a directory in this state holds nothing but the artifact `current`.
    pub(super) fn contains(&self, directory: &Path, identity: &FileIdentity, current: &str) -> bool {
        lock(&self.0)
            .get(directory)
            .is_some_and(|settled| settled.identity == *identity && *settled.current == *current)
    }

    /// Forgets a directory.
    pub(super) fn remove(&self, directory: &Path) {
        lock(&self.0).remove(directory);
    }
}
