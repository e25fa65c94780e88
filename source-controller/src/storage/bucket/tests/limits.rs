//! What a bucket that hangs, and the end of the program, hold up.

use std::net::SocketAddr;

use object_store::chunked::ChunkedStore;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::server::Fault;
use super::*;
use crate::server::{Admission, serve};

/// A client may have this many downloads at once; see `server`.
const SHARE: usize = 128;

/// Serves the files of a replica until the token is cancelled. Returns the address.
pub(super) async fn start(replica: &Replica, stop: &Token) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let storage = replica.storage.clone();
    let local = storage.0.local.clone();
    tokio::spawn(serve(
        listener,
        local,
        Some(storage),
        Admission::default(),
        stop.clone(),
    ));
    address
}

/// Sends a request for an artifact.
pub(super) async fn request(address: SocketAddr, commit: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let path = path(commit);
    let request = format!("GET /{path} HTTP/1.1\r\nhost: sc\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Reads a response: its head in lower case, and the body.
async fn response(mut stream: TcpStream) -> (String, Vec<u8>) {
    let mut response = Vec::new();
    let read = stream.read_to_end(&mut response);
    tokio::time::timeout(LIMIT, read).await.unwrap().unwrap();
    let end = response
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8(response[..end].to_vec()).unwrap();
    (head.to_lowercase(), response[end + 4..].to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_waits_for_a_limited_time() {
    let server = S3Server::start().await;
    let leader = Replica::new(&server.bucket());
    leader.publish("aa", b"content").await.unwrap();
    let mut follower = Replica::new(&server.bucket());
    follower.shared().request_limit = Duration::from_millis(100);
    server.fail("GET", "aa.tar.gz.sha256-", MANY, Fault::hang());
    let error = follower.provide("aa").await.unwrap_err();
    assert_eq!(problem(&error), &Problem::TimedOut);
    let stop = Token::new();
    let address = start(&follower, &stop).await;
    let (head, _) = response(request(address, "aa").await).await;
    assert!(
        head.starts_with("http/1.1 503 ") && head.contains("\r\nretry-after: 5"),
        "{head}"
    );
    follower.storage.0.stop.cancel();
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_files_are_served_while_others_wait_for_a_bucket_that_hangs() {
    let server = S3Server::start().await;
    let (leader, follower) = (Replica::new(&server.bucket()), Replica::new(&server.bucket()));
    // It is not served from memory, which needs no slot of a download.
    let content = vec![7_u8; 100_000];
    leader.publish("aa", &content).await.unwrap();
    leader.publish("bb", b"content").await.unwrap();
    assert!(follower.provide("aa").await.unwrap());
    server.fail("GET", "bb.tar.gz.sha256-", MANY, Fault::hang());
    let stop = Token::new();
    let address = start(&follower, &stop).await;
    let mut waiting = Vec::new();
    for _ in 0..SHARE + 20 {
        waiting.push(request(address, "bb").await);
    }
    server.received("GET", "bb.tar.gz.sha256-").await;
    let (head, body) = response(request(address, "aa").await).await;
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    assert!(body == content);
    follower.storage.0.stop.cancel();
    stop.cancel();
    drop(waiting);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_stops_begins_no_download() {
    let bucket = Bucket::new(Arc::new(InMemory::new()), "memory", "");
    let (leader, follower) = (Replica::new(&bucket), Replica::new(&bucket));
    leader.publish("aa", b"content").await.unwrap();
    follower.storage.0.stop.cancel();
    let error = follower.provide("aa").await.unwrap_err();
    assert_eq!(problem(&error), &Problem::Stopped);
    let written = std::fs::read_dir(follower.disk.path()).unwrap().count();
    assert_eq!(written, 0, "its disk stays as it is");
}

/// The path has another content now. Its download needs a slot, which the caller of `copy` does not have.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_the_pointer_does_not_name_is_no_copy() {
    let server = S3Server::start().await;
    let (leader, follower) = (Replica::new(&server.bucket()), Replica::new(&server.bucket()));
    leader.publish("aa", b"content").await.unwrap();
    assert!(follower.provide("aa").await.unwrap());
    leader.publish("aa", b"another").await.unwrap();
    follower.expire();
    let downloads = server.count("GET", "aa.tar.gz.sha256-");
    assert!(follower.storage.copy(&path("aa")).await.is_none());
    assert_eq!(server.count("GET", "aa.tar.gz.sha256-"), downloads);
    assert!(follower.provide("aa").await.unwrap());
    assert_eq!(std::fs::read(follower.file("aa")).unwrap(), b"another");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bucket_is_asked_once_for_a_missing_file_until_it_is_published() {
    let server = S3Server::start().await;
    let mut leader = Replica::new(&server.bucket());
    leader.shared().absent = RecentPaths::new(MINUTE);
    assert!(!leader.provide("aa").await.unwrap());
    let lookups = server.count("GET", ".digest");
    assert!(!leader.provide("aa").await.unwrap());
    assert_eq!(server.count("GET", ".digest"), lookups);
    leader.publish("aa", b"content").await.unwrap();
    let provided = leader.storage.provide(&path("aa")).await;
    assert!(provided.unwrap().is_some(), "its publisher knows that it exists");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_is_too_slow_ends_and_frees_its_permit() {
    let pieces = ChunkedStore::new(Arc::new(InMemory::new()), 1 << 10);
    let bucket = Bucket::new(Arc::new(pieces), "memory", "");
    let content = vec![7_u8; 1 << 20];
    Replica::new(&bucket).publish("aa", &content).await.unwrap();
    let mut follower = Replica::new(&bucket);
    follower.shared().min_rate = MinimumRate {
        bytes: u64::MAX,
        window: Duration::ZERO,
    };
    let error = follower.provide("aa").await.unwrap_err();
    assert_eq!(problem(&error), &Problem::TooSlow);
    assert!(!follower.file("aa").exists());
    assert_eq!(follower.storage.0.downloads.available_permits(), MAX_DOWNLOADS);
    follower.shared().min_rate = MIN_RATE;
    assert!(follower.provide("aa").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_being_stored_is_not_evicted() {
    let bucket = Bucket::new(Arc::new(InMemory::new()), "memory", "");
    let leader = Replica::with_limit(&bucket, 4);
    leader.publish("aa", b"aaaa").await.unwrap();
    let writer = leader.storage.0.writer(&path("aa"));
    let held = writer.lock().await;
    leader.publish("bb", b"bbbb").await.unwrap();
    assert!(leader.file("aa").exists());
    drop(held);
    leader.publish("cc", b"cccc").await.unwrap();
    assert!(!leader.file("aa").exists() && !leader.file("bb").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_stays_readable_when_the_cache_removes_it() {
    let bucket = Bucket::new(Arc::new(InMemory::new()), "memory", "");
    let leader = Replica::new(&bucket);
    leader.publish("aa", b"aaaa").await.unwrap();
    leader.publish("bb", b"bbbb").await.unwrap();
    let follower = Replica::with_limit(&bucket, 4);
    let mut provided = follower.storage.provide(&path("aa")).await.unwrap().unwrap();
    assert!(follower.provide("bb").await.unwrap());
    assert!(!follower.file("aa").exists());
    let mut content = String::new();
    provided.read_to_string(&mut content).unwrap();
    assert_eq!(content, "aaaa");
    assert!(follower.storage.copy(&path("aa")).await.is_none());
    assert!(follower.provide("aa").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_stopped_leaves_no_parts() {
    let server = S3Server::start().await;
    let leader = Replica::new(&server.bucket());
    server.fail("PUT", "partNumber=2", MANY, Fault::hang());
    let content = vec![7_u8; 9 << 20];
    let stop = async {
        server.received("PUT", "partNumber=2").await;
        leader.storage.0.stop.cancel();
    };
    let (published, ()) = tokio::join!(leader.publish("aa", &content), stop);
    assert_eq!(problem(&published.unwrap_err()), &Problem::Stopped);
    server.received("DELETE", "uploadId=").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_program_ends_listings_and_removals() {
    type Operation = fn(&BucketStorage) -> Result<(), StorageError>;
    let operations: [Operation; 2] = [
        |storage| storage.directories().map(drop),
        |storage| storage.remove(&directory()).map(drop),
    ];
    for operation in operations {
        let server = S3Server::start().await;
        let leader = Replica::new(&server.bucket());
        server.fail("GET", "list-type", MANY, Fault::hang());
        let stop = async {
            server.received("GET", "list-type").await;
            leader.storage.0.stop.cancel();
        };
        let (ended, ()) = tokio::join!(leader.call(operation), stop);
        assert_eq!(problem(&ended.unwrap_err()), &Problem::Stopped);
    }
}
