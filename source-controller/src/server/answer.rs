//! One request, one answer.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use jiff::Timestamp;
use sluice_runtime::serve::Place;

use super::admission::Admission;
use super::condition::{self, Facts, Part};
use super::downloads::{Download, Downloads};
use super::file;
use crate::storage::{LocalDirectory, open_below};

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// What is served, and to how many at once.
pub(super) struct Files {
    pub(super) storage: LocalDirectory,
    pub(super) admission: Admission,
    pub(super) downloads: Downloads,
}

impl Files {
    /// Answers a request of any kind, of this client on the connection that has this place.
    pub(super) async fn answer<B>(
        &self,
        request: &Request<B>,
        client: IpAddr,
        place: &Place,
    ) -> Response<Body> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "405 method not allowed\n");
            response
                .headers_mut()
                .insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        if request.uri().path() == "/" {
            // Probes of deployments ask for it. It lists nothing.
            return plain(StatusCode::OK, "");
        }
        if !self.admission.knows_host(request) {
            return plain(
                StatusCode::MISDIRECTED_REQUEST,
                "421 this server is not known by the requested name; --storage-allowed-hosts names more\n",
            );
        }
        let path = file::requested(request.uri().path());
        let Some(path) = path.filter(|_| self.admission.knows_token(request)) else {
            return not_found();
        };
        let Some(mut download) = self.downloads.begin(client).await else {
            return busy();
        };
        download.answer = Some(place.answer());
        match open(self.storage.clone(), path).await {
            Ok(found) => send(request, found, download),
            Err(error) if is_absence(&error) => not_found(),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "artifact cannot be read"
                );
                plain(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "500 the artifact cannot be read\n",
                )
            }
        }
    }
}

struct Found {
    file: Arc<File>,
    facts: Facts,
}

/// Opens on a thread that may block.
async fn open(storage: LocalDirectory, path: PathBuf) -> io::Result<Found> {
    let opened = tokio::task::spawn_blocking(move || {
        let file = open_below(storage.root(), &path)?;
        let metadata = file.metadata()?;
        let digest = storage.known_digest(&path, &metadata);
        let modified = Timestamp::from_second(metadata.mtime()).map_err(io::Error::other)?;
        let tag = digest.map(|digest| format!("\"{digest}\""));
        Ok(Found {
            file: Arc::new(file),
            facts: Facts {
                size: metadata.len(),
                modified,
                tag,
            },
        })
    });
    opened.await.map_err(io::Error::other)?
}

/// A link in the place of a file or directory counts as absent, like everything that is not published.
fn is_absence(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    ) || [Errno::LOOP, Errno::NAMETOOLONG]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn send<B>(request: &Request<B>, found: Found, download: Download) -> Response<Body> {
    let size = found.facts.size;
    let (status, range) = match condition::part(request.headers(), &found.facts) {
        Part::NotModified => (StatusCode::NOT_MODIFIED, None),
        Part::Unsatisfiable => (StatusCode::RANGE_NOT_SATISFIABLE, None),
        Part::Whole => (StatusCode::OK, Some(0..size)),
        Part::Range(range) => (StatusCode::PARTIAL_CONTENT, Some(range)),
    };
    let body = match range.clone() {
        Some(range) if request.method() == Method::GET => {
            StreamBody::new(file::pieces(found.file, range, download)).boxed_unsync()
        }
        _ => empty(),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let mut put = |name, value: Option<String>| {
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(name, value);
        }
    };
    put(header::LAST_MODIFIED, condition::date(found.facts.modified));
    put(header::ETAG, found.facts.tag);
    put(header::ACCEPT_RANGES, Some("bytes".to_owned()));
    match status {
        StatusCode::NOT_MODIFIED => return response,
        StatusCode::RANGE_NOT_SATISFIABLE => put(header::CONTENT_RANGE, Some(format!("bytes */{size}"))),
        StatusCode::PARTIAL_CONTENT => put(
            header::CONTENT_RANGE,
            range
                .as_ref()
                .map(|range| format!("bytes {}-{}/{size}", range.start, range.end - 1)),
        ),
        _ => {}
    }
    put(
        header::CONTENT_TYPE,
        range.is_some().then(|| "application/gzip".to_owned()),
    );
    put(
        header::CONTENT_LENGTH,
        Some(range.map_or(0, |range| range.end - range.start).to_string()),
    );
    response
}

fn not_found() -> Response<Body> {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// Too many downloads: the client is asked to come back.
fn busy() -> Response<Body> {
    let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, "503 too many downloads\n");
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::from(text).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}
