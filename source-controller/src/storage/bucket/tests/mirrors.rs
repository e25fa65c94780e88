//! Recovery points of mirrors in the bucket, of repositories on a real Git server.

use std::io::Cursor;

use sluice_harness::git::{GitServer, Repository, Step};
use sluice_harness::sample::noise;
use tokio_util::sync::CancellationToken;

use super::server::Fault;
use super::*;
use crate::git::{
    Access, Address, Credentials, Limits, Mirrors, Owner, RecoveryStore, Reference, Remote, Transport, fetch,
    head,
};

const DAY: Duration = Duration::from_hours(24);

/// A controller with an empty disk.
struct Controller {
    mirrors: Mirrors,
    _disk: tempfile::TempDir,
    /// Its end stops the storage.
    _replica: Replica,
}

impl Controller {
    fn new(bucket: &Bucket) -> Self {
        let disk = tempfile::tempdir().unwrap();
        let mirrors = Mirrors::new(disk.path()).unwrap();
        let replica = Replica::new(bucket);
        mirrors.set_recovery_store(Arc::new(replica.storage.clone()));
        Self {
            mirrors,
            _disk: disk,
            _replica: replica,
        }
    }

    /// Fetches the head of `main`. Returns the number of its files.
    async fn fetch(&self, remote: &Remote) -> usize {
        let head = head(remote, &Reference::Branch("main".into())).await.unwrap();
        let (mirror, stop) = (self.mirrors.open(remote), CancellationToken::new());
        let fetched = tokio::time::timeout(LIMIT, fetch(&mirror, remote, &head, &stop));
        let checkout = fetched.await.unwrap().unwrap();
        checkout.directory(checkout.commit().tree).unwrap().len()
    }
}

/// Creates a repository of 50 files that compress badly.
fn repository() -> Repository {
    let repository = Repository::create().unwrap();
    for number in 0..50 {
        let name = format!("{number}.tf");
        repository.write(&name, noise(number, 8192)).unwrap();
    }
    repository.commit("first").unwrap();
    repository
}

fn remote(url: &str) -> Remote {
    let access = Access {
        address: Address::parse(url).unwrap(),
        credentials: Credentials::Anonymous,
        tls: Arc::default(),
        proxy: None,
        owner: Owner::default(),
    };
    Remote {
        transport: Transport::new().unwrap(),
        access: access.into(),
        timeout: 4 * MINUTE,
        limits: Limits::default(),
    }
}

/// Waits for the only recovery point. Returns its key.
async fn stored(bucket: &Bucket) -> Path {
    let prefix = bucket.mirror_key(None);
    let found = async {
        loop {
            let found = bucket.list_below(&prefix).await.unwrap();
            if let Some(found) = found.into_iter().next() {
                return found.location;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, found).await.unwrap()
}

/// Returns the content of an object.
async fn read(bucket: &Bucket, key: &Path) -> Vec<u8> {
    let (mut content, mut bytes) = (bucket.open(key).await.unwrap(), Vec::new());
    while let Some(piece) = bucket.next_piece(key, &mut content).await.unwrap() {
        bytes.extend_from_slice(&piece);
    }
    bytes
}

/// Returns whether the last fetch named a commit that the mirror had, and the size of its response.
fn last_fetch(server: &GitServer) -> (bool, u64) {
    let requests = server.requests();
    let last = requests.iter().rfind(|request| request.step == Step::Fetch);
    let last = last.unwrap();
    (last.body_text().contains("have "), last.response_bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_disk_fetches_only_the_difference_to_the_recovery_point() {
    let (server, git) = (S3Server::start().await, GitServer::start().await.unwrap());
    let repository = repository();
    let remote = remote(&git.serve("app", &repository));
    let first = Controller::new(&server.bucket());
    assert_eq!(first.fetch(&remote).await, 50);
    let (has_base, whole) = last_fetch(&git);
    assert!(!has_base);
    stored(&server.bucket()).await;
    // Nothing has changed.
    assert_eq!(Controller::new(&server.bucket()).fetch(&remote).await, 50);
    assert_eq!(git.count(Step::Fetch), 1);
    repository.commit_files(&[("main.tf", "# next")], "next").unwrap();
    assert_eq!(Controller::new(&server.bucket()).fetch(&remote).await, 51);
    assert_eq!(git.count(Step::Fetch), 2);
    let (has_base, difference) = last_fetch(&git);
    assert!(has_base);
    assert!(difference * 10 < whole, "{difference} of {whole} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_recovery_point_costs_a_fetch_of_everything() {
    let (git, repository) = (GitServer::start().await.unwrap(), repository());
    let remote = remote(&git.serve("app", &repository));
    let memory = || Bucket::new(Arc::new(InMemory::new()), "memory", "");
    let intact = memory();
    let first = Controller::new(&intact);
    first.fetch(&remote).await;
    let key = stored(&intact).await;
    let bytes = read(&intact, &key).await;
    let middle = bytes.len() / 2;
    let mut changed = bytes.clone();
    changed[middle] ^= 1;
    let mut another_commit = bytes.clone();
    let tip = bytes.windows(4).position(|text| text == b"tip ").unwrap() + 4;
    another_commit[tip..tip + 40].fill(b'0');
    let damaged = [
        bytes[..middle].to_vec(),
        changed,
        another_commit,
        [&bytes[..], b"more"].concat(),
        b"no recovery point".to_vec(),
        Vec::new(),
    ];
    for (index, content) in damaged.into_iter().enumerate() {
        let bucket = memory();
        bucket.put(&key, Cursor::new(content)).await.unwrap();
        let fetches = git.count(Step::Fetch);
        assert_eq!(Controller::new(&bucket).fetch(&remote).await, 50, "{index}");
        assert_eq!(git.count(Step::Fetch), fetches + 1, "{index}");
        assert!(!last_fetch(&git).0, "{index}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recovery_point_is_awaited_until_the_deadline() {
    let server = S3Server::start().await;
    server.fail("GET", "mirrors/", MANY, Fault::hang());
    let replica = Replica::new(&server.bucket());
    let deadline = Instant::now();
    let open = move |storage: &BucketStorage| RecoveryStore::open(storage, "name", deadline).is_err();
    assert!(replica.call(open).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn recovery_points_expire() {
    let replica = Replica::new(&Bucket::new(Arc::new(InMemory::new()), "memory", "p"));
    let (now, deadline) = (Timestamp::now(), Instant::now() + LIMIT);
    let pack = tempfile::tempfile().unwrap();
    let store = move |storage: &BucketStorage| {
        RecoveryStore::store(storage, "name", b"header".to_vec(), pack).unwrap();
    };
    replica.call(store).await;
    for (days, removed) in [(29, 0), (31, 1)] {
        let later = now + DAY * days;
        let remove = move |storage: &BucketStorage| storage.remove_expired(later).unwrap();
        assert_eq!(replica.call(remove).await, removed, "after {days} days");
    }
    let open = move |storage: &BucketStorage| {
        let opened = RecoveryStore::open(storage, "name", deadline);
        opened.unwrap().is_none()
    };
    assert!(replica.call(open).await);
}
