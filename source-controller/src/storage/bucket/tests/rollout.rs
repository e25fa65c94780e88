//! A rollout: replicas with empty disks replace the others one after another, while consumers download and the bucket is slow.

use std::net::SocketAddr;

use tokio::io::AsyncReadExt as _;
use tokio::sync::RwLock;
use tokio::task::JoinHandle;

use super::limits::{request, start};
use super::server::Fault;
use super::*;

const COMMITS: [&str; 3] = ["aa", "bb", "cc"];
const CONSUMERS: usize = 8;
/// More than a file that is served from memory.
const SIZE: usize = 200_000;

/// A replica that serves.
struct Pod {
    replica: Replica,
    address: SocketAddr,
    stop: Token,
}

impl Pod {
    async fn start(server: &S3Server) -> Self {
        let (replica, stop) = (Replica::new(&server.bucket()), Token::new());
        let address = start(&replica, &stop).await;
        Self {
            replica,
            address,
            stop,
        }
    }
}

/// The addresses of the Service. A consumer holds the lock until the response has begun, as the pause before the end of a pod permits it:
/// no pod ends with a request that it has not begun to answer.
type Service = Arc<RwLock<Vec<SocketAddr>>>;

/// Returns what the artifact of a commit contains.
fn content(commit: &str) -> Vec<u8> {
    commit.bytes().cycle().take(SIZE).collect()
}

/// Downloads an artifact from one of the addresses. Returns the whole response.
async fn download(service: &Service, number: usize, commit: &str) -> Vec<u8> {
    let addresses = service.read().await;
    let mut stream = request(addresses[number % addresses.len()], commit).await;
    let mut response = vec![stream.read_u8().await.unwrap()];
    drop(addresses);
    stream.read_to_end(&mut response).await.unwrap();
    response
}

/// Downloads until the token is cancelled. Returns the number of downloads, and what was not the whole artifact.
async fn consume(service: Service, first: usize, done: Token) -> (usize, Vec<String>) {
    let (mut number, mut failed) = (0, Vec::new());
    while !done.is_cancelled() {
        let commit = COMMITS[(first + number) % COMMITS.len()];
        let response = download(&service, first + number, commit).await;
        if !response.starts_with(b"HTTP/1.1 200 ") || !response.ends_with(&content(commit)) {
            failed.push(String::from_utf8_lossy(&response[..response.len().min(200)]).into_owned());
        }
        number += 1;
    }
    (number, failed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_on_a_slow_bucket_loses_no_download() {
    let server = S3Server::start().await;
    let mut pods = Vec::new();
    for _ in 0..3 {
        pods.push(Pod::start(&server).await);
    }
    for commit in COMMITS {
        pods[0].replica.publish(commit, &content(commit)).await.unwrap();
    }
    let slow = Fault::Slow(Duration::from_millis(50));
    server.fail("GET", "gitrepository", usize::MAX, slow);
    let addresses = pods.iter().map(|pod| pod.address).collect();
    let service: Service = Arc::new(RwLock::new(addresses));
    let done = Token::new();
    let consumers: Vec<JoinHandle<_>> = (0..CONSUMERS)
        .map(|first| tokio::spawn(consume(Arc::clone(&service), first, done.clone())))
        .collect();

    for (index, pod) in pods.iter_mut().enumerate() {
        let next = Pod::start(&server).await;
        service.write().await[index] = next.address;
        let before = std::mem::replace(pod, next);
        before.stop.cancel();
        // Its disk has everything before the next one is replaced.
        for commit in COMMITS {
            let only = Arc::new(RwLock::new(vec![pod.address]));
            let response = download(&only, 0, commit).await;
            assert!(response.ends_with(&content(commit)));
        }
    }
    done.cancel();
    for consumer in consumers {
        let (count, failed) = tokio::time::timeout(LIMIT, consumer).await.unwrap().unwrap();
        assert!(count > 0 && failed.is_empty(), "{count}: {failed:?}");
    }
}
