//! Tests of artifacts in a bucket: several replicas with disks of their own, on a real server of S3; `services` has the other services.

mod azure;
mod bucket_server;
mod faults;
mod gcs;
mod limits;
mod mirrors;
mod repair;
mod rollout;
mod server;
mod services;

use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use jiff::Timestamp;
use object_store::memory::InMemory;
use server::S3Server;
use sluice_api::digest::Digest;

use super::*;
use crate::archive::{Algorithm, Hasher};
use crate::options::{BucketOptions, StorageBackend};
use crate::storage::{FileState, ObjectDirectory, Storage};

const LIMIT: Duration = Duration::from_secs(30);
const MINUTE: Duration = Duration::from_mins(1);
/// More than a request is tried.
const MANY: usize = 100;
/// The bucket of every server.
const BUCKET: &str = "artifacts";

/// A process with a disk of its own.
struct Replica {
    // Before the disk, because fields are dropped in this order.
    _downloads: RunningDownloads,
    disk: tempfile::TempDir,
    storage: BucketStorage,
}

/// The downloads of a replica. The drop stops them and waits for them: one that no caller waits for any more would create the removed disk
/// again.
struct RunningDownloads {
    stop: Token,
    permits: Arc<Semaphore>,
}

impl RunningDownloads {
    fn of(storage: &BucketStorage) -> Self {
        Self {
            stop: storage.0.stop.clone(),
            permits: Arc::clone(&storage.0.downloads),
        }
    }
}

impl Drop for RunningDownloads {
    fn drop(&mut self) {
        self.stop.cancel();
        let deadline = std::time::Instant::now() + LIMIT;
        while self.permits.available_permits() < MAX_DOWNLOADS && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
    }
}

fn directory() -> ObjectDirectory {
    ObjectDirectory::git_repository("ns", "n").unwrap()
}

fn path(commit: &str) -> ArtifactPath {
    directory().artifact(commit).unwrap()
}

fn digest(content: &[u8]) -> Digest {
    Hasher::of(Algorithm::Sha256, content).unwrap()
}

/// Returns the flags for the bucket of a server at this URL.
fn options(storage_backend: StorageBackend, endpoint: String) -> BucketOptions {
    BucketOptions {
        storage_backend,
        storage_bucket: BUCKET.to_owned(),
        storage_bucket_endpoint: endpoint,
        storage_bucket_region: "us-east-1".to_owned(),
        storage_bucket_prefix: String::new(),
        storage_cache_max_bytes: 0,
        open_bucket: None,
    }
}

fn problem(error: &StorageError) -> &Problem {
    match error {
        StorageError::Bucket(error) => error.problem(),
        other => panic!("not of the bucket: {other}"),
    }
}

impl Replica {
    fn new(bucket: &Bucket) -> Self {
        Self::with_limit(bucket, 0)
    }

    /// With a cache of at most so many bytes.
    fn with_limit(bucket: &Bucket, bytes: u64) -> Self {
        Self::on(tempfile::tempdir().unwrap(), bucket, bytes)
    }

    fn on(disk: tempfile::TempDir, bucket: &Bucket, bytes: u64) -> Self {
        let local = LocalDirectory::open(disk.path(), "sc").unwrap();
        let (bucket, runtime) = (bucket.clone(), Handle::current());
        let storage = BucketStorage::open(local, bucket, bytes, runtime, Token::new()).unwrap();
        Self {
            _downloads: RunningDownloads::of(&storage),
            disk,
            storage,
        }
    }

    /// Calls the storage on a thread, as reconciliations do it.
    async fn call<T: Send + 'static>(&self, work: impl FnOnce(&BucketStorage) -> T + Send + 'static) -> T {
        let storage = self.storage.clone();
        let called = tokio::task::spawn_blocking(move || work(&storage));
        tokio::time::timeout(LIMIT, called).await.unwrap().unwrap()
    }

    /// Publishes an artifact with an index.
    async fn publish(&self, commit: &str, content: &[u8]) -> Result<Digest, StorageError> {
        let (path, content) = (path(commit), content.to_vec());
        self.call(move |storage| {
            let mut draft = storage.create(&path)?;
            draft.write_all(&content).unwrap();
            let digest = digest(&content);
            draft.publish(&digest, Some(b"index")).map(|()| digest)
        })
        .await
    }

    async fn verify(&self, commit: &str, digest: &Digest) -> Result<FileState, StorageError> {
        let (path, digest) = (path(commit), digest.to_string());
        self.call(move |storage| storage.verify(&path, &digest)).await
    }

    /// Provides a file as the server does it: from its copy, or else from the bucket.
    async fn provide(&self, commit: &str) -> Result<bool, StorageError> {
        let path = path(commit);
        let provided = async {
            match self.storage.copy(&path).await {
                Some(_) => Ok(true),
                None => self.storage.provide(&path).await.map(|file| file.is_some()),
            }
        };
        tokio::time::timeout(LIMIT, provided).await.unwrap()
    }

    /// Forgets the answers of the bucket, as after their time.
    fn expire(&self) {
        let shared = &self.storage.0;
        shared.pointers.clear();
        shared.absent.clear();
        shared.failed.clear();
    }

    /// Returns what the threads share, to change it before they run.
    fn shared(&mut self) -> &mut Shared {
        Arc::get_mut(&mut self.storage.0).unwrap()
    }

    fn file(&self, commit: &str) -> PathBuf {
        self.disk.path().join(path(commit).relative())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_replica_serves_what_the_leader_has_published() {
    let server = S3Server::start().await;
    let (leader, follower) = (Replica::new(&server.bucket()), Replica::new(&server.bucket()));
    assert!(!follower.provide("aa").await.unwrap());
    leader.publish("aa", b"content").await.unwrap();
    follower.expire();
    let text = "aa.tar.gz.sha256-";
    let downloads = || server.count("GET", text);
    let (one, other) = tokio::join!(follower.provide("aa"), follower.provide("aa"));
    assert!(one.unwrap() && other.unwrap());
    assert_eq!(std::fs::read(follower.file("aa")).unwrap(), b"content");
    assert_eq!(downloads(), 1, "one download for all");
    assert!(leader.provide("aa").await.unwrap());
    assert_eq!(downloads(), 1, "the leader has the file");
    assert_eq!(server.count("GET", "list-type"), 0, "nothing is listed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_on_an_empty_disk_finds_everything_in_the_bucket() {
    let server = S3Server::start().await;
    let digest = Replica::new(&server.bucket())
        .publish("aa", b"content")
        .await
        .unwrap();
    let next = Replica::new(&server.bucket());
    assert_eq!(next.verify("aa", &digest).await.unwrap(), FileState::Intact);
    assert!(!next.file("aa").exists(), "nothing is downloaded for that");
    let requests = server.count("", "");
    assert_eq!(next.verify("aa", &digest).await.unwrap(), FileState::Intact);
    assert_eq!(server.count("", ""), requests, "it looks once");
    let index = next.call(|storage| storage.index(&path("aa")).unwrap()).await;
    assert_eq!(index.as_deref(), Some(&b"index"[..]));
    let read = next.call(|storage| {
        let mut content = Vec::new();
        storage
            .open(&path("aa"))
            .unwrap()
            .read_to_end(&mut content)
            .unwrap();
        content
    });
    assert_eq!(read.await, b"content");
    let wrong = next.verify("aa", &super::tests::digest(b"other")).await.unwrap();
    assert!(matches!(wrong, FileState::Damaged(_)), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_files_are_uploaded_in_parts() {
    let server = S3Server::start().await;
    let leader = Replica::new(&server.bucket());
    let content = vec![7_u8; 17 << 20];
    leader.publish("aa", &content).await.unwrap();
    assert_eq!(server.count("PUT", "partNumber="), 3);
    let follower = Replica::new(&server.bucket());
    assert!(follower.provide("aa").await.unwrap());
    assert!(std::fs::read(follower.file("aa")).unwrap() == content);
    // The same content again is not uploaded.
    let puts = server.count("PUT", "");
    Replica::new(&server.bucket())
        .publish("aa", &content)
        .await
        .unwrap();
    assert_eq!(server.count("PUT", "partNumber="), 3);
    assert_eq!(server.count("PUT", ""), puts + 1, "only its index");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_that_only_the_disk_has_is_uploaded() {
    let bucket = Bucket::new(Arc::new(InMemory::new()), "memory", "");
    let disk = tempfile::tempdir().unwrap();
    let local = LocalDirectory::open(disk.path(), "sc").unwrap();
    let mut draft = local.create(&path("aa")).unwrap();
    draft.write_all(b"content").unwrap();
    let digest = digest(b"content");
    draft.publish(&digest, None).unwrap();
    let leader = Replica::on(disk, &bucket, 0);
    assert_eq!(leader.verify("aa", &digest).await.unwrap(), FileState::Intact);
    assert!(Replica::new(&bucket).provide("aa").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_is_bounded() {
    let bucket = Bucket::new(Arc::new(InMemory::new()), "memory", "");
    let leader = Replica::new(&bucket);
    for (commit, content) in [("aa", b"aaaa"), ("bb", b"bbbb"), ("cc", b"cccc")] {
        leader.publish(commit, content).await.unwrap();
    }
    let follower = Replica::with_limit(&bucket, 8);
    for commit in ["aa", "bb", "aa", "cc"] {
        assert!(follower.provide(commit).await.unwrap());
    }
    let files = |replica: &Replica| ["aa", "bb", "cc"].map(|commit| replica.file(commit).exists());
    assert_eq!(files(&follower), [true, false, true]);
    // A restart counts what is there, and removes what is too much.
    let restarted = Replica::on(follower.disk, &bucket, 4);
    assert_eq!(files(&restarted).into_iter().filter(|exists| *exists).count(), 1);
    assert!(restarted.provide("bb").await.unwrap());
    assert_eq!(files(&restarted), [false, true, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn superseded_artifacts_leave_the_bucket_after_their_time() {
    let server = S3Server::start().await;
    let leader = Replica::new(&server.bucket());
    let now = Timestamp::now();
    leader.publish("aa", b"old").await.unwrap();
    leader
        .call(move |storage| storage.supersede(&path("aa"), now).unwrap())
        .await;
    leader.publish("bb", b"new").await.unwrap();
    let collect = |replica: &Replica, after: u64| {
        let later = now + Duration::from_secs(after);
        let storage = replica.storage.clone();
        tokio::task::spawn_blocking(move || {
            storage
                .collect(&directory(), Some(&path("bb")), MINUTE, later)
                .unwrap()
        })
    };
    let stored = || Replica::new(&server.bucket());
    assert_eq!(collect(&leader, 59).await.unwrap(), 0);
    assert!(stored().provide("aa").await.unwrap());
    assert!(leader.storage.0.pointers.get(&path("aa")).is_some());
    assert_eq!(collect(&leader, 61).await.unwrap(), 1);
    assert!(leader.storage.0.pointers.get(&path("aa")).is_none());
    assert!(!stored().provide("aa").await.unwrap());
    assert!(stored().provide("bb").await.unwrap());
    assert_eq!(server.count("GET", "list-type"), 0, "nothing is listed for that");
    // What a leader before has left is found by the listing.
    leader.publish("cc", b"left").await.unwrap();
    let next = stored();
    let found = next.call(|storage| storage.directories().unwrap()).await;
    assert_eq!(found, [directory()]);
    assert_eq!(collect(&next, 3600).await.unwrap(), 1);
    assert!(!stored().provide("cc").await.unwrap());
    assert!(stored().provide("bb").await.unwrap());
    // A deleted object leaves nothing.
    assert!(next.call(|storage| storage.remove(&directory()).unwrap()).await);
    assert!(
        next.call(|storage| storage.directories().unwrap())
            .await
            .is_empty()
    );
}
