//! An HTTP server for one artifact.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// Serves one artifact at every path; 503 while it is empty, and when no download is left.
pub(crate) struct Artifacts {
    pub(crate) url: String,
    pub(crate) current: Arc<Mutex<Vec<u8>>>,
    /// How often it can still be downloaded.
    pub(crate) downloads: Arc<Mutex<usize>>,
}

impl Artifacts {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/source/latest.tar.gz", listener.local_addr().unwrap());
        let current = Arc::new(Mutex::new(Vec::new()));
        let downloads = Arc::new(Mutex::new(usize::MAX));
        let (shared, left) = (Arc::clone(&current), Arc::clone(&downloads));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut open = stream.unwrap();
                let mut request = [0; 4096];
                let _ = open.read(&mut request).unwrap();
                let mut left = left.lock().unwrap();
                let bytes = if *left == 0 {
                    Vec::new()
                } else {
                    shared.lock().unwrap().clone()
                };
                *left = left.saturating_sub(1);
                let status = if bytes.is_empty() {
                    "503 Service Unavailable"
                } else {
                    "200 OK"
                };
                let answer = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    bytes.len()
                );
                let _ = open
                    .write_all(answer.as_bytes())
                    .and_then(|()| open.write_all(&bytes));
            }
        });
        Self {
            url,
            current,
            downloads,
        }
    }
}
