//! What a controller has an effect through, each step of it counted: the API, storage, remotes.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use sluice_api::digest::Digest;
use sluice_api::source::GitRepository;
use sluice_runtime::shutdown::Token;

use super::life::Life;
use crate::archive::Hasher;
use crate::git::{Checkout, FetchError, Head};
use crate::reconcile::{Origin, Source};
use crate::storage::{ArtifactPath, Draft, ObjectDirectory, Storage, StorageError, Verdict};

/// The API as one controller reaches it. What a write leaves is held against the files that are there.
#[derive(Clone)]
pub(super) struct MortalApi {
    client: Client,
    files: PathBuf,
    life: Life,
}

impl MortalApi {
    pub(super) fn client(client: Client, files: PathBuf, life: Life) -> Client {
        Client::new(Self { client, files, life }, "default")
    }

    /// A status never names a file that is not there, or not the one it describes.
    fn check(&self, body: &[u8]) {
        let object = serde_json::from_slice::<GitRepository>(body).ok();
        let Some(artifact) = object.and_then(|object| object.status?.artifact) else {
            return;
        };
        let Ok(file) = std::fs::File::open(self.files.join(&artifact.path)) else {
            return self
                .life
                .violated(format!("status names {}, which is not there", artifact.path));
        };
        let wanted: Digest = artifact.digest.parse().unwrap();
        let found = Hasher::of(wanted.algorithm(), file).unwrap();
        if found != wanted {
            self.life
                .violated(format!("{} is {found}, not {wanted}", artifact.path));
        }
    }
}

impl tower::Service<Request<Body>> for MortalApi {
    type Response = Response<Full<Bytes>>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        let written = request.method() != Method::GET && request.uri().path().contains("/gitrepositories/");
        let answer = async move {
            let answer = this.client.send(request).await?;
            let (head, body) = answer.into_parts();
            let body = body.collect().await?.to_bytes();
            if written && head.status.is_success() {
                this.check(&body);
            }
            Ok(Response::from_parts(head, Full::new(body)))
        };
        let life = self.life.clone();
        Box::pin(async move {
            if written {
                life.step("write", answer).await
            } else if life.is_dead() {
                std::future::pending().await
            } else {
                answer.await
            }
        })
    }
}

/// Storage as one controller reaches it.
pub(super) struct MortalStorage {
    pub(super) inner: Arc<dyn Storage>,
    pub(super) life: Life,
}

/// What a dead controller's thread sees; nobody hears of it.
fn killed() -> StorageError {
    StorageError::Directory {
        source: io::Error::other("killed"),
    }
}

impl MortalStorage {
    fn step<T>(
        &self,
        name: &'static str,
        effect: impl FnOnce() -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        self.life.block(name, effect).unwrap_or_else(|| Err(killed()))
    }
}

impl Storage for MortalStorage {
    fn create(&self, path: &ArtifactPath) -> Result<Box<dyn Draft>, StorageError> {
        let inner = self.step("create", || self.inner.create(path))?;
        let life = self.life.clone();
        Ok(Box::new(MortalDraft { inner, life }))
    }

    fn verify(&self, path: &ArtifactPath, digest: &str) -> Result<Verdict, StorageError> {
        self.step("verify", || self.inner.verify(path, digest))
    }

    fn open(&self, path: &ArtifactPath) -> Result<Box<dyn Read + Send>, StorageError> {
        self.step("open", || self.inner.open(path))
    }

    fn supersede(&self, path: &ArtifactPath, now: Timestamp) -> Result<(), StorageError> {
        self.step("supersede", || self.inner.supersede(path, now))
    }

    fn collect(
        &self,
        directory: &ObjectDirectory,
        current: Option<&ArtifactPath>,
        retention: Duration,
        now: Timestamp,
    ) -> Result<u64, StorageError> {
        self.step("collect", || {
            self.inner.collect(directory, current, retention, now)
        })
    }

    fn make_room(
        &self,
        directory: &ObjectDirectory,
        current: Option<&ArtifactPath>,
        keep: usize,
    ) -> Result<u64, StorageError> {
        self.step("make room", || self.inner.make_room(directory, current, keep))
    }

    fn remove(&self, directory: &ObjectDirectory) -> Result<bool, StorageError> {
        self.step("remove", || self.inner.remove(directory))
    }

    fn url(&self, path: &ArtifactPath) -> String {
        self.inner.url(path)
    }
}

struct MortalDraft {
    inner: Box<dyn Draft>,
    life: Life,
}

impl Write for MortalDraft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.life.is_dead() {
            return Err(io::Error::other("killed"));
        }
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Draft for MortalDraft {
    fn publish(self: Box<Self>, digest: &Digest) -> Result<(), StorageError> {
        let Self { inner, life } = *self;
        life.block("publish", || inner.publish(digest))
            .unwrap_or_else(|| Err(killed()))
    }
}

/// Remotes as one controller reaches them.
pub(super) struct MortalOrigin<O> {
    pub(super) inner: O,
    pub(super) life: Life,
}

impl<O: Origin> Origin for MortalOrigin<O> {
    fn head<'a>(&'a self, source: &'a Source, stop: &'a Token) -> BoxFuture<'a, Result<Head, FetchError>> {
        Box::pin(self.life.step("head", self.inner.head(source, stop)))
    }

    fn fetch<'a>(
        &'a self,
        source: &'a Source,
        head: &'a Head,
        stop: &'a Token,
    ) -> BoxFuture<'a, Result<Checkout, FetchError>> {
        Box::pin(self.life.step("fetch", self.inner.fetch(source, head, stop)))
    }
}
