//! Responses of the file server: maps the path of a request to a file and streams it in chunks.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, stream};
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use sluice_runtime::serve::ConnectionSlot;

use super::admission::Admission;
use super::conditional::{self, FileInfo, Part};
use super::downloads::{Download, Downloads};
use crate::storage::{LocalDirectory, open_below};

/// Size of a chunk in bytes.
const CHUNK: u64 = 256 * 1024;

/// Suffix of all served files. Locks and unfinished files have other suffixes.
const ARTIFACT_SUFFIX: &str = ".tar.gz";

/// Number of path components of an artifact: kind, namespace, name, file.
const COMPONENTS: usize = 4;

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The served files and the limits of downloads.
pub(super) struct FileService {
    pub(super) storage: LocalDirectory,
    pub(super) admission: Admission,
    pub(super) downloads: Downloads,
}

impl FileService {
    /// Responds to a request of this client on the given connection.
    pub(super) async fn respond<B>(
        &self,
        request: &Request<B>,
        client: IpAddr,
        slot: &ConnectionSlot,
    ) -> Response<Body> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "405 method not allowed\n");
            response
                .headers_mut()
                .insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        if request.uri().path() == "/" {
            // Used by the probes of deployments. Lists nothing.
            return plain(StatusCode::OK, "");
        }
        if !self.admission.allows_host(request) {
            return plain(
                StatusCode::MISDIRECTED_REQUEST,
                "421 unknown host name; it can be allowed with --storage-allowed-hosts\n",
            );
        }
        let path = artifact_path(request.uri().path());
        let Some(path) = path.filter(|_| self.admission.allows_token(request)) else {
            return not_found();
        };
        let Some(mut download) = self.downloads.acquire(client).await else {
            return busy();
        };
        download.answer = Some(slot.begin_response());
        match open(self.storage.clone(), path).await {
            Ok(found) => send(request, found, download),
            Err(error) if is_not_found(&error) => not_found(),
            Err(error) => {
                let (error, text) = (
                    &error as &dyn std::error::Error,
                    "500 the artifact cannot be read\n",
                );
                tracing::warn!(error, "artifact cannot be read");
                plain(StatusCode::INTERNAL_SERVER_ERROR, text)
            }
        }
    }
}

/// Returns the path below the root for a request, if it can be an artifact.
fn artifact_path(path: &str) -> Option<PathBuf> {
    let path = percent_decode_str(path.strip_prefix('/')?).decode_utf8().ok()?;
    let ordinary = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains(['\\', '\0']);
    let mut parts = path.split('/');
    let good = parts.clone().count() == COMPONENTS && parts.all(ordinary) && path.ends_with(ARTIFACT_SUFFIX);
    good.then(|| PathBuf::from(path.into_owned()))
}

struct Found {
    file: Arc<File>,
    info: FileInfo,
}

/// Opens a file on a blocking thread.
async fn open(storage: LocalDirectory, path: PathBuf) -> io::Result<Found> {
    let opened = tokio::task::spawn_blocking(move || {
        let file = open_below(storage.root(), &path)?;
        let metadata = file.metadata()?;
        let digest = storage.cached_digest(&path, &metadata);
        let modified = Timestamp::from_second(metadata.mtime()).map_err(io::Error::other)?;
        let tag = digest.map(|digest| format!("\"{digest}\""));
        Ok(Found {
            file: Arc::new(file),
            info: FileInfo {
                size: metadata.len(),
                modified,
                tag,
            },
        })
    });
    opened.await.map_err(io::Error::other)?
}

/// Symbolic links count as absent, like everything that is not published.
fn is_not_found(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    ) || [Errno::LOOP, Errno::NAMETOOLONG]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn send<B>(request: &Request<B>, found: Found, download: Download) -> Response<Body> {
    let size = found.info.size;
    let (status, range) = match conditional::part(request.headers(), &found.info) {
        Part::NotModified => (StatusCode::NOT_MODIFIED, None),
        Part::Unsatisfiable => (StatusCode::RANGE_NOT_SATISFIABLE, None),
        Part::Whole => (StatusCode::OK, Some(0..size)),
        Part::Range(range) => (StatusCode::PARTIAL_CONTENT, Some(range)),
    };
    let body = match range.clone() {
        Some(range) if request.method() == Method::GET => {
            StreamBody::new(chunks(found.file, range, download)).boxed_unsync()
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
    put(header::LAST_MODIFIED, conditional::date(found.info.modified));
    put(header::ETAG, found.info.tag);
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

/// Streams the bytes of `range` in chunks on demand. Holds `download` until the end of the stream.
fn chunks(
    file: Arc<File>,
    range: Range<u64>,
    download: Download,
) -> impl Stream<Item = io::Result<Frame<Bytes>>> {
    stream::try_unfold((file, range, download), |(file, range, download)| async move {
        if range.is_empty() {
            return Ok(None);
        }
        let reader = Arc::clone(&file);
        let from = range.start;
        let length = CHUNK.min(range.end - range.start);
        let chunk = tokio::task::spawn_blocking(move || read_chunk(&reader, from, length))
            .await
            .map_err(io::Error::other)??;
        Ok(Some((
            Frame::data(chunk),
            (file, from + length..range.end, download),
        )))
    })
}

/// Reads one chunk. A truncated file causes an error, never other content.
fn read_chunk(file: &File, from: u64, length: u64) -> io::Result<Bytes> {
    let length = usize::try_from(length).map_err(io::Error::other)?;
    let mut chunk = vec![0; length];
    file.read_exact_at(&mut chunk, from)?;
    Ok(chunk.into())
}

fn not_found() -> Response<Body> {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// Too many downloads: asks the client to retry.
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

#[cfg(test)]
mod tests {
    use super::artifact_path;

    #[test]
    fn only_artifact_paths_are_accepted() {
        for (path, found) in [
            (
                "/gitrepository/ns/n/ab.tar.gz",
                Some("gitrepository/ns/n/ab.tar.gz"),
            ),
            (
                "/gitrepository/ns/n/a%62.tar.gz",
                Some("gitrepository/ns/n/ab.tar.gz"),
            ),
            ("/gitrepository/ns/n/ab.tar.gz.lock", None),
            ("/gitrepository/ns/n/ab.tar.gzXyZ123", None),
            ("/gitrepository/ns/n/", None),
            ("/gitrepository/ns/n", None),
            ("/gitrepository/ns/../ab.tar.gz", None),
            ("/gitrepository/ns/%2e%2e/ab.tar.gz", None),
            ("/gitrepository/ns/n%2f..%2f..%2fab.tar.gz", None),
            ("/gitrepository//n/ab.tar.gz", None),
            ("/gitrepository/ns/n/.tar.gz", None),
            ("/a/b/c/d/e.tar.gz", None),
            ("/%00/b/c/d.tar.gz", None),
            ("/%ff/b/c/d.tar.gz", None),
            ("relative", None),
            ("", None),
        ] {
            assert_eq!(
                artifact_path(path).as_deref(),
                found.map(std::path::Path::new),
                "{path}"
            );
        }
    }
}
