//! What is remembered about files whose digest was computed: as long as a file is the same file, unchanged, it need not be
//! read again. The first look after a start, and any look after a change, reads the whole file.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::ops::Bound;
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

/// Digests that were computed, by path. Paths are in order of their components: those below a directory stand together
/// behind it.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<BTreeMap<PathBuf, Noted>>);

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
        let mut held = self.held();
        let from = (Bound::Included(path), Bound::Unbounded);
        let below = held.range::<Path, _>(from).map(|(path, _)| path);
        let gone: Vec<PathBuf> = below.take_while(|held| held.starts_with(path)).cloned().collect();
        for path in gone {
            held.remove(&path);
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Noted>> {
        // Each entry is valid by itself: a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn digest() -> Digest {
        format!("sha256:{}", "0".repeat(64)).parse().unwrap()
    }

    fn metadata() -> Metadata {
        tempfile::tempfile().unwrap().metadata().unwrap()
    }

    #[test]
    fn a_directory_is_forgotten_with_everything_below_it_and_nothing_beside_it() {
        let (memory, metadata) = (Memory::default(), metadata());
        let kept = [
            "/s/ns/a-b/1",
            "/s/ns/a.b/1",
            "/s/ns/a1",
            "/s/ns/ab/1",
            "/s/ns/A/1",
            "/s/ns",
        ];
        let gone = ["/s/ns/a", "/s/ns/a/1", "/s/ns/a/2", "/s/ns/a/b/c"];
        for path in kept.iter().chain(&gone) {
            memory.note(Path::new(path), &metadata, digest());
        }
        memory.forget(Path::new("/s/ns/a"));
        for path in kept {
            assert!(memory.digest(Path::new(path), &metadata).is_some(), "{path}");
        }
        for path in gone {
            assert!(memory.digest(Path::new(path), &metadata).is_none(), "{path}");
        }
    }

    /// A fleet replaces its artifacts: with a look at every path for each of them this takes minutes.
    #[test]
    fn forgetting_one_file_does_not_look_at_all_others() {
        const FILES: usize = 20_000;
        let (memory, metadata) = (Memory::default(), metadata());
        let path =
            |n: usize| PathBuf::from(format!("/data/gitrepository/ns-{}/name-{n}/{n}.tar.gz", n % 100));
        for n in 0..FILES {
            memory.note(&path(n), &metadata, digest());
        }
        let begun = Instant::now();
        for n in 0..FILES {
            memory.forget(&path(n));
        }
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        assert!(memory.held().is_empty());
    }
}
