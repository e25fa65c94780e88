//! The whole controller, started as programs start it: a push becomes bytes behind the URL in a status.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::time::Duration;

use clap::Parser as _;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::source::{Artifact, GitRepository};
use sluice_embedded::{Server, Store};
use sluice_harness::git::{Fault, GitServer, Injection, Repository, Scope};
use sluice_runtime::shutdown::Token;
use sluice_source_controller::archive::{Algorithm, Hasher};
use sluice_source_controller::{Options, Running, run};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const LIMIT: Duration = Duration::from_secs(50);

struct Started {
    objects: Api<GitRepository>,
    stop: Token,
    running: Running,
    _storage: tempfile::TempDir,
}

async fn start(further: &[&str]) -> Started {
    let api = Server::builder()
        .crds(sluice_api::crds())
        .store(Store::memory())
        .build()
        .unwrap();
    let client: Client = api.client();
    let storage = tempfile::tempdir().unwrap();
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
    Started {
        objects: Api::namespaced(client, "default"),
        stop,
        running,
        _storage: storage,
    }
}

impl Started {
    async fn create(&self, name: &str, url: &str, timeout: &str) {
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

    /// Waits until the object has an artifact of this commit and is ready.
    async fn ready(&self, name: &str, commit: &str) -> Artifact {
        let there = |object: Option<&GitRepository>| {
            let status = object.and_then(|object| object.status.as_ref());
            status.is_some_and(|status| {
                let ready = status
                    .conditions
                    .iter()
                    .any(|c| c.type_ == "Ready" && c.status == "True");
                ready
                    && status
                        .artifact
                        .as_ref()
                        .is_some_and(|artifact| artifact.revision.ends_with(commit))
            })
        };
        let waited = tokio::time::timeout(LIMIT, await_condition(self.objects.clone(), name, there)).await;
        waited
            .expect("ready in time")
            .unwrap()
            .unwrap()
            .status
            .unwrap()
            .artifact
            .unwrap()
    }

    async fn patch(&self, name: &str, patch: Value) {
        self.objects
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(LIMIT, self.running.ended())
            .await
            .expect("an end in time");
    }
}

/// The body behind `http://<address>/<path>`.
async fn get(url: &str) -> Vec<u8> {
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

#[tokio::test]
async fn a_push_becomes_bytes_behind_a_url() {
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    let first = repository
        .commit_files(&[("main.tf", "locals {}\n")], "first")
        .unwrap();
    let started = start(&[]).await;
    started
        .create("app", &server.serve("app", &repository), "20s")
        .await;
    let one = started.ready("app", &first).await;
    let second = repository
        .commit_files(&[("main.tf", "locals { a = 1 }\n")], "second")
        .unwrap();
    let asked = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "now" } } });
    started.patch("app", asked).await;
    let two = started.ready("app", &second).await;
    for artifact in [&one, &two] {
        let content = get(&artifact.url).await;
        assert_eq!(Some(i64::try_from(content.len()).unwrap()), artifact.size);
        let digest = Hasher::of(Algorithm::Sha256, content.as_slice()).unwrap();
        assert_eq!(digest.to_string(), artifact.digest);
    }
    let metrics = get(&format!("http://{}/metrics", started.running.metrics.unwrap())).await;
    let metrics = String::from_utf8(metrics).unwrap();
    assert!(metrics.contains("gotk_reconcile_duration_seconds"), "{metrics}");
    get(&format!("http://{}/healthz", started.running.health.unwrap())).await;
    get(&format!("http://{}/", started.running.artifacts)).await;
    started.end().await;
}

#[tokio::test]
async fn many_hung_remotes_do_not_delay_a_good_one() {
    let (server, good) = (
        GitServer::start().await.unwrap(),
        GitServer::start().await.unwrap(),
    );
    let repository = Repository::create().unwrap();
    let commit = repository.commit_files(&[("main.tf", "")], "first").unwrap();
    let hung = server.serve("hung", &repository);
    server.inject(Injection::new(Scope::Any, Fault::Hung));
    let started = start(&["--concurrent=1"]).await;
    for n in 0..30 {
        started.create(&format!("hung-{n}"), &hung, "60s").await;
    }
    // Longer than the wait below: none of the others has been given up by then.
    started
        .create("good", &good.serve("good", &repository), "60s")
        .await;
    started.ready("good", &commit).await;
    started.stop.cancel();
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error_at_once() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let storage = tempfile::tempdir().unwrap();
    let api = Server::builder()
        .crds(sluice_api::crds())
        .store(Store::memory())
        .build()
        .unwrap();
    let options = Options::parse_from([
        "source-controller".to_owned(),
        format!("--storage-path={}", storage.path().display()),
        format!("--storage-addr={}", taken.local_addr().unwrap()),
    ]);
    let error = run(options, api.client(), Token::new()).await.unwrap_err();
    assert!(error.to_string().contains("--storage-addr"), "{error}");
}

/// A receiver of events that answers 202; gives its address and the bodies that came.
async fn receiver() -> (String, tokio::sync::mpsc::UnboundedReceiver<Value>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let (sender, bodies) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            let body = loop {
                stream.read_buf(&mut request).await.unwrap();
                let end = request.windows(4).position(|w| w == b"\r\n\r\n");
                let body = end.and_then(|end| serde_json::from_slice::<Value>(&request[end + 4..]).ok());
                if let Some(body) = body {
                    break body;
                }
            };
            let answer = b"HTTP/1.1 202 Accepted\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            sender.send(body).unwrap();
        }
    });
    (address, bodies)
}

#[tokio::test]
async fn a_receiver_of_events_hears_of_a_new_artifact() {
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    let commit = repository.commit_files(&[("main.tf", "")], "first").unwrap();
    let (address, mut bodies) = receiver().await;
    let started = start(&[&format!("--events-addr={address}")]).await;
    started
        .create("app", &server.serve("app", &repository), "20s")
        .await;
    let artifact = started.ready("app", &commit).await;
    let body = tokio::time::timeout(LIMIT, bodies.recv()).await.unwrap().unwrap();
    let object = &body["involvedObject"];
    assert_eq!(object["apiVersion"], "source.toolkit.fluxcd.io/v1");
    assert_eq!(
        (&object["kind"], &object["name"], &object["namespace"]),
        (&json!("GitRepository"), &json!("app"), &json!("default"))
    );
    assert!(object["uid"].is_string() && object["resourceVersion"].is_string());
    assert_eq!(
        (&body["severity"], &body["reason"]),
        (&json!("info"), &json!("NewArtifact"))
    );
    assert_eq!(
        body["metadata"],
        json!({
            "source.toolkit.fluxcd.io/revision": artifact.revision,
            "source.toolkit.fluxcd.io/digest": artifact.digest,
        })
    );
    assert_eq!(body["reportingController"], "source-controller");
    started.end().await;
}

#[tokio::test]
async fn a_receiver_that_is_away_delays_no_artifact_and_no_end() {
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    let commit = repository.commit_files(&[("main.tf", "")], "first").unwrap();
    // Accepts and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("--events-addr=http://{}/", silent.local_addr().unwrap());
    let started = start(&[&address]).await;
    started
        .create("app", &server.serve("app", &repository), "20s")
        .await;
    started.ready("app", &commit).await;
    started.end().await;
}
