//! What is remembered about files whose digest was computed: as long as a file is the same file, unchanged, it need not be
//! read again. The first look after a start, and any look after a change, reads the whole file.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use sluice_api::digest::Digest;

/// What tells an unchanged file. The change time cannot be set by programs, so not even a restored modification time
/// hides a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Times of a file system are coarse: a file that changed this shortly before it was looked at may have changed again
/// within the same tick, and its digest is not relied upon.
const TICK: Duration = Duration::from_millis(100);

/// A digest that was computed.
#[derive(Clone, Debug)]
struct Noted {
    identity: Identity,
    digest: Digest,
    /// Whether the file had rested for a while, so that any later change shows in its times.
    settled: bool,
}

/// Digests that were computed, by path.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<HashMap<PathBuf, Noted>>);

impl Memory {
    /// Notes the digest of a file in the state that `metadata` describes.
    pub(super) fn note(&self, path: &Path, metadata: &Metadata, digest: Digest) {
        let identity = Identity::of(metadata);
        // The file system's times come from the system's clock, whatever clock the rest of the program is given.
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let changed = Duration::from_secs(identity.changed.0.unsigned_abs());
        let changed = changed + Duration::from_nanos(identity.changed.1.unsigned_abs());
        let settled = now.checked_sub(changed).is_some_and(|since| since > TICK);
        self.held().insert(
            path.to_owned(),
            Noted {
                identity,
                digest,
                settled,
            },
        );
    }

    /// The digest of the file, if it was computed in this state.
    pub(super) fn digest(&self, path: &Path, metadata: &Metadata) -> Option<Digest> {
        self.noted(path, metadata).map(|noted| noted.digest)
    }

    /// The same, if the file cannot have changed unnoticed since.
    pub(super) fn settled_digest(&self, path: &Path, metadata: &Metadata) -> Option<Digest> {
        self.noted(path, metadata)
            .filter(|noted| noted.settled)
            .map(|noted| noted.digest)
    }

    fn noted(&self, path: &Path, metadata: &Metadata) -> Option<Noted> {
        let held = self.held();
        held.get(path)
            .filter(|noted| noted.identity == Identity::of(metadata))
            .cloned()
    }

    /// Forgets the file, or everything below the directory.
    pub(super) fn forget(&self, path: &Path) {
        self.held().retain(|held, _| !held.starts_with(path));
    }

    fn held(&self) -> MutexGuard<'_, HashMap<PathBuf, Noted>> {
        // Each entry is valid by itself: a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
