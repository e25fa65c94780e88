//! Small files from memory, and large ones in parts.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

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
async fn a_large_file_is_complete_across_parts_and_turns() {
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

#[tokio::test]
async fn a_download_of_a_file_that_is_truncated_ends_early() {
    let length = 64 << 20;
    let server = FileServer::with(&vec![7; length]).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let text = format!("GET {} HTTP/1.1\r\nhost: sc\r\n\r\n", artifact());
    stream.write_all(text.as_bytes()).await.unwrap();
    // The server has begun, and cannot send all of it: the buffers of the sockets are smaller.
    let mut received = vec![0; 1 << 10];
    stream.read_exact(&mut received).await.unwrap();
    let file = server.root.path().join(&artifact()[1..]);
    let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    file.set_len(1 << 20).unwrap();
    // The connection may be reset.
    let reading = stream.read_to_end(&mut received);
    let _end = tokio::time::timeout(LIMIT, reading).await.expect("in time");
    let body = received
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .unwrap()
        + 4;
    assert!(received.len() < length, "{}", received.len());
    // What is under way shows the truncation: the kernel sends the pages of the file.
    assert!(received[body..body + (1 << 20)].iter().all(|byte| *byte == 7));
}
