//! Small files from memory, and large ones in chunks.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::super::buffers::CHUNK;
use super::{FileServer, LIMIT, artifact, directory, store};
use crate::storage::Storage as _;

#[tokio::test]
async fn a_small_file_is_read_once_until_the_storage_changes() {
    let server = FileServer::with(b"0123456789").await;
    let get = async |headers: &str| {
        let (head, body) = server.request("GET", &artifact(), headers).await;
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, String::from_utf8(body).unwrap(), head)
    };
    let (_, _, first) = get("").await;
    // Without the file, so that the answers can only come from memory.
    let file = server.root.path().join(&artifact()[1..]);
    std::fs::remove_file(&file).unwrap();
    for _ in 0..3 {
        let (status, body, head) = get("").await;
        assert_eq!((status, body.as_str()), (200, "0123456789"));
        let without_date = |head: &str| -> Vec<String> {
            let lines = head.lines().filter(|line| !line.starts_with("date:"));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(without_date(&head), without_date(&first));
    }
    let (status, body, head) = get("range: bytes=2-4\r\n").await;
    assert_eq!((status, body.as_str()), (206, "234"));
    assert!(head.contains("content-range: bytes 2-4/10"), "{head}");
    let condition = format!("if-none-match: \"{}\"\r\n", server.digest);
    assert_eq!(get(&condition).await.0, 304);
    // Another artifact under the same name is served at once, and a removed one is not.
    let digest = store(&server.storage, b"other");
    let (status, body, head) = get("").await;
    assert_eq!((status, body.as_str()), (200, "other"));
    assert!(head.contains(&format!("etag: \"{digest}\"")), "{head}");
    server.storage.remove(&directory()).unwrap();
    assert_eq!(get("").await.0, 404);
}

#[tokio::test]
async fn a_small_file_that_another_program_removes_is_noticed() {
    let server = FileServer::with_max_age(b"content", Duration::ZERO).await;
    assert_eq!(server.status("GET", &artifact()).await, 200);
    std::fs::remove_file(server.root.path().join(&artifact()[1..])).unwrap();
    assert_eq!(server.status("GET", &artifact()).await, 404);
}

#[tokio::test]
async fn a_large_file_is_complete_across_chunks_and_turns() {
    let content: Vec<u8> = (0..5_000_001_u32)
        .map(|n| u8::try_from(n % 251).unwrap())
        .collect();
    let server = FileServer::with(&content).await;
    let (_, body) = server.request("GET", &artifact(), "").await;
    assert!(body == content);
    let range = "range: bytes=262143-4000000\r\n";
    let (head, body) = server.request("GET", &artifact(), range).await;
    assert!(head.starts_with("http/1.1 206"), "{head}");
    assert!(body == content[262_143..=4_000_000]);
}

/// Waits until the number of buffers in use fulfils the condition.
async fn until(server: &FileServer, condition: impl Fn(usize) -> bool) {
    let waiting = async {
        while !condition(server.buffers.in_use()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, waiting).await.expect("in time");
}

#[tokio::test]
async fn a_download_that_is_not_read_holds_two_chunks_at_most() {
    let downloads = 20;
    let server = FileServer::with(&vec![7; 16 << 20]).await;
    let text = format!("GET {} HTTP/1.1\r\nhost: sc\r\n\r\n", artifact());
    let mut stalled = Vec::new();
    for _ in 0..downloads {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stalled.push(stream);
    }
    until(&server, |in_use| in_use >= downloads).await;
    for _ in 0..40 {
        assert!(server.buffers.in_use() <= 2 * downloads);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(stalled);
    until(&server, |in_use| in_use == 0).await;
    let slow_readers = 200;
    assert!(
        2 * CHUNK * slow_readers <= 64 << 20,
        "memory of many slow readers"
    );
}
