//! Tests of the file server with a handwritten HTTP client.

mod files;

use std::os::unix::fs::symlink;
use std::time::Duration;

use sluice_api::digest::Digest;
use sluice_runtime::shutdown::Token;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::response::FileService;
use super::{Admission, downloads, serve_within};
use crate::archive::{Algorithm, Hasher};
use crate::storage::{AdvertisedAddress, LocalDirectory, ObjectDirectory, Storage};

const COMMIT: &str = "b8e362c206e3d0cbb7ed22ced771a0056455a2fb";
const LIMIT: Duration = Duration::from_secs(20);
/// No file is read again because of its age.
const FOREVER: Duration = Duration::from_hours(24);

struct FileServer {
    root: tempfile::TempDir,
    storage: LocalDirectory,
    address: std::net::SocketAddr,
    digest: Digest,
    stop: Token,
    running: tokio::task::JoinHandle<()>,
}

impl FileServer {
    async fn with(content: &[u8]) -> Self {
        Self::with_stall_limit(content, LIMIT).await
    }

    /// With another stall limit.
    async fn with_stall_limit(content: &[u8], stall: Duration) -> Self {
        Self::with_admission(content, stall, |_| Admission::default()).await
    }

    /// Reads small files again after this time.
    async fn with_max_age(content: &[u8], max_age: Duration) -> Self {
        Self::start(content, LIMIT, max_age, |_| Admission::default()).await
    }

    /// With an admission derived from the server's address.
    async fn with_admission(
        content: &[u8],
        stall: Duration,
        admission: impl FnOnce(std::net::SocketAddr) -> Admission,
    ) -> Self {
        Self::start(content, stall, FOREVER, admission).await
    }

    async fn start(
        content: &[u8],
        stall: Duration,
        max_age: Duration,
        admission: impl FnOnce(std::net::SocketAddr) -> Admission,
    ) -> Self {
        let root = tempfile::tempdir().unwrap();
        let storage = LocalDirectory::open(root.path(), "sc").unwrap();
        let digest = store(&storage, content);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Token::new();
        let files = FileService::with_max_age(storage.clone(), admission(address), max_age);
        let running = tokio::spawn(serve_within(listener, files, stop.clone(), stall));
        Self {
            root,
            storage,
            address,
            digest,
            stop,
            running,
        }
    }

    /// Sends a request; returns the head and the body of the response.
    async fn request(&self, method: &str, path: &str, headers: &str) -> (String, Vec<u8>) {
        self.request_as("sc", method, path, headers).await
    }

    async fn request_as(&self, host: &str, method: &str, path: &str, headers: &str) -> (String, Vec<u8>) {
        let exchange = async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            let text =
                format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}\r\n");
            stream.write_all(text.as_bytes()).await.unwrap();
            let mut response = Vec::new();
            stream.read_to_end(&mut response).await.unwrap();
            let end = response.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
            (
                String::from_utf8(response[..end].to_vec())
                    .unwrap()
                    .to_lowercase(),
                response[end + 4..].to_vec(),
            )
        };
        tokio::time::timeout(LIMIT, exchange).await.unwrap()
    }

    async fn status(&self, method: &str, path: &str) -> u16 {
        let (head, _) = self.request(method, path, "").await;
        head.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

fn directory() -> ObjectDirectory {
    ObjectDirectory::git_repository("ns", "n").unwrap()
}

/// Publishes an artifact with this content.
fn store(storage: &LocalDirectory, content: &[u8]) -> Digest {
    let mut draft = storage.create(&directory().artifact(COMMIT).unwrap()).unwrap();
    std::io::Write::write_all(&mut draft, content).unwrap();
    let digest = Hasher::of(Algorithm::Sha256, content).unwrap();
    draft.publish(&digest, None).unwrap();
    digest
}

fn artifact() -> String {
    format!("/gitrepository/ns/n/{COMMIT}.tar.gz")
}

#[tokio::test]
async fn an_artifact_is_served_with_its_exact_length_and_no_content_coding() {
    let content: Vec<u8> = (0..700_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let server = FileServer::with(&content).await;
    let (head, body) = server
        .request("GET", &artifact(), "accept-encoding: gzip\r\n")
        .await;
    assert!(head.starts_with("http/1.1 200 ok"), "{head}");
    for line in [
        "content-length: 700000",
        "accept-ranges: bytes",
        "content-type: application/gzip",
        "last-modified: ",
    ] {
        assert!(head.contains(line), "{line} in {head}");
    }
    assert!(head.contains(&format!("etag: \"{}\"", server.digest)), "{head}");
    assert!(
        !head.contains("content-encoding") && !head.contains("transfer-encoding"),
        "{head}"
    );
    assert!(body == content);
}

#[tokio::test]
async fn a_head_request_gets_the_same_headers_without_a_body() {
    let server = FileServer::with(b"content").await;
    let (head, body) = server.request("HEAD", &artifact(), "").await;
    assert!(
        head.starts_with("http/1.1 200 ok") && head.contains("content-length: 7"),
        "{head}"
    );
    assert_eq!(body, b"");
}

#[tokio::test]
async fn ranges_and_conditions_are_honoured() {
    let server = FileServer::with(b"0123456789").await;
    let (head, body) = server.request("GET", &artifact(), "range: bytes=2-4\r\n").await;
    assert!(
        head.starts_with("http/1.1 206") && head.contains("content-range: bytes 2-4/10"),
        "{head}"
    );
    assert!(head.contains("content-length: 3"), "{head}");
    assert_eq!(body, b"234");
    let (head, body) = server.request("GET", &artifact(), "range: bytes=10-\r\n").await;
    assert!(
        head.starts_with("http/1.1 416") && head.contains("content-range: bytes */10"),
        "{head}"
    );
    assert_eq!(body, b"");
    let condition = format!("if-none-match: \"{}\"\r\n", server.digest);
    let (head, body) = server.request("GET", &artifact(), &condition).await;
    assert!(head.starts_with("http/1.1 304"), "{head}");
    assert_eq!(body, b"");
}

#[tokio::test]
async fn nothing_but_artifacts_is_served() {
    let server = FileServer::with(b"content").await;
    let directory = server.root.path().join("gitrepository/ns/n");
    std::fs::write(directory.join("half.tar.gzAbCdEf"), b"half").unwrap();
    std::fs::create_dir(directory.join("folder.tar.gz")).unwrap();
    let secret = server.root.path().join("secret");
    std::fs::write(&secret, b"secret").unwrap();
    symlink(&secret, directory.join("link.tar.gz")).unwrap();
    symlink(
        server.root.path().join("gitrepository/ns/n"),
        server.root.path().join("gitrepository/ns/m"),
    )
    .unwrap();
    for path in [
        "/gitrepository/ns/n/half.tar.gzAbCdEf".to_owned(),
        format!("{}.lock", artifact()),
        "/gitrepository/ns/n/folder.tar.gz".into(),
        "/gitrepository/ns/n/link.tar.gz".into(),
        format!("/gitrepository/ns/m/{COMMIT}.tar.gz"),
        "/gitrepository/ns/n/missing.tar.gz".into(),
        format!("/gitrepository/ns/n/{}.tar.gz", "x".repeat(400)),
        "/gitrepository/ns/n/".into(),
        "/gitrepository".into(),
        "/secret".into(),
        "/../../etc/passwd".into(),
        "/gitrepository/ns/n/%2e%2e/%2e%2e/secret".into(),
    ] {
        assert_eq!(server.status("GET", &path).await, 404, "{path}");
    }
    let (head, body) = server.request("GET", "/missing", "").await;
    assert!(head.contains("content-type: text/plain"), "{head}");
    assert_eq!(body, b"404 page not found\n");
}

#[tokio::test]
async fn dns_rebinding_gets_no_artifact_from_a_server_on_loopback() {
    let admission = |address| Admission::new(address, &address.to_string(), &[], None);
    let server = FileServer::with_admission(b"content", LIMIT, admission).await;
    let of =
        |(head, body): (String, Vec<u8>)| (head.split(' ').nth(1).unwrap().parse::<u16>().unwrap(), body);
    for host in [server.address.to_string(), "localhost".to_owned()] {
        let response = of(server.request_as(&host, "GET", &artifact(), "").await);
        assert_eq!(response, (200, b"content".to_vec()), "{host}");
    }
    let rebound = format!("attacker.example:{}", server.address.port());
    let (status, body) = of(server.request_as(&rebound, "GET", &artifact(), "").await);
    assert_eq!(status, 421);
    assert!(
        String::from_utf8(body)
            .unwrap()
            .contains("--storage-allowed-hosts")
    );
    assert_eq!(
        of(server.request_as(&rebound, "HEAD", "/", "").await).0,
        200,
        "a probe"
    );
}

#[tokio::test]
async fn an_artifact_is_not_found_without_its_token() {
    let token = sluice_runtime::redact::Secret::new("0a1b2c".to_owned());
    let admission = |address| Admission::new(address, "127.0.0.1", &[], Some(token.clone()));
    let server = FileServer::with_admission(b"content", LIMIT, admission).await;
    let address = AdvertisedAddress::new(server.address.to_string(), Some(token.clone()));
    let storage = LocalDirectory::open(server.root.path(), address).unwrap();
    let url = storage.url(&directory().artifact(COMMIT).unwrap());
    let (_, known) = url.split_once(&server.address.to_string()).unwrap();
    let status = async |path: &str| {
        let (head, _) = server.request_as("localhost", "GET", path, "").await;
        head.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
    assert_eq!(status(known).await, 200);
    for path in [
        artifact(),
        format!("{}?token=", artifact()),
        known.replace("0a1b2c", "0a1b2d"),
    ] {
        assert_eq!(status(&path).await, 404, "{path}");
    }
}

#[tokio::test]
async fn probes_get_an_empty_page_and_writes_are_refused() {
    let server = FileServer::with(b"content").await;
    assert_eq!(server.status("GET", "/").await, 200);
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        assert_eq!(server.status(method, &artifact()).await, 405, "{method}");
    }
}

#[tokio::test]
async fn a_shutdown_closes_idle_connections_at_once() {
    let server = FileServer::with(b"content").await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"GET / HTTP/1.1\r\nhost: sc\r\n\r\n")
        .await
        .unwrap();
    let mut first = [0; 1];
    idle.read_exact(&mut first).await.unwrap();
    server.stop.cancel();
    let mut rest = Vec::new();
    tokio::time::timeout(LIMIT, idle.read_to_end(&mut rest))
        .await
        .unwrap()
        .unwrap();
    tokio::time::timeout(LIMIT, server.running)
        .await
        .unwrap()
        .unwrap();
}

/// Starts the maximum number of downloads, larger than all socket buffers, without reading them.
async fn stall_downloads(server: &FileServer) -> Vec<TcpStream> {
    let text = format!("GET {} HTTP/1.1\r\nhost: sc\r\n\r\n", artifact());
    let mut stalled = Vec::new();
    for _ in 0..downloads::MAX_DOWNLOADS {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stalled.push(stream);
    }
    stalled
}

#[tokio::test]
async fn stalled_downloads_block_neither_probes_nor_other_downloads() {
    // Larger than the socket buffers of both sides.
    let content = vec![7; 16 << 20];
    let server = FileServer::with_stall_limit(&content, Duration::from_secs(1)).await;
    let stalled = stall_downloads(&server).await;
    assert_eq!(server.status("GET", "/").await, 200);
    let (head, body) = server.request("GET", &artifact(), "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(body == content);
    drop(stalled);
}

#[tokio::test]
async fn a_probe_is_answered_despite_too_many_silent_connections() {
    let server = FileServer::with(b"content").await;
    let mut silent = Vec::new();
    for _ in 0..super::CONNECTIONS + 10 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    assert_eq!(server.status("GET", "/").await, 200);
    assert_eq!(server.status("GET", &artifact()).await, 200);
    drop(silent);
}
