//! A server of S3 on loopback with faults: `s3s-fs` on a directory, behind a service that breaks chosen requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use object_store::aws::AmazonS3Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3Service;
use sluice_runtime::sync::lock;
use tokio::sync::{Notify, Semaphore};
use tower::BoxError;

use super::super::connect::{connector, s3};
use super::bucket_server::{BucketServer, empty_bucket};
use super::{BUCKET, Bucket, LIMIT, options};
use crate::options::StorageBackend;

const USER: &str = "AKIDEXAMPLE";
const PASSWORD: &str = "the-secret-of-the-test";

/// What happens to a request.
#[derive(Clone)]
pub(super) enum Fault {
    /// The server answers with this status and code.
    Answer(u16, &'static str),
    /// The connection breaks after a part of the request.
    Reset,
    /// The server answers when a permit is there.
    Wait(Arc<Semaphore>),
    /// The server answers after this time.
    Slow(Duration),
}

impl Fault {
    /// The server never answers.
    pub(super) fn hang() -> Self {
        Self::Wait(Arc::new(Semaphore::new(0)))
    }
}

/// The requests that a fault hits: so many with this method and this text in path or query.
struct Rule {
    method: &'static str,
    text: &'static str,
    times: usize,
    fault: Fault,
}

struct Shared {
    s3: S3Service,
    rules: Mutex<Vec<Rule>>,
    /// Methods and paths with queries.
    requests: Mutex<Vec<String>>,
    /// Notifies of each request.
    arrived: Notify,
}

/// The server with an empty bucket.
pub(super) struct S3Server {
    server: BucketServer,
    shared: Arc<Shared>,
}

impl S3Server {
    pub(super) async fn start() -> Self {
        let (root, mut builder) = empty_bucket();
        builder.set_auth(SimpleAuth::from_single(USER, PASSWORD));
        let shared = Arc::new(Shared {
            s3: builder.build(),
            rules: Mutex::default(),
            requests: Mutex::default(),
            arrived: Notify::new(),
        });
        let server = BucketServer::start(root, Arc::clone(&shared), respond).await;
        Self { server, shared }
    }

    /// Opens the bucket with the right credentials.
    pub(super) fn bucket(&self) -> Bucket {
        self.bucket_with(PASSWORD)
    }

    /// Opens the bucket with this password.
    pub(super) fn bucket_with(&self, password: &str) -> Bucket {
        let options = options(StorageBackend::S3, format!("http://{}", self.server.address));
        let builder = AmazonS3Builder::new()
            .with_access_key_id(USER)
            .with_secret_access_key(password);
        let store = s3(builder, &options, connector().unwrap()).unwrap();
        Bucket::new(store, BUCKET, "below/this")
    }

    /// Lets the next requests of this kind fail.
    pub(super) fn fail(&self, method: &'static str, text: &'static str, times: usize, fault: Fault) {
        let rule = Rule {
            method,
            text,
            times,
            fault,
        };
        lock(&self.shared.rules).push(rule);
    }

    /// Ends all faults.
    pub(super) fn heal(&self) {
        lock(&self.shared.rules).clear();
    }

    /// Returns how many faults have not happened.
    pub(super) fn pending(&self) -> usize {
        lock(&self.shared.rules).iter().map(|rule| rule.times).sum()
    }

    /// Returns how many requests of this kind there were; of any method if it is empty.
    pub(super) fn count(&self, method: &str, text: &str) -> usize {
        let requests = lock(&self.shared.requests);
        let matching = requests
            .iter()
            .filter(|line| line.starts_with(method) && line.contains(text));
        matching.count()
    }

    /// Waits for a request of this kind.
    pub(super) async fn received(&self, method: &str, text: &str) {
        self.received_after(method, text, 0).await;
    }

    /// Waits for a request of this kind after the first `count` ones.
    pub(super) async fn received_after(&self, method: &str, text: &str, count: usize) {
        let received = async {
            loop {
                let next = self.shared.arrived.notified();
                if self.count(method, text) > count {
                    return;
                }
                next.await;
            }
        };
        tokio::time::timeout(LIMIT, received).await.unwrap();
    }
}

impl Shared {
    /// Records a request, and returns the fault that hits it.
    fn fault(&self, request: &Request<Incoming>) -> Option<Fault> {
        let line = format!("{} {}", request.method(), request.uri());
        let mut rules = lock(&self.rules);
        let rule = rules.iter_mut().find(|rule| {
            rule.times > 0 && request.method().as_str() == rule.method && line.contains(rule.text)
        });
        lock(&self.requests).push(line);
        self.arrived.notify_waiters();
        let rule = rule?;
        rule.times -= 1;
        Some(rule.fault.clone())
    }
}

async fn respond(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<s3s::Body>, BoxError> {
    match shared.fault(&request) {
        Some(Fault::Answer(status, code)) => {
            let body = format!("<Error><Code>{code}</Code><Message>{PASSWORD}</Message></Error>");
            let mut response = Response::new(s3s::Body::from(body));
            *response.status_mut() = status.try_into()?;
            return Ok(response);
        }
        Some(Fault::Reset) => {
            let mut body = request.into_body();
            let _ = body.frame().await;
            return Err("reset".into());
        }
        Some(Fault::Wait(permits)) => permits.acquire().await?.forget(),
        Some(Fault::Slow(time)) => tokio::time::sleep(time).await,
        None => {}
    }
    let answered = shared.s3.call(request.map(s3s::Body::from)).await;
    answered.map_err(BoxError::from)
}
