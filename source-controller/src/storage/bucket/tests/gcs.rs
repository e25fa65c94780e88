//! A model of Google Cloud Storage on loopback. Its XML API, which `object_store` uses, is that of S3 but for the bearer token and for the
//! generations of objects, on which a write may depend (<https://cloud.google.com/storage/docs/xml-api/reference-headers>). The model has these
//! two, and `s3s-fs` everything else.
//!
//! No server of a package registry has them: fake-gcs-server 1.56 and gcp-storage-emulator 2026.7 do not take `x-goog-if-generation-match`,
//! and have no multipart uploads of this API.

use std::collections::HashMap;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use object_store::gcp::GoogleCloudStorageBuilder;
use s3s::service::S3Service;
use tokio::sync::Mutex;
use tower::BoxError;

use super::super::connect::{connector, gcs};
use super::bucket_server::{BucketServer, empty_bucket};
use super::{BUCKET, Bucket, options};
use crate::options::StorageBackend;

const TOKEN: &str = "the-token-of-the-test";
const GENERATION: &str = "x-goog-generation";
const CONDITION: &str = "x-goog-if-generation-match";

/// The generations of objects by their paths in URLs. The lock is held during a request, so a condition holds until its write is done.
#[derive(Default)]
struct Generations {
    last: u64,
    of_paths: HashMap<String, u64>,
}

struct Shared {
    s3: S3Service,
    generations: Mutex<Generations>,
}

/// The server with an empty bucket.
pub(super) struct GcsServer(BucketServer);

impl GcsServer {
    pub(super) async fn start() -> Self {
        let (root, builder) = empty_bucket();
        let shared = Arc::new(Shared {
            s3: builder.build(),
            generations: Mutex::default(),
        });
        Self(BucketServer::start(root, shared, respond).await)
    }

    /// Opens the bucket with the right token.
    pub(super) fn bucket(&self) -> Bucket {
        self.bucket_with(TOKEN)
    }

    /// Opens the bucket with this token.
    pub(super) fn bucket_with(&self, token: &str) -> Bucket {
        let options = options(StorageBackend::Gcs, format!("http://{}/", self.0.address));
        let builder = GoogleCloudStorageBuilder::new().with_bearer_token(token);
        let store = gcs(builder, &options, connector().unwrap()).unwrap();
        Bucket::new(store, BUCKET, "below/this")
    }
}

async fn respond(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<s3s::Body>, BoxError> {
    let mut request = request.map(s3s::Body::from);
    let token = request.headers_mut().remove(AUTHORIZATION);
    if token.is_none_or(|token| token != format!("Bearer {TOKEN}")) {
        return Ok(refuse(StatusCode::UNAUTHORIZED, "AuthenticationRequired"));
    }
    let mut generations = shared.generations.lock().await;
    let path = request.uri().path().to_owned();
    let current = generations.of_paths.get(&path).copied().unwrap_or_default();
    let wanted = request.headers_mut().remove(CONDITION);
    if wanted.is_some_and(|wanted| wanted != current.to_string()) {
        return Ok(refuse(StatusCode::PRECONDITION_FAILED, "PreconditionFailed"));
    }
    let change = change(request.method(), request.uri().query().unwrap_or_default());
    let answered = shared.s3.call(request).await;
    let mut response = answered.map_err(BoxError::from)?;
    if response.status().is_success() {
        generations.record(&path, change);
    }
    if let Some(generation) = generations.of_paths.get(&path) {
        let generation = HeaderValue::from(*generation);
        response.headers_mut().insert(GENERATION, generation);
    }
    Ok(response)
}

/// Returns an error as the service describes it.
fn refuse(status: StatusCode, code: &str) -> Response<s3s::Body> {
    let body = format!("<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code></Error>");
    let mut response = Response::new(s3s::Body::from(body));
    *response.status_mut() = status;
    response
}

/// What a request does to an object.
#[derive(Clone, Copy)]
enum Change {
    None,
    Write,
    Deletion,
}

/// Returns what a request does. The parts of an upload change nothing until the request that completes it.
fn change(method: &Method, query: &str) -> Change {
    let is_of_upload = query.contains("uploadId=");
    if (method == Method::PUT && !is_of_upload) || (method == Method::POST && is_of_upload) {
        Change::Write
    } else if method == Method::DELETE && !is_of_upload {
        Change::Deletion
    } else {
        Change::None
    }
}

impl Generations {
    fn record(&mut self, path: &str, change: Change) {
        match change {
            Change::None => {}
            Change::Write => {
                self.last += 1;
                self.of_paths.insert(path.to_owned(), self.last);
            }
            Change::Deletion => {
                self.of_paths.remove(path);
            }
        }
    }
}
