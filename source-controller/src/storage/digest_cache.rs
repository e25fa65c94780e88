//! Caches the digests of files, so that an unchanged file is not read again. The first verification after a start or a
//! change reads the whole file.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::ops::Bound;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use sluice_api::digest::Digest;
use sluice_runtime::sync::lock;

/// Identifies an unchanged file. Programs cannot set the change time, so a restored modification time does not hide a
/// change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileIdentity {
    /// Returns the identity of a file or directory in its current state.
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns whether the file was unchanged for a tick, so that any later change alters its times.
    pub(super) fn is_stable(&self) -> bool {
        since(self.changed) > Some(TICK)
    }

    /// Returns whether the last write to the file is older than a tick of the clock, so that any later one alters its time.
    fn is_written_before_tick(&self) -> bool {
        since(self.modified) > Some(CLOCK_TICK)
    }
}

/// Returns how long ago a time of a file is. File times come from the system clock, regardless of the injected clock.
fn since((seconds, nanos): (i64, i64)) -> Option<Duration> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let time = Duration::from_secs(seconds.unsigned_abs()) + Duration::from_nanos(nanos.unsigned_abs());
    now.checked_sub(time)
}

/// Resolution of file times: a file changed this recently may change again within the same tick, so its digest is not
/// reused.
const TICK: Duration = Duration::from_millis(100);
/// Twice the longest tick of the clock of Linux (`CONFIG_HZ=100`).
const CLOCK_TICK: Duration = Duration::from_millis(20);

/// A computed digest.
#[derive(Clone, Debug)]
struct CachedDigest {
    identity: FileIdentity,
    digest: Digest,
    /// Whether the file was unchanged for a tick, so that any later change alters its times.
    is_stable: bool,
}

/// The cached digests by path. Paths are ordered by their bytes, which costs much less than by their components: entries below a
/// directory directly follow its path with a slash.
#[derive(Debug, Default)]
pub(super) struct DigestCache {
    entries: Mutex<BTreeMap<Box<OsStr>, CachedDigest>>,
    /// Number of insertions and removals so far.
    changes: AtomicU64,
}

impl DigestCache {
    /// Caches the digest of a file in the state described by `metadata`.
    pub(super) fn insert(&self, path: &Path, metadata: &Metadata, digest: Digest) {
        let identity = FileIdentity::of(metadata);
        self.insert_entry(path, identity, digest, identity.is_stable());
    }

    /// As [`DigestCache::insert`], for a file that this process has written, synced and renamed. The rename has changed it just now, so
    /// that only the time of its last write can tell a later one. For a large file the sync takes longer than a tick: it need not be read
    /// again.
    pub(super) fn insert_written(&self, path: &Path, metadata: &Metadata, digest: Digest) {
        let identity = FileIdentity::of(metadata);
        self.insert_entry(path, identity, digest, identity.is_written_before_tick());
    }

    fn insert_entry(&self, path: &Path, identity: FileIdentity, digest: Digest, is_stable: bool) {
        let cached = CachedDigest {
            identity,
            digest,
            is_stable,
        };
        self.lock().insert(path.as_os_str().into(), cached);
        self.record_change();
    }

    /// Returns the number of insertions and removals so far: while it stays the same, this process has stored no file and
    /// removed none.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn record_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Returns the digest of the file, if it is unchanged.
    pub(super) fn digest(&self, path: &Path, metadata: &Metadata) -> Option<Digest> {
        let entries = self.lock();
        entries
            .get(path.as_os_str())
            .filter(|entry| entry.identity == FileIdentity::of(metadata))
            .map(|entry| entry.digest.clone())
    }

    /// Returns whether the file was found with this digest before, and a change since cannot have gone unnoticed.
    pub(super) fn is_known(&self, path: &Path, metadata: &Metadata, digest: &str) -> bool {
        let identity = FileIdentity::of(metadata);
        self.lock().get(path.as_os_str()).is_some_and(|entry| {
            entry.is_stable && entry.identity == identity && entry.digest.is_written_as(digest)
        })
    }

    /// Removes a file, or everything below a directory.
    pub(super) fn remove(&self, path: &Path) {
        let mut directory = path.as_os_str().to_owned();
        directory.push("/");
        let mut entries = self.lock();
        entries.remove(path.as_os_str());
        let from = (Bound::Included(directory.as_os_str()), Bound::Unbounded);
        let removed: Vec<Box<OsStr>> = entries
            .range::<OsStr, _>(from)
            .map(|(entry, _)| entry)
            .take_while(|entry| entry.as_encoded_bytes().starts_with(directory.as_encoded_bytes()))
            .cloned()
            .collect();
        for entry in removed {
            entries.remove(&entry);
        }
        drop(entries);
        self.record_change();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<OsStr>, CachedDigest>> {
        // Each entry is valid by itself, so a poisoned lock can be used.
        lock(&self.entries)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tokio::time::Instant;

    use super::*;

    fn digest() -> Digest {
        format!("sha256:{}", "0".repeat(64)).parse().unwrap()
    }

    fn metadata() -> Metadata {
        tempfile::tempfile().unwrap().metadata().unwrap()
    }

    #[test]
    fn a_written_file_is_known_if_its_last_write_is_older_than_a_tick() {
        let (cache, path) = (DigestCache::default(), Path::new("/s/ns/a/1"));
        let file = tempfile::tempfile().unwrap();
        let is_known = |modified: SystemTime| {
            file.set_modified(modified).unwrap();
            let metadata = file.metadata().unwrap();
            cache.insert_written(path, &metadata, digest());
            cache.is_known(path, &metadata, &digest().to_string())
        };
        let hour = Duration::from_hours(1);
        assert!(is_known(SystemTime::now() - hour));
        assert!(!is_known(SystemTime::now() + hour));
    }

    #[test]
    fn a_file_is_known_with_one_digest_in_one_state() {
        let (cache, path) = (DigestCache::default(), Path::new("/s/ns/a/1"));
        let file = tempfile::tempfile().unwrap();
        file.set_modified(SystemTime::now() - Duration::from_hours(1))
            .unwrap();
        let (before, text) = (file.metadata().unwrap(), digest().to_string());
        assert!(!cache.is_known(path, &before, &text));
        cache.insert_written(path, &before, digest());
        assert!(cache.is_known(path, &before, &text));
        assert!(!cache.is_known(path, &before, &text.replace('0', "1")));
        assert!(!cache.is_known(Path::new("/s/ns/a/2"), &before, &text));
        file.set_len(7).unwrap();
        assert!(!cache.is_known(path, &file.metadata().unwrap(), &text));
    }

    #[test]
    fn removing_a_directory_removes_exactly_the_entries_below_it() {
        let (cache, metadata) = (DigestCache::default(), metadata());
        let kept = [
            "/s/ns/a-b/1",
            "/s/ns/a.b/1",
            "/s/ns/a1",
            "/s/ns/ab/1",
            "/s/ns/A/1",
            "/s/ns",
        ];
        let removed = ["/s/ns/a", "/s/ns/a/1", "/s/ns/a/2", "/s/ns/a/b/c"];
        for path in kept.iter().chain(&removed) {
            cache.insert(Path::new(path), &metadata, digest());
        }
        cache.remove(Path::new("/s/ns/a"));
        for path in kept {
            assert!(cache.digest(Path::new(path), &metadata).is_some(), "{path}");
        }
        for path in removed {
            assert!(cache.digest(Path::new(path), &metadata).is_none(), "{path}");
        }
    }

    /// Replacing the artifacts of many objects would take minutes if each removal scanned all paths.
    #[test]
    fn removing_one_file_does_not_scan_all_others() {
        const FILES: usize = 20_000;
        let (cache, metadata) = (DigestCache::default(), metadata());
        let path =
            |n: usize| PathBuf::from(format!("/data/gitrepository/ns-{}/name-{n}/{n}.tar.gz", n % 100));
        for n in 0..FILES {
            cache.insert(&path(n), &metadata, digest());
        }
        let begun = Instant::now();
        for n in 0..FILES {
            cache.remove(&path(n));
        }
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        assert!(cache.lock().is_empty());
    }
}
