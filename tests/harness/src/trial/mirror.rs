//! A network mirror with the trial provider over TLS on loopback. It counts downloads of the package.

use std::convert::Infallible;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::{SOURCE, TrialError, VERSION, go_architecture};
use crate::tls::{Authority, TlsOptions};

/// The mirror. Dropping it stops the server.
#[derive(Debug)]
pub struct Mirror {
    folder: TempDir,
    state: Arc<State>,
    task: JoinHandle<()>,
}

/// State of the server.
#[derive(Debug)]
struct State {
    program: Vec<u8>,
    versions: Mutex<Vec<String>>,
    downloads: AtomicUsize,
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Mirror {
    pub(super) async fn serve(program: Vec<u8>) -> Result<Self, TrialError> {
        let (folder, authority) = (tempfile::tempdir()?, Authority::create()?);
        let terms = TlsOptions {
            http2: false,
            ..TlsOptions::default()
        };
        let acceptor = authority.acceptor(&terms)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        fs::write(folder.path().join("authority.pem"), authority.pem())?;
        let config = format!(
            "provider_installation {{\n  network_mirror {{\n    url = \"https://{address}/\"\n  }}\n}}\n"
        );
        fs::write(folder.path().join("mirror.tfrc"), config)?;
        let state = Arc::new(State {
            program,
            versions: Mutex::new(vec![VERSION.to_owned()]),
            downloads: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, state) = (acceptor.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    let Ok(socket) = acceptor.accept(socket).await else {
                        return;
                    };
                    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                        let response = state.response(request.method(), request.uri().path());
                        async move { Ok::<_, Infallible>(response) }
                    });
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(socket), service);
                    drop(connection.await);
                });
            }
        });
        Ok(Self { folder, state, task })
    }

    /// A file for `TF_CLI_CONFIG_FILE`: providers come from this mirror.
    #[must_use]
    pub fn cli_config(&self) -> PathBuf {
        self.folder.path().join("mirror.tfrc")
    }

    /// A file for `SSL_CERT_FILE`.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// A lock file with the digest of the package, as `init` writes it.
    #[must_use]
    pub fn lock_file(&self) -> String {
        let line = format!(
            "{}  {}\n",
            hex::encode(Sha256::digest(&self.state.program)),
            file(VERSION)
        );
        let hash = format!("h1:{}", STANDARD.encode(Sha256::digest(line)));
        format!(
            "provider \"{SOURCE}\" {{\n  version = \"{VERSION}\"\n  hashes = [\n    \"{hash}\",\n  ]\n}}\n"
        )
    }

    /// How often the package was downloaded.
    #[must_use]
    pub fn downloads(&self) -> usize {
        self.state.downloads.load(Ordering::SeqCst)
    }

    /// Offers the provider under these versions alone.
    pub fn set_versions(&self, versions: &[&str]) {
        *self.state.versions() = versions.iter().map(|version| (*version).to_owned()).collect();
    }
}

impl State {
    fn versions(&self) -> MutexGuard<'_, Vec<String>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn response(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let versions = self.versions();
        if name == "index.json" {
            let all: serde_json::Map<_, _> = versions
                .iter()
                .map(|version| (version.clone(), json!({})))
                .collect();
            return with_type(json!({ "versions": all }).to_string(), "application/json");
        }
        let is_available = |version: &str| versions.iter().any(|one| one == version);
        if let Some(version) = name.strip_suffix(".json").filter(|version| is_available(version)) {
            let platform = format!("{}_{}", std::env::consts::OS, go_architecture());
            let archives = json!({ "archives": { platform: { "url": format!("{version}.zip") } } });
            return with_type(archives.to_string(), "application/json");
        }
        if let Some(version) = name.strip_suffix(".zip").filter(|version| is_available(version)) {
            if method == Method::GET {
                self.downloads.fetch_add(1, Ordering::SeqCst);
            }
            return with_type(zip(&file(version), &self.program), "application/zip");
        }
        let mut response = Response::new(Full::new(Bytes::new()));
        *response.status_mut() = StatusCode::NOT_FOUND;
        response
    }
}

fn file(version: &str) -> String {
    format!("terraform-provider-trial_v{version}")
}

fn with_type(body: impl Into<Bytes>, content_type: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    let content_type = http::HeaderValue::from_static(content_type);
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, content_type);
    response
}

/// A zip archive with one file that every user may run, uncompressed (PKWARE APPNOTE 4.3).
fn zip(name: &str, content: &[u8]) -> Vec<u8> {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    let short = |number: usize| u16::try_from(number).unwrap_or(u16::MAX).to_le_bytes();
    let mut crc = flate2::Crc::new();
    crc.update(content);
    // Flags, method, time and date (the first of January 1980), digest, both sizes, length of the name, no extra field.
    let common = [
        &[0, 0, 0, 0, 0, 0, 0x21, 0][..],
        &crc.sum().to_le_bytes(),
        &length(content),
        &length(content),
        &short(name.len()),
        &[0, 0],
    ]
    .concat();
    let mut all = [b"PK\x03\x04\x14\x00", &common[..], name.as_bytes(), content].concat();
    let directory = [
        b"PK\x01\x02\x14\x03\x14\x00",
        &common[..],
        // No comment, first disk, no internal attributes; mode 0755 of a regular file; at the beginning.
        &[0, 0, 0, 0, 0, 0],
        &(0o100_755_u32 << 16).to_le_bytes(),
        &[0, 0, 0, 0],
        name.as_bytes(),
    ]
    .concat();
    let directory_offset = length(&all);
    all.extend_from_slice(&directory);
    all.extend_from_slice(
        &[
            &b"PK\x05\x06\x00\x00\x00\x00\x01\x00\x01\x00"[..],
            &length(&directory),
            &directory_offset,
            &[0, 0],
        ]
        .concat(),
    );
    all
}
