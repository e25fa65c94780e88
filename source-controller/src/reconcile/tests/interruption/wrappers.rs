//! Wrappers around the API, storage and remotes that count steps and can stop at one of them.

use std::io::{self, Write};
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

use super::kill_switch::KillSwitch;
use crate::archive::{Hasher, StoredFile};
use crate::git::{Checkout, FetchError, Head};
use crate::reconcile::{Origin, Source};
use crate::storage::{ArtifactPath, Draft, FileState, ObjectDirectory, Storage, StorageError};

/// The API of one controller. Checks the stored files after each write.
#[derive(Clone)]
pub(super) struct KillableApi {
    client: Client,
    files: PathBuf,
    switch: KillSwitch,
}

impl KillableApi {
    pub(super) fn client(client: Client, files: PathBuf, switch: KillSwitch) -> Client {
        Client::new(
            Self {
                client,
                files,
                switch,
            },
            "default",
        )
    }

    /// Checks that a status only names an existing file with the right digest.
    fn check(&self, body: &[u8]) {
        let object = serde_json::from_slice::<GitRepository>(body).ok();
        let Some(artifact) = object.and_then(|object| object.status?.artifact) else {
            return;
        };
        let Ok(file) = std::fs::File::open(self.files.join(&artifact.path)) else {
            return self
                .switch
                .record_violation(format!("status names {}, which does not exist", artifact.path));
        };
        let expected: Digest = artifact.digest.parse().unwrap();
        let found = Hasher::of(expected.algorithm(), file).unwrap();
        if found != expected {
            self.switch
                .record_violation(format!("{} is {found}, not {expected}", artifact.path));
        }
    }
}

impl tower::Service<Request<Body>> for KillableApi {
    type Response = Response<Full<Bytes>>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        let written = request.method() != Method::GET && request.uri().path().contains("/gitrepositories/");
        let response = async move {
            let response = this.client.send(request).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            if written && head.status.is_success() {
                this.check(&body);
            }
            Ok(Response::from_parts(head, Full::new(body)))
        };
        let switch = self.switch.clone();
        Box::pin(async move {
            if written {
                switch.step("write", response).await
            } else if switch.is_killed() {
                std::future::pending().await
            } else {
                response.await
            }
        })
    }
}

/// The storage of one controller.
pub(super) struct KillableStorage {
    pub(super) inner: Arc<dyn Storage>,
    pub(super) switch: KillSwitch,
}

/// The error returned to threads of a killed controller.
fn killed() -> StorageError {
    StorageError::Directory {
        source: io::Error::other("killed"),
    }
}

impl KillableStorage {
    fn step<T>(
        &self,
        name: &'static str,
        effect: impl FnOnce() -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        self.switch
            .blocking_step(name, effect)
            .unwrap_or_else(|| Err(killed()))
    }
}

impl Storage for KillableStorage {
    fn create(&self, path: &ArtifactPath) -> Result<Box<dyn Draft>, StorageError> {
        let inner = self.step("create", || self.inner.create(path))?;
        let switch = self.switch.clone();
        Ok(Box::new(KillableDraft { inner, switch }))
    }

    fn verify(&self, path: &ArtifactPath, digest: &str) -> Result<FileState, StorageError> {
        self.step("verify", || self.inner.verify(path, digest))
    }

    fn open(&self, path: &ArtifactPath) -> Result<Box<dyn StoredFile>, StorageError> {
        self.step("open", || self.inner.open(path))
    }

    fn index(&self, path: &ArtifactPath) -> Result<Option<Vec<u8>>, StorageError> {
        self.inner.index(path)
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

    fn free_space(
        &self,
        directory: &ObjectDirectory,
        current: Option<&ArtifactPath>,
        keep: usize,
    ) -> Result<u64, StorageError> {
        self.step("make room", || self.inner.free_space(directory, current, keep))
    }

    fn remove(&self, directory: &ObjectDirectory) -> Result<bool, StorageError> {
        self.step("remove", || self.inner.remove(directory))
    }

    fn directories(&self) -> Result<Vec<ObjectDirectory>, StorageError> {
        self.inner.directories()
    }

    fn url(&self, path: &ArtifactPath) -> String {
        self.inner.url(path)
    }
}

struct KillableDraft {
    inner: Box<dyn Draft>,
    switch: KillSwitch,
}

impl Write for KillableDraft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.switch.is_killed() {
            return Err(io::Error::other("killed"));
        }
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Draft for KillableDraft {
    fn publish(self: Box<Self>, digest: &Digest, index: Option<&[u8]>) -> Result<(), StorageError> {
        let Self { inner, switch } = *self;
        switch
            .blocking_step("publish", || inner.publish(digest, index))
            .unwrap_or_else(|| Err(killed()))
    }
}

/// The remotes of one controller.
pub(super) struct KillableOrigin<O> {
    pub(super) inner: O,
    pub(super) switch: KillSwitch,
}

impl<O: Origin> Origin for KillableOrigin<O> {
    fn head<'a>(&'a self, source: &'a Source, stop: &'a Token) -> BoxFuture<'a, Result<Head, FetchError>> {
        Box::pin(self.switch.step("head", self.inner.head(source, stop)))
    }

    fn fetch<'a>(
        &'a self,
        source: &'a Source,
        head: &'a Head,
        stop: &'a Token,
    ) -> BoxFuture<'a, Result<Checkout, FetchError>> {
        Box::pin(self.switch.step("fetch", self.inner.fetch(source, head, stop)))
    }
}
