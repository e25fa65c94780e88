//! Tests of what is known of a directory without reading it.

use super::super::digest_cache::FileIdentity;
use super::*;

impl Fixture {
    /// Collects and verifies until nothing but the times of the artifact is looked at: files that have just changed are read again.
    fn settle(&mut self, path: &ArtifactPath, digest: &Digest) {
        self.storage.is_local_disk = true;
        let (deadline, digest) = (Instant::now() + MINUTE, digest.to_string());
        while !self.storage.is_unchanged(path, &digest) {
            assert!(Instant::now() < deadline, "{:?}", self.names());
            let collected = self
                .storage
                .collect(&self.directory, Some(path), MINUTE, Timestamp::now());
            assert_eq!(collected.unwrap(), 0);
            assert_eq!(self.storage.verify(path, &digest).unwrap(), FileState::Intact);
            thread::yield_now();
        }
    }

    fn is_unchanged(&self, path: &ArtifactPath, digest: &Digest) -> bool {
        self.storage.is_unchanged(path, &digest.to_string())
    }
}

#[test]
fn a_directory_is_read_again_after_every_change() {
    let mut f = Fixture::new();
    let (path, digest) = f.store("aa", b"content");
    f.settle(&path, &digest);
    let other = Hasher::of(Algorithm::Sha256, &b"other"[..]).unwrap();
    assert!(!f.is_unchanged(&path, &other));
    assert!(!f.is_unchanged(&f.directory.artifact("bb").unwrap(), &digest));
    let file = f.absolute_path(&path);
    let changes: [&dyn Fn(); 4] = [
        &|| fs::write(file.with_file_name("leftover"), b"x").unwrap(),
        &|| fs::remove_file(file.with_file_name("leftover")).unwrap(),
        &|| fs::write(&file, b"content").unwrap(),
        &|| {
            File::open(&file)
                .unwrap()
                .set_modified(SystemTime::now())
                .unwrap();
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        change();
        assert!(!f.is_unchanged(&path, &digest), "{number}");
        if number > 0 {
            f.settle(&path, &digest);
        }
    }
    f.storage.is_local_disk = false;
    assert!(!f.is_unchanged(&path, &digest), "a server may not answer");
    f.storage.is_local_disk = true;
    assert!(f.is_unchanged(&path, &digest));
    fs::remove_file(&file).unwrap();
    assert!(!f.is_unchanged(&path, &digest));
}

#[test]
fn a_directory_with_something_to_collect_is_always_read() {
    let mut f = Fixture::new();
    let (old, _) = f.store("aa", b"old");
    let (current, digest) = f.store("bb", b"new");
    let now = Timestamp::now();
    f.storage.supersede(&old, now).unwrap();
    let collect = |f: &Fixture, after: u64| {
        let later = now + Duration::from_secs(after);
        f.storage
            .collect(&f.directory, Some(&current), MINUTE, later)
            .unwrap()
    };
    let directory = f.root.path().join(f.directory.relative());
    let deadline = Instant::now() + MINUTE;
    while !FileIdentity::of(&fs::symlink_metadata(&directory).unwrap()).is_stable() {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
    assert_eq!(collect(&f, 1), 0);
    assert_eq!(collect(&f, 61), 1, "the first list does not count as the last");
    f.settle(&current, &digest);
}

/// A sync may take as long as everything else of a small artifact.
#[test]
fn the_name_of_a_namespace_is_synced_once() {
    let f = Fixture::new();
    let root = f.root.path();
    let [kind, namespace] = ["gitrepository", "gitrepository/ns"].map(|name| root.join(name));
    let directory = |name: &str| namespace.join(name);
    let all = [namespace.clone(), kind, root.to_owned()];
    assert_eq!(f.storage.unsynced(&directory("n")), all);
    f.store("aa", b"x");
    assert_eq!(f.storage.unsynced(&directory("other")), all[..1]);
    // A new process does not know whether the names are durable, nor does one that has removed them.
    let restarted = LocalDirectory::open(root, "sc").unwrap();
    assert_eq!(restarted.unsynced(&directory("other")), all);
    fs::remove_dir_all(&namespace).unwrap();
    assert_eq!(f.storage.unsynced(&directory("n")), all[..2]);
}
