//! Requests whose connection breaks before the response.

use std::sync::Mutex;

use sluice_harness::git::pack::packet;
use sluice_runtime::sync::lock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Commit of `main`.
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Starts a server that answers one request on each connection with the next of these bodies; `None` closes the connection without
/// a response. Returns its address and the requests.
async fn answering(bodies: Vec<Option<Vec<u8>>>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let received = Arc::clone(&requests);
    tokio::spawn(async move {
        for body in bodies {
            let (mut socket, _) = listener.accept().await.unwrap();
            let request = read_request(&mut socket).await;
            lock(&received).push(request);
            if let Some(body) = body {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-result\r\n\
                     Content-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                socket.write_all(head.as_bytes()).await.unwrap();
                socket.write_all(&body).await.unwrap();
            }
        }
    });
    (address.to_string(), requests)
}

/// Reads up to the empty line of a `GET`, or the flush packet of a command.
async fn read_request(socket: &mut TcpStream) -> String {
    let mut request = String::new();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let length = socket.read(&mut buffer).await.unwrap();
        assert_ne!(length, 0, "{request}");
        request.push_str(&String::from_utf8_lossy(&buffer[..length]));
        let end = if request.starts_with("GET") {
            "\r\n\r\n"
        } else {
            "0000"
        };
        if request.ends_with(end) {
            return request;
        }
    }
}

#[tokio::test]
async fn a_broken_request_is_sent_again_unchanged() {
    let env = TestEnvironment::new().await;
    let flush = b"0000".to_vec();
    let lines = [&b"version 2\n"[..], b"ls-refs\n", b"fetch=shallow\n"];
    let capabilities = [lines.map(packet).concat(), flush.clone()].concat();
    let list = packet(format!("{COMMIT} refs/heads/main\n").as_bytes());
    let list = [list, flush].concat();
    let (address, requests) = answering(vec![None, Some(capabilities), None, Some(list)]).await;
    let remote = env.remote_at(&format!("http://user:pw@{address}/stack.git"));
    let found = bounded(head(&remote, &main())).await.unwrap();
    assert_eq!(found.revision(), format!("main@sha1:{COMMIT}"));
    let requests = lock(&requests).clone();
    assert_eq!(requests.len(), 4, "{requests:?}");
    for (pair, line, text) in [
        (
            &requests[..2],
            "GET /stack.git/info/refs?",
            "git-protocol: version=2",
        ),
        (
            &requests[2..],
            "POST /stack.git/git-upload-pack ",
            "command=ls-refs",
        ),
    ] {
        assert_eq!(pair[0], pair[1]);
        assert!(pair[1].starts_with(line), "{pair:?}");
        assert!(pair[1].contains(text), "{pair:?}");
        assert!(pair[1].contains("authorization: Basic "), "{pair:?}");
    }
}

#[tokio::test]
async fn a_request_that_breaks_twice_fails() {
    let env = TestEnvironment::new().await;
    let (address, requests) = answering(vec![None, None, None]).await;
    let remote = env.remote_at(&format!("http://{address}/stack.git"));
    let text = bounded(head(&remote, &main())).await.unwrap_err().to_string();
    assert!(text.starts_with(&format!("cannot talk to {address}: ")), "{text}");
    assert_eq!(lock(&requests).len(), 2);
}
