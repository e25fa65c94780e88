//! Tests of artifacts that are built from the previous one of their object, and of passes that build none.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use sluice_api::source::Artifact;

use super::environment::{LIMIT, TestEnvironment};
use crate::archive::StoredFile;
use crate::reconcile::Context;
use crate::storage::{
    ArtifactPath, Draft, FileState, LocalDirectory, ObjectDirectory, Storage, StorageError,
};

/// A storage that counts the artifacts from which segments may be copied, and the reads of directories and files.
struct CountingStorage {
    inner: LocalDirectory,
    opened: AtomicU64,
    reads: AtomicU64,
}

impl CountingStorage {
    fn new(env: &TestEnvironment) -> Arc<Self> {
        Arc::new(Self {
            inner: LocalDirectory::open(env.storage.path(), "sc").unwrap(),
            opened: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        })
    }

    fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }
}

impl Storage for CountingStorage {
    fn create(&self, path: &ArtifactPath) -> Result<Box<dyn Draft>, StorageError> {
        self.inner.create(path)
    }

    fn verify(&self, path: &ArtifactPath, digest: &str) -> Result<FileState, StorageError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.verify(path, digest)
    }

    fn is_unchanged(&self, path: &ArtifactPath, digest: &str) -> bool {
        self.inner.is_unchanged(path, digest)
    }

    fn open(&self, path: &ArtifactPath) -> Result<Box<dyn StoredFile>, StorageError> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.inner.open(path)
    }

    fn index(&self, path: &ArtifactPath) -> Result<Option<Vec<u8>>, StorageError> {
        self.inner.index(path)
    }

    fn supersede(&self, path: &ArtifactPath, now: Timestamp) -> Result<(), StorageError> {
        self.inner.supersede(path, now)
    }

    fn collect(
        &self,
        directory: &ObjectDirectory,
        current: Option<&ArtifactPath>,
        retention: Duration,
        now: Timestamp,
    ) -> Result<u64, StorageError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.collect(directory, current, retention, now)
    }

    fn free_space(
        &self,
        directory: &ObjectDirectory,
        current: Option<&ArtifactPath>,
        keep: usize,
    ) -> Result<u64, StorageError> {
        self.inner.free_space(directory, current, keep)
    }

    fn remove(&self, directory: &ObjectDirectory) -> Result<bool, StorageError> {
        self.inner.remove(directory)
    }

    fn directories(&self) -> Result<Vec<ObjectDirectory>, StorageError> {
        self.inner.directories()
    }

    fn url(&self, path: &ArtifactPath) -> String {
        self.inner.url(path)
    }
}

/// Returns text of 50 KB that compresses to about half its size.
fn text(seed: u64) -> String {
    let mut state = 2 * seed + 1;
    let digit = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' | (state.to_be_bytes()[0] & 0x0f))
    };
    std::iter::repeat_with(digit).take(50_000).collect()
}

/// Commits files of 3 MB together.
fn commit_many(env: &mut TestEnvironment) {
    let files: Vec<_> = (0..60)
        .map(|number| (format!("d{}/f{number:02}", number / 10), text(number)))
        .collect();
    let files: Vec<_> = files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    env.commit("large", &files);
}

async fn reconcile(env: &TestEnvironment, storage: &Arc<CountingStorage>) -> Artifact {
    let storage: Arc<dyn Storage> = storage.clone();
    let context = Context {
        storage,
        ..env.context()
    };
    Box::pin(env.reconcile_in(context, "app")).await;
    env.artifact("app").await
}

/// Returns the digest of the artifact of an object that has no earlier one.
async fn digest_from_scratch(env: &TestEnvironment, name: &str) -> String {
    env.create(name, json!({})).await;
    env.reconcile(name).await;
    env.artifact(name).await.digest
}

fn index_of(env: &TestEnvironment, artifact: &Artifact) -> PathBuf {
    let mut index = env.file(artifact).into_os_string();
    index.push(".segments");
    index.into()
}

#[tokio::test]
async fn a_change_is_built_from_the_previous_artifact_and_equals_one_from_scratch() {
    let mut env = TestEnvironment::new().await;
    commit_many(&mut env);
    let storage = CountingStorage::new(&env);
    env.create("app", json!({})).await;
    let first = reconcile(&env, &storage).await;
    assert!(index_of(&env, &first).exists());
    assert_eq!(storage.opened(), 0);
    env.commit("second", &[("d3/f33", "changed\n")]);
    let second = reconcile(&env, &storage).await;
    assert_eq!(storage.opened(), 1);
    assert_ne!(second.digest, first.digest);
    assert_eq!(second.digest, digest_from_scratch(&env, "two").await);
    // Other ignore rules for the same commit: the file is replaced while it is read.
    env.edit("app", json!({ "spec": { "ignore": "d1/\n" } })).await;
    let ignoring = reconcile(&env, &storage).await;
    assert_eq!((storage.opened(), &ignoring.path), (2, &second.path));
    env.edit("app", json!({ "spec": { "ignore": null } })).await;
    let restored = reconcile(&env, &storage).await;
    assert_eq!((storage.opened(), &restored.digest), (3, &second.digest));
    // The first artifact goes with its index.
    env.clock.advance(Duration::from_secs(61));
    reconcile(&env, &storage).await;
    assert!(!env.file(&first).exists() && !index_of(&env, &first).exists());
    assert!(index_of(&env, &restored).exists());
}

/// A pass without a change looks at the times of the artifact and its directory, and at nothing else on disk.
#[tokio::test]
async fn a_pass_without_a_change_reads_no_file_and_no_directory() {
    let env = TestEnvironment::new().await;
    let storage = CountingStorage::new(&env);
    env.create("app", json!({})).await;
    let artifact = reconcile(&env, &storage).await;
    // Files that have just changed are read again.
    let settling = async {
        loop {
            let before = storage.reads();
            reconcile(&env, &storage).await;
            if storage.reads() == before {
                return;
            }
        }
    };
    tokio::time::timeout(LIMIT, settling)
        .await
        .expect("settled in time");
    let before = storage.reads();
    let leftover = env.file(&artifact).with_file_name("leftover");
    std::fs::write(&leftover, "x").unwrap();
    reconcile(&env, &storage).await;
    assert_eq!(storage.reads(), before + 2);
    env.clock.advance(Duration::from_hours(1));
    reconcile(&env, &storage).await;
    assert!(!leftover.exists());
}

#[tokio::test]
async fn a_damaged_or_foreign_index_is_not_used() {
    let mut env = TestEnvironment::new().await;
    commit_many(&mut env);
    let storage = CountingStorage::new(&env);
    env.create("app", json!({})).await;
    let mut before = reconcile(&env, &storage).await;
    let foreign = std::fs::read(index_of(&env, &before)).unwrap();
    let damaged = [&foreign[..100], b"damage"].concat();
    for (number, (name, index)) in (0..).zip([("one", damaged), ("two", foreign), ("three", Vec::new())]) {
        if number > 0 {
            assert_ne!(std::fs::read(index_of(&env, &before)).unwrap(), index, "{name}");
        }
        std::fs::write(index_of(&env, &before), index).unwrap();
        env.commit(name, &[("d3/f33", name)]);
        before = reconcile(&env, &storage).await;
        assert_eq!(storage.opened(), 0, "{name}");
        assert_eq!(before.digest, digest_from_scratch(&env, name).await, "{name}");
    }
}
