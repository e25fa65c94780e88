//! Tests of the local directory on a real file system.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use sluice_api::digest::Digest;

use super::{ArtifactPath, Draft, FileState, LocalDirectory, ObjectDirectory, Storage, StorageError};
use crate::archive::{Algorithm, Hasher, MAX_INDEX_BYTES};

pub(super) mod crashes;
mod settled;

const MINUTE: Duration = Duration::from_mins(1);

struct Fixture {
    root: tempfile::TempDir,
    storage: LocalDirectory,
    directory: ObjectDirectory,
}

impl Fixture {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let storage = LocalDirectory::open(root.path(), "sc").unwrap();
        Self {
            root,
            storage,
            directory: ObjectDirectory::git_repository("ns", "n").unwrap(),
        }
    }

    /// Begins an artifact. A program that another test starts has the files of this process until its exec: it may hold the lock so long.
    fn create(&self, path: &ArtifactPath) -> Box<dyn Draft> {
        let deadline = Instant::now() + MINUTE;
        loop {
            match self.storage.create(path) {
                Err(StorageError::Locked(_)) if Instant::now() < deadline => thread::yield_now(),
                result => return result.unwrap(),
            }
        }
    }

    fn store(&self, commit: &str, content: &[u8]) -> (ArtifactPath, Digest) {
        let path = self.directory.artifact(commit).unwrap();
        let mut draft = self.create(&path);
        draft.write_all(content).unwrap();
        let digest = Hasher::of(Algorithm::Sha256, content).unwrap();
        draft.publish(&digest, None).unwrap();
        (path, digest)
    }

    fn absolute_path(&self, path: &ArtifactPath) -> PathBuf {
        self.root.path().join(path.relative())
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root.path().join(self.directory.relative())).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn a_published_file_is_private_and_complete() {
    let f = Fixture::new();
    let (path, digest) = f.store("aa", b"content");
    assert_eq!(fs::read(f.absolute_path(&path)).unwrap(), b"content");
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(f.absolute_path(&path)), 0o600);
    assert_eq!(mode(f.root.path().join(f.directory.relative())), 0o700);
    assert_eq!(f.names(), ["aa.tar.gz", "aa.tar.gz.lock"]);
    assert_eq!(
        f.storage.verify(&path, &digest.to_string()).unwrap(),
        FileState::Intact
    );
}

#[test]
fn a_dropped_draft_leaves_only_its_lock() {
    let f = Fixture::new();
    let path = f.directory.artifact("aa").unwrap();
    f.create(&path).write_all(b"half").unwrap();
    assert_eq!(f.names(), ["aa.tar.gz.lock"]);
}

#[test]
fn one_artifact_has_one_writer_at_a_time() {
    let f = Fixture::new();
    let path = f.directory.artifact("aa").unwrap();
    let draft = f.create(&path);
    assert!(matches!(f.storage.create(&path), Err(StorageError::Locked(_))));
    drop(draft);
    drop(f.create(&path));
}

#[test]
fn a_root_that_was_removed_is_created_again() {
    let f = Fixture::new();
    f.store("aa", b"content");
    fs::remove_dir_all(f.root.path()).unwrap();
    let (path, digest) = f.store("bb", b"later");
    assert_eq!(fs::read(f.absolute_path(&path)).unwrap(), b"later");
    assert_eq!(
        f.storage.verify(&path, &digest.to_string()).unwrap(),
        FileState::Intact
    );
}

#[test]
fn a_modified_file_is_damaged_and_removed() {
    let f = Fixture::new();
    let (path, digest) = f.store("aa", b"content");
    let before = fs::metadata(f.absolute_path(&path)).unwrap().modified().unwrap();
    fs::write(f.absolute_path(&path), b"CONTENT").unwrap();
    // Same size and modification time: still detected.
    File::options()
        .write(true)
        .open(f.absolute_path(&path))
        .unwrap()
        .set_modified(before)
        .unwrap();
    let verdict = f.storage.verify(&path, &digest.to_string()).unwrap();
    assert_eq!(
        verdict,
        FileState::Damaged(format!("computed digest doesn't match '{digest}'"))
    );
    assert_eq!(
        f.storage.verify(&path, &digest.to_string()).unwrap(),
        FileState::Missing
    );
}

#[test]
fn an_invalid_digest_counts_as_damage() {
    for digest in ["", "sha256:zz", "md5:00"] {
        let f = Fixture::new();
        let (path, _) = f.store("aa", b"content");
        assert!(
            matches!(f.storage.verify(&path, digest).unwrap(), FileState::Damaged(_)),
            "{digest}"
        );
    }
}

#[test]
fn only_a_regular_file_counts_as_existing() {
    let f = Fixture::new();
    let (path, digest) = f.store("aa", b"content");
    let elsewhere = f.root.path().join("elsewhere");
    fs::rename(f.absolute_path(&path), &elsewhere).unwrap();
    symlink(&elsewhere, f.absolute_path(&path)).unwrap();
    assert_eq!(
        f.storage.verify(&path, &digest.to_string()).unwrap(),
        FileState::Missing
    );
    fs::remove_file(f.absolute_path(&path)).unwrap();
    fs::create_dir(f.absolute_path(&path)).unwrap();
    assert_eq!(
        f.storage.verify(&path, &digest.to_string()).unwrap(),
        FileState::Missing
    );
}

#[test]
fn a_restart_reads_the_file_again() {
    let f = Fixture::new();
    let (path, digest) = f.store("aa", b"content");
    let restarted = LocalDirectory::open(f.root.path(), "sc").unwrap();
    let metadata = fs::metadata(f.absolute_path(&path)).unwrap();
    assert_eq!(restarted.cached_digest(&path.relative(), &metadata), None);
    assert_eq!(
        restarted.verify(&path, &digest.to_string()).unwrap(),
        FileState::Intact
    );
    assert_eq!(restarted.cached_digest(&path.relative(), &metadata), Some(digest));
}

#[test]
fn retention_starts_when_a_file_is_superseded() {
    let f = Fixture::new();
    let (old, _) = f.store("aa", b"old");
    let (current, _) = f.store("bb", b"new");
    // Created long ago, superseded now.
    let now = Timestamp::now();
    let long_ago = SystemTime::from(now) - Duration::from_hours(1);
    for path in [&old, &current] {
        File::open(f.absolute_path(path))
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
    }
    f.storage.supersede(&old, now).unwrap();
    let collect = |after: u64| {
        let later = now + Duration::from_secs(after);
        f.storage
            .collect(&f.directory, Some(&current), MINUTE, later)
            .unwrap()
    };
    assert_eq!(collect(59), 0);
    assert_eq!(collect(61), 1);
    assert_eq!(f.names(), ["bb.tar.gz", "bb.tar.gz.lock"]);
    assert_eq!(collect(1_000_000), 0, "the current file is kept");
}

#[test]
fn space_is_freed_by_count_oldest_first() {
    let f = Fixture::new();
    let now = SystemTime::now();
    let paths: Vec<_> = ["aa", "bb", "cc", "dd"]
        .iter()
        .zip(0..)
        .map(|(commit, age)| {
            let (path, _) = f.store(commit, b"x");
            let modified = now - Duration::from_secs(10 - age);
            File::open(f.absolute_path(&path))
                .unwrap()
                .set_modified(modified)
                .unwrap();
            path
        })
        .collect();
    let free_space = |keep| f.storage.free_space(&f.directory, Some(&paths[0]), keep).unwrap();
    assert_eq!(free_space(4), 0);
    assert_eq!(free_space(2), 2);
    assert_eq!(
        f.names(),
        ["aa.tar.gz", "aa.tar.gz.lock", "dd.tar.gz", "dd.tar.gz.lock"],
        "the current one and the newest of the others"
    );
    assert_eq!(free_space(0), 1);
    assert_eq!(
        f.names(),
        ["aa.tar.gz", "aa.tar.gz.lock"],
        "the current one always"
    );
}

#[test]
fn leftovers_of_a_crash_are_removed_after_the_retention_time() {
    let f = Fixture::new();
    let (current, _) = f.store("aa", b"x");
    let orphan = f.root.path().join(f.directory.relative()).join("bb.tar.gzQ1w2E3");
    fs::write(&orphan, b"half").unwrap();
    let later = Timestamp::now() + Duration::from_secs(61);
    assert_eq!(
        f.storage
            .collect(&f.directory, Some(&current), MINUTE, later)
            .unwrap(),
        1
    );
    assert!(!orphan.exists());
}

#[test]
fn nothing_is_collected_from_a_missing_directory() {
    let f = Fixture::new();
    assert_eq!(
        f.storage
            .collect(&f.directory, None, MINUTE, Timestamp::now())
            .unwrap(),
        0
    );
    let missing = f.directory.artifact("cc").unwrap();
    f.storage.supersede(&missing, Timestamp::now()).unwrap();
}

#[test]
fn the_directory_of_a_deleted_object_is_removed() {
    let f = Fixture::new();
    f.store("aa", b"x");
    assert!(f.storage.remove(&f.directory).unwrap());
    assert!(!f.root.path().join(f.directory.relative()).exists());
    assert!(!f.storage.remove(&f.directory).unwrap());
}

#[test]
fn the_root_must_be_a_directory() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, b"").unwrap();
    for path in [file, root.path().join("missing")] {
        assert!(matches!(
            LocalDirectory::open(path, "sc"),
            Err(StorageError::Root { .. })
        ));
    }
}

#[test]
fn an_index_stands_beside_its_artifact_and_goes_with_it() {
    let f = Fixture::new();
    let path = f.directory.artifact("aa").unwrap();
    let publish = |index: Option<&[u8]>| {
        let mut draft = f.create(&path);
        draft.write_all(b"content").unwrap();
        let digest = Hasher::of(Algorithm::Sha256, &b"content"[..]).unwrap();
        draft.publish(&digest, index).unwrap();
    };
    let stored = || f.storage.index(&path).unwrap();
    assert_eq!(stored(), None);
    publish(Some(b"one"));
    assert_eq!(stored().as_deref(), Some(&b"one"[..]));
    let names = ["aa.tar.gz", "aa.tar.gz.lock", "aa.tar.gz.segments"];
    assert_eq!(f.names(), names);
    publish(Some(b"two"));
    assert_eq!(stored().as_deref(), Some(&b"two"[..]));
    // An archive without an index leaves none of an earlier one.
    publish(None);
    assert_eq!(stored(), None);
    publish(Some(b"three"));
    let now = Timestamp::now();
    let collect = |current, later: u64| {
        let later = now + Duration::from_secs(later);
        f.storage.collect(&f.directory, current, MINUTE, later).unwrap()
    };
    assert_eq!(collect(Some(&path), 1_000_000), 0);
    assert_eq!(f.names(), names);
    f.storage.supersede(&path, now).unwrap();
    assert_eq!(collect(None, 61), 1);
    assert!(f.names().is_empty());
}

#[test]
fn an_index_without_an_artifact_is_removed_after_the_retention_time() {
    let f = Fixture::new();
    let (current, _) = f.store("aa", b"x");
    let orphan = f
        .root
        .path()
        .join(f.directory.relative())
        .join("bb.tar.gz.segments");
    fs::write(&orphan, b"index").unwrap();
    let now = Timestamp::now();
    for (later, exists) in [(50, true), (70, false)] {
        let later = now + Duration::from_secs(later);
        let removed = f
            .storage
            .collect(&f.directory, Some(&current), MINUTE, later)
            .unwrap();
        assert_eq!((removed, orphan.exists()), (0, exists));
    }
}

/// Its parser then says that it is too large.
#[test]
fn a_large_index_is_read_up_to_its_limit() {
    let f = Fixture::new();
    let (path, _) = f.store("aa", b"x");
    let index = f.absolute_path(&path).with_file_name("aa.tar.gz.segments");
    File::create(&index).unwrap().set_len(1 << 40).unwrap();
    let read = f.storage.index(&path).unwrap().unwrap();
    assert_eq!(read.len() as u64, MAX_INDEX_BYTES + 1);
    // A link may lead anywhere.
    fs::remove_file(&index).unwrap();
    symlink("/etc/passwd", &index).unwrap();
    assert!(f.storage.index(&path).is_err());
}
