//! Responses of the file server: maps the path of a request to a file, in memory or on disk.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use sluice_runtime::serve::{ConnectionSlot, ResponseGuard};

use super::admission::Admission;
use super::body::Body;
use super::conditional::{self, Part};
use super::downloads::{Download, Downloads, MAX_DOWNLOADS, MAX_WAITING};
use super::file::{Content, ServedFile};
use super::file_socket::FileParts;
use super::memory::{MAX_AGE, SmallFiles};
use crate::storage::bucket::BucketStorage;
use crate::storage::{ArtifactPath, LocalDirectory, ObjectDirectory};

/// Suffix of all served files. Locks and unfinished files have other suffixes.
const ARTIFACT_SUFFIX: &str = ".tar.gz";

/// Number of path components of an artifact: kind, namespace, name, file.
const COMPONENTS: usize = 4;

/// The client of a connection.
pub(super) struct Client {
    pub(super) address: IpAddr,
    pub(super) slot: ConnectionSlot,
    /// What the connection sends of files.
    pub(super) parts: FileParts,
}

/// The served files and the limits of downloads.
pub(super) struct FileService {
    storage: LocalDirectory,
    /// Where files come from that the directory lacks.
    bucket: Option<BucketStorage>,
    admission: Admission,
    downloads: Downloads,
    /// The requests that wait for a file of the bucket.
    waiting: Downloads,
    small: SmallFiles,
}

impl FileService {
    /// Serves the artifacts of a storage.
    pub(super) fn new(storage: LocalDirectory, admission: Admission) -> Self {
        Self::with_max_age(storage, admission, MAX_AGE)
    }

    /// As [`FileService::new`], with another age at which small files are read again.
    pub(super) fn with_max_age(storage: LocalDirectory, admission: Admission, max_age: Duration) -> Self {
        Self {
            storage,
            bucket: None,
            admission,
            downloads: Downloads::new(MAX_DOWNLOADS),
            waiting: Downloads::new(MAX_WAITING),
            small: SmallFiles::new(max_age),
        }
    }

    /// Serves what is in this bucket, with the storage as its cache.
    pub(super) fn with_bucket(mut self, bucket: Option<BucketStorage>) -> Self {
        self.bucket = bucket;
        self
    }

    /// Responds to a request of this client.
    pub(super) async fn respond<B>(&self, request: &Request<B>, client: &Client) -> Response<Body> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "405 method not allowed\n");
            response
                .headers_mut()
                .insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        let path = request.uri().path();
        if path == "/" {
            // Used by the probes of deployments. Lists nothing.
            return plain(StatusCode::OK, "");
        }
        if !self.admission.allows_host(request) {
            return plain(
                StatusCode::MISDIRECTED_REQUEST,
                "421 unknown host name; it can be allowed with --storage-allowed-hosts\n",
            );
        }
        if !self.admission.allows_token(request) {
            return not_found();
        }
        // Read before the file: a change in between makes the file count as outdated.
        let changes = self.storage.changes();
        if let Some(file) = self.small.get(path, changes) {
            return Self::send(request, &file, Slot::Answer(client.slot.begin_response()));
        }
        let Some(relative) = artifact_path(path) else {
            return not_found();
        };
        let provided = match self.provide(&relative, client).await {
            Ok(provided) => provided,
            Err(refusal) => {
                self.small.remove(path);
                return refusal.response();
            }
        };
        let Some(mut download) = self.downloads.acquire(client.address).await else {
            return busy();
        };
        download.answer = Some(client.slot.begin_response());
        match self.open(relative, provided).await {
            Ok(file) => {
                let file = Arc::new(file);
                self.small.insert(path, changes, &file);
                Self::send(request, &file, Slot::Download(download, client.parts.clone()))
            }
            Err(error) => {
                self.small.remove(path);
                failed(&error)
            }
        }
    }

    /// Opens a file of the bucket, if there is a bucket. What the cache lacks is downloaded; such requests are limited by themselves.
    async fn provide(&self, relative: &Path, client: &Client) -> Result<Option<File>, Refusal> {
        let Some(bucket) = &self.bucket else {
            return Ok(None);
        };
        let path = recorded(relative).ok_or(Refusal::NotFound)?;
        let _answer = client.slot.begin_response();
        if let Some(copy) = bucket.copy(&path).await {
            return Ok(Some(copy));
        }
        let _waiting = self.waiting.acquire(client.address).await.ok_or(Refusal::Busy)?;
        match bucket.provide(&path).await {
            Ok(Some(file)) => Ok(Some(file)),
            Ok(None) => Err(Refusal::NotFound),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, %path, "artifact cannot be downloaded from the bucket");
                Err(Refusal::NoBucket)
            }
        }
    }

    /// Opens a file on a blocking thread, unless it is open, and reads it if it is small.
    async fn open(&self, path: PathBuf, provided: Option<File>) -> io::Result<ServedFile> {
        let storage = self.storage.clone();
        let opened = tokio::task::spawn_blocking(move || match provided {
            Some(file) => ServedFile::of(&storage, &path, file),
            None => ServedFile::open(&storage, &path),
        });
        opened.await.map_err(io::Error::other)?
    }

    /// Sends the part of the file that the request selects.
    fn send<B>(request: &Request<B>, file: &ServedFile, slot: Slot) -> Response<Body> {
        let size = file.info.size;
        let part = conditional::part(request.headers(), &file.info);
        let (status, range) = match &part {
            Part::NotModified => (StatusCode::NOT_MODIFIED, 0..0),
            Part::Unsatisfiable => (StatusCode::RANGE_NOT_SATISFIABLE, 0..0),
            Part::Whole => (StatusCode::OK, 0..size),
            Part::Range(range) => (StatusCode::PARTIAL_CONTENT, range.clone()),
        };
        let mut headers = file.headers.clone();
        match part {
            Part::Whole => {}
            Part::NotModified => {
                headers.remove(header::CONTENT_TYPE);
                headers.remove(header::CONTENT_LENGTH);
            }
            Part::Unsatisfiable => {
                headers.remove(header::CONTENT_TYPE);
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
            }
            Part::Range(_) => {
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
            }
        }
        let content_range = match status {
            StatusCode::RANGE_NOT_SATISFIABLE => Some(format!("bytes */{size}")),
            StatusCode::PARTIAL_CONTENT => Some(format!("bytes {}-{}/{size}", range.start, range.end - 1)),
            _ => None,
        };
        if let Some(value) = content_range.and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(header::CONTENT_RANGE, value);
        }
        let body = if *request.method() == Method::GET && !range.is_empty() {
            body(file, range, slot)
        } else {
            Body::empty()
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

fn body(file: &ServedFile, range: Range<u64>, slot: Slot) -> Body {
    match (&file.content, slot) {
        (Content::File(file), Slot::Download(download, parts)) => {
            Body::file(Arc::clone(file), range, parts, download)
        }
        (Content::Memory(bytes), slot) => {
            let at = |offset: u64| usize::try_from(offset).map_or(bytes.len(), |at| at.min(bytes.len()));
            Body::memory(bytes.slice(at(range.start)..at(range.end)), slot.into_answer())
        }
        // Only small files are found without a slot of a download.
        (Content::File(_), Slot::Answer(_)) => Body::empty(),
    }
}

/// What a response holds until it was sent.
enum Slot {
    /// A slot of a download, and what the connection sends.
    Download(Download, FileParts),
    /// The mark of a busy connection alone.
    Answer(ResponseGuard),
}

impl Slot {
    fn into_answer(self) -> Option<ResponseGuard> {
        match self {
            Self::Download(download, _) => download.answer,
            Self::Answer(answer) => Some(answer),
        }
    }
}

/// Why a file of the bucket is not sent.
enum Refusal {
    /// The bucket does not have it.
    NotFound,
    /// Too many requests wait.
    Busy,
    /// The bucket fails, or does not answer in time.
    NoBucket,
}

impl Refusal {
    fn response(self) -> Response<Body> {
        match self {
            Self::NotFound => not_found(),
            Self::Busy => busy(),
            Self::NoBucket => unavailable("503 the bucket of artifacts cannot be read\n"),
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

/// Returns the artifact with this path below the root.
fn recorded(relative: &Path) -> Option<ArtifactPath> {
    let text = relative.to_str()?;
    let mut parts = text.split('/').skip(1);
    let directory = ObjectDirectory::git_repository(parts.next()?, parts.next()?).ok()?;
    directory.recorded(text)
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

fn failed(error: &io::Error) -> Response<Body> {
    if is_not_found(error) {
        return not_found();
    }
    let (error, text) = (
        error as &dyn std::error::Error,
        "500 the artifact cannot be read\n",
    );
    tracing::warn!(error, "artifact cannot be read");
    plain(StatusCode::INTERNAL_SERVER_ERROR, text)
}

fn not_found() -> Response<Body> {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// Too many downloads.
fn busy() -> Response<Body> {
    unavailable("503 too many downloads\n")
}

/// Asks the client to retry.
fn unavailable(text: &'static str) -> Response<Body> {
    let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, text);
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::memory(text, None));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
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
            ("/gitrepository/ns/n/ab.tar.gz.segments", None),
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
