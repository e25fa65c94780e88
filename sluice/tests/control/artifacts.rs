//! An artifact server, and artifacts.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use sha2::{Digest as _, Sha256};

type Files = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// Serves artifacts from memory.
pub(crate) struct Artifacts {
    pub(crate) url: String,
    files: Files,
    served: Arc<Mutex<Vec<String>>>,
    /// How often each file may be downloaded. Others: always.
    limits: Arc<Mutex<HashMap<String, usize>>>,
}

impl Artifacts {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let files = Files::default();
        let served = Arc::<Mutex<Vec<String>>>::default();
        let limits = Arc::<Mutex<HashMap<String, usize>>>::default();
        let (shared, record, limited) = (Arc::clone(&files), Arc::clone(&served), Arc::clone(&limits));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // Errors of clients that disconnect are ignored.
                let find = |name: &str| {
                    let mut record = record.lock().unwrap();
                    record.push(name.to_owned());
                    let count = record.iter().filter(|served| *served == name).count();
                    let limit = limited.lock().unwrap().get(name).copied();
                    if limit.is_some_and(|limit| count > limit) {
                        return Found::NotNow;
                    }
                    match shared.lock().unwrap().get(name).cloned() {
                        Some(bytes) => Found::File(bytes),
                        None => Found::Nothing,
                    }
                };
                let _ = respond(stream.unwrap(), find);
            }
        });
        Self {
            url,
            files,
            served,
            limits,
        }
    }

    /// Returns how often a file was requested.
    pub(crate) fn download_count(&self, name: &str) -> usize {
        self.served
            .lock()
            .unwrap()
            .iter()
            .filter(|served| *served == name)
            .count()
    }

    /// Answers 503 after this number of downloads of a file; `None`: no limit.
    pub(crate) fn limit_downloads(&self, name: &str, limit: Option<usize>) {
        let mut limits = self.limits.lock().unwrap();
        match limit {
            Some(limit) => limits.insert(name.to_owned(), limit),
            None => limits.remove(name),
        };
    }

    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) {
        self.files.lock().unwrap().insert(name.to_owned(), bytes);
    }
}

/// The answer to a request.
enum Found {
    File(Vec<u8>),
    Nothing,
    NotNow,
}

fn respond(mut stream: TcpStream, find: impl Fn(&str) -> Found) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut some = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut some)?;
        if read == 0 {
            return Ok(());
        }
        head.extend_from_slice(&some[..read]);
    }
    let text = String::from_utf8_lossy(&head);
    let name = text
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .trim_start_matches('/')
        .to_owned();
    let (code, bytes) = match find(&name) {
        Found::File(bytes) => ("200 OK", bytes),
        Found::Nothing => ("404 Not Found", Vec::new()),
        Found::NotNow => ("503 Service Unavailable", Vec::new()),
    };
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        bytes.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&bytes)
}

/// Creates a `tar.gz` of these files with unchecked names.
pub(crate) fn pack(files: &[(&str, &str)]) -> Vec<u8> {
    let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut tar = tar::Builder::new(gzip);
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        // `set_path` would refuse the invalid names that the tests need.
        let field = &mut header.as_old_mut().name;
        field[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_entry_type(tar::EntryType::Regular);
        header.set_cksum();
        tar.append(&header, text.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}
