//! A running controller and its operations.

use std::time::Duration;

use clap::Parser as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::source::{Artifact, GitRepository, GitRepositoryStatus};
use sluice_embedded::{ApiServer, Store};
use sluice_runtime::shutdown::Token;
use sluice_source_controller::{Options, Running, run};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub(crate) const LIMIT: Duration = Duration::from_secs(50);

/// A controller with its own API.
pub(crate) struct Controller {
    pub(crate) objects: Api<GitRepository>,
    pub(crate) stop: Token,
    pub(crate) running: Running,
    pub(crate) storage: tempfile::TempDir,
}

/// Returns an API with our CRDs.
pub(crate) fn api() -> ApiServer {
    ApiServer::builder()
        .crds(sluice_api::crds())
        .store(Store::memory())
        .build()
        .unwrap()
}

/// Starts a controller with its own API and storage.
pub(crate) async fn start(further: &[&str]) -> Controller {
    start_on(api().client(), tempfile::tempdir().unwrap(), further).await
}

/// Starts a controller with this API and storage.
pub(crate) async fn start_on(client: Client, storage: tempfile::TempDir, further: &[&str]) -> Controller {
    let path = format!("--storage-path={}", storage.path().display());
    let all = [
        "--storage-addr=127.0.0.1:0",
        "--metrics-addr=127.0.0.1:0",
        "--health-addr=127.0.0.1:0",
    ];
    let arguments = ["source-controller", &path]
        .into_iter()
        .chain(all)
        .chain(further.iter().copied());
    let stop = Token::new();
    let running = run(Options::parse_from(arguments), client.clone(), stop.clone())
        .await
        .unwrap();
    Controller {
        objects: Api::namespaced(client, "default"),
        stop,
        running,
        storage,
    }
}

impl Controller {
    pub(crate) async fn create(&self, name: &str, url: &str, timeout: &str) {
        let object = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": name },
            "spec": { "url": url, "interval": "10m", "timeout": timeout, "ref": { "branch": "main" } },
        });
        let object = serde_json::from_value(object).unwrap();
        self.objects
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
    }

    /// Waits until the object is ready with an artifact of this commit.
    pub(crate) async fn ready(&self, name: &str, commit: &str) -> Artifact {
        let status = self.until(name, |status| {
            let mut ready = status.conditions.iter().filter(|c| c.type_ == "Ready");
            let artifact = status.artifact.as_ref();
            ready.any(|c| c.status == "True")
                && artifact.is_some_and(|artifact| artifact.revision.ends_with(commit))
        });
        status.await.artifact.unwrap()
    }

    /// Waits until the object's status fulfils the condition.
    pub(crate) async fn until(
        &self,
        name: &str,
        expected: impl Fn(&GitRepositoryStatus) -> bool,
    ) -> GitRepositoryStatus {
        let there = |object: Option<&GitRepository>| {
            let status = object.and_then(|object| object.status.as_ref());
            status.is_some_and(&expected)
        };
        let waiting = await_condition(self.objects.clone(), name, there);
        let found = tokio::time::timeout(LIMIT, waiting).await;
        found.expect("in time").unwrap().unwrap().status.unwrap()
    }

    /// Deletes the object and waits until it is gone.
    pub(crate) async fn delete(&self, name: &str) {
        self.objects.delete(name, &DeleteParams::default()).await.unwrap();
        let gone = |object: Option<&GitRepository>| object.is_none();
        let waiting = await_condition(self.objects.clone(), name, gone);
        let found = tokio::time::timeout(LIMIT, waiting).await;
        found.expect("gone in time").unwrap();
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) {
        self.objects
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(LIMIT, self.running.wait())
            .await
            .expect("an end in time");
    }
}

/// Returns the body of `http://<address>/<path>`.
pub(crate) async fn get(url: &str) -> Vec<u8> {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert!(
            answer.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&answer[..40])
        );
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        answer.split_off(end + 4)
    };
    tokio::time::timeout(LIMIT, exchange).await.unwrap()
}
