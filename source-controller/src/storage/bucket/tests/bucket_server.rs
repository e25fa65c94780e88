//! A server on loopback whose bucket is a folder: what the models of S3 and of Google Cloud Storage have in common.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3s::service::S3ServiceBuilder;
use tokio::net::TcpListener;
use tower::BoxError;

use super::BUCKET;

/// The server and the folder of its bucket.
pub(super) struct BucketServer {
    pub(super) address: SocketAddr,
    running: tokio::task::JoinHandle<()>,
    _root: tempfile::TempDir,
}

/// Returns a folder with an empty bucket, and S3 on it.
pub(super) fn empty_bucket() -> (tempfile::TempDir, S3ServiceBuilder) {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join(BUCKET)).unwrap();
    let files = s3s_fs::FileSystem::new(root.path()).unwrap();
    (root, S3ServiceBuilder::new(files))
}

impl BucketServer {
    /// Starts a server that responds to requests with this function.
    pub(super) async fn start<S, R, F>(root: tempfile::TempDir, shared: Arc<S>, respond: R) -> Self
    where
        S: Send + Sync + 'static,
        R: Fn(Arc<S>, Request<Incoming>) -> F + Copy + Send + Sync + 'static,
        F: Future<Output = Result<Response<s3s::Body>, BoxError>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let running = tokio::spawn(accept(listener, shared, respond));
        Self {
            address,
            running,
            _root: root,
        }
    }
}

impl Drop for BucketServer {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn accept<S, R, F>(listener: TcpListener, shared: Arc<S>, respond: R)
where
    S: Send + Sync + 'static,
    R: Fn(Arc<S>, Request<Incoming>) -> F + Copy + Send + Sync + 'static,
    F: Future<Output = Result<Response<s3s::Body>, BoxError>> + Send + 'static,
{
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let shared = Arc::clone(&shared);
        let service = service_fn(move |request| respond(Arc::clone(&shared), request));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
