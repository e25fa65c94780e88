//! Tests of several instances on one API: replicas with a leader, and shards.

#![expect(
    clippy::unwrap_used,
    reason = "a test says what failed by failing; clippy exempts only the test functions themselves"
)]

use std::time::Duration;

use clap::Parser as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::json;
use sluice_api::source::GitRepository;
use sluice_embedded::{ApiServer, Store};
use sluice_harness::git::{GitServer, Repository};
use sluice_runtime::leader::LeadershipEnd;
use sluice_runtime::shutdown::Token;
use sluice_source_controller::storage::bucket::Bucket;
use sluice_source_controller::{Options, Running, StartError, Stop, run};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

#[path = "instances/replicas.rs"]
mod replicas;

const LIMIT: Duration = Duration::from_secs(50);
const LEASE: &str = "source-controller-leader-election";
/// Short leader election periods.
const QUICK: [&str; 4] = [
    "--enable-leader-election",
    "--leader-election-lease-duration=2s",
    "--leader-election-renew-deadline=1500ms",
    "--leader-election-retry-period=100ms",
];

fn api() -> ApiServer {
    ApiServer::builder()
        .crds(sluice_api::crds())
        .store(Store::memory())
        .build()
        .unwrap()
}

/// An instance of the controller, which may still wait for leadership.
struct Instance {
    stop: Token,
    started: JoinHandle<Result<Running, StartError>>,
    _storage: tempfile::TempDir,
}

fn start(client: &Client, further: &[&str]) -> Instance {
    start_with(client, further, None)
}

/// As [`start`], with the artifacts in a bucket.
fn start_with(client: &Client, further: &[&str], bucket: Option<Bucket>) -> Instance {
    start_until(client, further, bucket, Token::new().into())
}

/// As [`start_with`], until these requests to stop.
fn start_until(client: &Client, further: &[&str], bucket: Option<Bucket>, stop: Stop) -> Instance {
    let storage = tempfile::tempdir().unwrap();
    let path = format!("--storage-path={}", storage.path().display());
    let all = [
        "source-controller",
        &path,
        "--storage-addr=127.0.0.1:0",
        "--metrics-addr=0",
        "--health-addr=0",
        "--runtime-namespace=default",
    ];
    let mut arguments: Vec<String> = all.map(str::to_owned).to_vec();
    for flag in further {
        let name = format!("{}=", flag.split('=').next().unwrap());
        arguments.retain(|argument| !argument.starts_with(&name));
        arguments.push((*flag).to_owned());
    }
    let mut options = Options::parse_from(arguments);
    options.bucket.open_bucket = bucket;
    let started = run(options, client.clone(), stop.clone());
    Instance {
        stop: stop.work,
        started: tokio::spawn(started),
        _storage: storage,
    }
}

impl Instance {
    async fn running(&mut self) -> Running {
        soon(&mut self.started).await.unwrap().unwrap()
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("done in time")
}

fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Returns the status of `GET /<path>`; `None` if nothing listens.
async fn status(address: &str, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    // The body may be an artifact.
    let mut response = Vec::new();
    soon(stream.read_to_end(&mut response)).await.ok()?;
    String::from_utf8_lossy(&response).split(' ').nth(1)?.parse().ok()
}

async fn create(client: &Client, name: &str, labels: serde_json::Value, url: &str) {
    let object = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": { "name": name, "labels": labels },
        "spec": { "url": url, "interval": "10m", "timeout": "20s", "ref": { "branch": "main" } },
    });
    let objects: Api<GitRepository> = Api::namespaced(client.clone(), "default");
    let object = serde_json::from_value(object).unwrap();
    objects.create(&PostParams::default(), &object).await.unwrap();
}

/// Waits for the artifact of an object; returns the address in its URL.
async fn served_at(client: &Client, name: &str) -> String {
    let objects: Api<GitRepository> = Api::namespaced(client.clone(), "default");
    let url = |object: &GitRepository| Some(object.status.as_ref()?.artifact.as_ref()?.url.clone());
    let has_artifact = |object: Option<&GitRepository>| object.and_then(url).is_some();
    let object = soon(await_condition(objects, name, has_artifact)).await.unwrap();
    let url = url(&object.unwrap()).unwrap();
    url.split('/').nth(2).unwrap().to_owned()
}

#[tokio::test]
async fn only_the_leader_serves_artifacts_until_its_successor_takes_over() {
    let api = api();
    let client = api.client();
    let mut first = start(&client, &QUICK);
    let running = first.running().await;
    let (storage, health) = (free_address(), free_address());
    let flags = [
        format!("--storage-addr={storage}"),
        format!("--health-addr={health}"),
    ];
    let flags: Vec<&str> = QUICK
        .into_iter()
        .chain(flags.iter().map(String::as_str))
        .collect();
    let mut second = start(&client, &flags);
    soon(async {
        while status(&health, "healthz").await != Some(200) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(status(&health, "readyz").await, Some(200));
    assert_eq!(status(&storage, "").await, None, "two file servers");
    assert_eq!(status(&running.artifacts.to_string(), "").await, Some(200));

    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    repository.commit_files(&[("main.tf", "")], "first").unwrap();
    create(&client, "app", json!({}), &server.serve("app", &repository)).await;
    assert_eq!(served_at(&client, "app").await, running.artifacts.to_string());
    assert!(!second.started.is_finished());

    first.stop.cancel();
    assert_eq!(soon(running.wait()).await, LeadershipEnd::Released);
    let running = second.running().await;
    assert_eq!(running.artifacts.to_string(), storage);
    assert_eq!(status(&storage, "").await, Some(200));
    second.stop.cancel();
    assert_eq!(soon(running.wait()).await, LeadershipEnd::Released);
    let leases: Api<Lease> = Api::namespaced(client, "default");
    let spec = leases.get(LEASE).await.unwrap().spec.unwrap();
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_transitions),
        (Some(""), Some(1))
    );
}

/// Returns the page at an address.
async fn page(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    soon(stream.read_to_string(&mut response)).await.unwrap();
    response
}

#[tokio::test]
async fn metrics_cover_queue_reconciliations_and_leadership() {
    let api = api();
    let client = api.client();
    let flags: Vec<&str> = QUICK.into_iter().chain(["--metrics-addr=127.0.0.1:0"]).collect();
    let mut instance = start(&client, &flags);
    let running = instance.running().await;
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    repository.commit_files(&[("main.tf", "")], "first").unwrap();
    create(&client, "app", json!({}), &server.serve("app", &repository)).await;
    served_at(&client, "app").await;
    let metrics = running.metrics.unwrap().to_string();
    let queue = "{name=\"gitrepository\",controller=\"gitrepository\"} ";
    let expected = [
        format!("workqueue_adds_total{queue}"),
        format!("workqueue_work_duration_seconds_count{queue}"),
        format!("workqueue_queue_duration_seconds_count{queue}"),
        "gotk_reconcile_duration_seconds_count{kind=\"GitRepository\",name=\"app\",namespace=\"default\"} "
            .into(),
        format!("leader_election_master_status{{name=\"{LEASE}\"}} "),
    ];
    // The reconciliation that wrote the status ends slightly later.
    soon(async {
        loop {
            let text = page(&metrics, "metrics").await;
            let positive = |start: &String| {
                let value = text.lines().find_map(|line| line.strip_prefix(start.as_str()));
                value.is_some_and(|value| value.parse::<f64>().unwrap() > 0.0)
            };
            if expected.iter().all(positive) {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(
        page(&metrics, "debug/pprof/heap")
            .await
            .starts_with("HTTP/1.1 404")
    );
    instance.stop.cancel();
    assert_eq!(soon(running.wait()).await, LeadershipEnd::Released);
}

#[tokio::test]
async fn a_lost_lease_ends_the_controller_at_once() {
    let api = api();
    let client = api.client();
    let mut instance = start(&client, &QUICK);
    let running = instance.running().await;
    let leases: Api<Lease> = Api::namespaced(client, "default");
    let patch = Patch::Merge(json!({ "spec": { "holderIdentity": "somebody else" } }));
    leases
        .patch(LEASE, &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(soon(running.wait()).await, LeadershipEnd::Lost);
    assert!(!instance.stop.is_cancelled());
}

#[tokio::test]
async fn an_instance_stopped_while_waiting_for_leadership_ends_gracefully() {
    let api = api();
    let client = api.client();
    let mut first = start(&client, &QUICK);
    let _running = first.running().await;
    let second = start(&client, &QUICK);
    second.stop.cancel();
    let ended = soon(second.started).await.unwrap();
    assert!(matches!(ended, Err(StartError::Stopped)));
    first.stop.cancel();
}

#[tokio::test]
async fn each_shard_handles_its_own_objects_with_its_own_lease() {
    let api = api();
    let client = api.client();
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    repository.commit_files(&[("main.tf", "")], "first").unwrap();
    let url = server.serve("app", &repository);
    let selectors = [
        "!sharding.fluxcd.io/key",
        "sharding.fluxcd.io/key=shard1",
        "sharding.fluxcd.io/key in (shard2,shard3)",
    ];
    let mut instances = Vec::new();
    for selector in selectors {
        let selector = format!("--watch-label-selector={selector}");
        let flags: Vec<&str> = QUICK.into_iter().chain([&*selector]).collect();
        let mut instance = start(&client, &flags);
        // All are leaders, since each has its own Lease.
        let running = instance.running().await;
        instances.push((instance, running));
    }
    let shard = |name: &str| json!({ "sharding.fluxcd.io/key": name });
    let objects = [
        ("plain", json!({ "other": "x" }), 0),
        ("one", shard("shard1"), 1),
        ("two", shard("shard2"), 2),
        ("three", shard("shard3"), 2),
    ];
    for (name, labels, _) in &objects {
        create(&client, name, labels.clone(), &url).await;
    }
    for (name, _, instance) in objects {
        let expected = instances[instance].1.artifacts.to_string();
        assert_eq!(served_at(&client, name).await, expected, "{name}");
    }
    let leases: Api<Lease> = Api::namespaced(client, "default");
    let mut names: Vec<_> = leases
        .list(&kube::api::ListParams::default())
        .await
        .unwrap()
        .into_iter()
        .map(|lease| lease.metadata.name.unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names.len(), 3);
    assert!(names.contains(&format!("{LEASE}-73fdc1be")), "{names:?}");
    for (instance, running) in instances {
        instance.stop.cancel();
        assert_eq!(soon(running.wait()).await, LeadershipEnd::Released);
    }
}

#[tokio::test]
async fn an_instance_of_one_namespace_ignores_others() {
    let api = api();
    let client = api.client();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": "team" } })).unwrap();
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    repository.commit_files(&[("main.tf", "")], "first").unwrap();
    let url = server.serve("app", &repository);
    let mut team = start(
        &client,
        &["--watch-all-namespaces=false", "--runtime-namespace=team"],
    );
    let running = team.running().await;
    create(&client, "app", json!({}), &url).await;
    // An instance without a namespace watches all of them.
    let mut all = start(&client, &["--watch-all-namespaces=false", "--runtime-namespace="]);
    let everywhere = all.running().await;
    assert_eq!(served_at(&client, "app").await, everywhere.artifacts.to_string());
    for (instance, running) in [(team, running), (all, everywhere)] {
        instance.stop.cancel();
        assert_eq!(soon(running.wait()).await, LeadershipEnd::Released);
    }
}
