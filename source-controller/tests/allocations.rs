//! Counts the allocations of reconciliations without changes. The crate that counts replaces the allocator of the whole program, so this test
//! has a program of its own.

#![expect(
    clippy::unwrap_used,
    reason = "a test says what failed by failing; clippy exempts only the test functions themselves"
)]

use std::path::Path;
use std::time::Duration;

use clap::Parser as _;
use kube::api::PostParams;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::json;
use sluice_api::source::GitRepository;
use sluice_embedded::{ApiServer, Store};
use sluice_harness::git::{GitServer, Repository, Step};
use sluice_runtime::leader::LeadershipEnd;
use sluice_runtime::shutdown::Token;
use sluice_source_controller::{Options, Running, run};
use tokio::runtime::{Builder, Runtime};

/// Timeout of every wait.
const LIMIT: Duration = Duration::from_secs(50);
/// Objects, each with a repository of its own and a reconciliation a second.
const OBJECTS: usize = 4;
/// Reconciliations that are counted.
const RECONCILIATIONS: usize = 12;
/// The most allocations of a reconciliation, and their bytes. A client or the certificates of authorities take many thousands.
const ALLOCATIONS: u64 = 250;
const BYTES: u64 = 64 << 10;

#[test]
fn a_reconciliation_without_changes_allocates_little() {
    // The Git server has other threads than the controller, whose only thread is counted.
    let servers = Runtime::new().unwrap();
    let server = servers.block_on(GitServer::start()).unwrap();
    let repository = Repository::create().unwrap();
    repository
        .commit_files(&[("main.tf", "locals {}\n")], "first")
        .unwrap();
    let (storage, stop) = (tempfile::tempdir().unwrap(), Token::new());
    let controller = Builder::new_current_thread().enable_all().build().unwrap();
    let (api, client, running) = controller.block_on(start(storage.path(), &stop));
    for number in 0..OBJECTS {
        let name = format!("app-{number}");
        let url = server.serve(&name, &repository);
        controller.block_on(create(&client, &name, &url));
    }
    controller.block_on(wait_for_lookups(&server, RECONCILIATIONS));
    let before = server.requests().len();
    let expected = server.count(Step::LsRefs) + RECONCILIATIONS;
    let counted = allocation_counter::measure(|| {
        controller.block_on(wait_for_lookups(&server, expected));
    });
    let reconciliations = (server.requests().len() - before) as u64;
    stop.cancel();
    assert_eq!(controller.block_on(running.wait()), LeadershipEnd::Released);
    drop(api);
    assert_eq!(server.count(Step::Fetch), OBJECTS, "a reconciliation had changes");
    let (allocations, bytes) = (
        counted.count_total / reconciliations,
        counted.bytes_total / reconciliations,
    );
    eprintln!("a reconciliation without changes: {allocations} allocations, {bytes} bytes");
    assert!(allocations > 0, "nothing was counted");
    assert!(allocations <= ALLOCATIONS, "{allocations} allocations");
    assert!(bytes <= BYTES, "{bytes} bytes");
}

/// Starts an API and the controller.
async fn start(storage: &Path, stop: &Token) -> (ApiServer, Client, Running) {
    let api = ApiServer::builder()
        .crds(sluice_api::crds())
        .store(Store::memory())
        .build()
        .unwrap();
    let client = api.client();
    let path = format!("--storage-path={}", storage.display());
    let options = [
        "source-controller",
        &path,
        "--storage-addr=127.0.0.1:0",
        "--metrics-addr=0",
        "--health-addr=0",
        "--runtime-namespace=default",
    ];
    let running = run(Options::parse_from(options), client.clone(), stop.clone());
    (api, client, running.await.unwrap())
}

/// Creates an object and waits for its artifact.
async fn create(client: &Client, name: &str, url: &str) {
    let object = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": name },
        "spec": { "url": url, "interval": "1s", "timeout": "20s", "ref": { "branch": "main" } },
    });
    let objects: Api<GitRepository> = Api::namespaced(client.clone(), "default");
    let object = serde_json::from_value(object).unwrap();
    objects.create(&PostParams::default(), &object).await.unwrap();
    let has_artifact = |object: Option<&GitRepository>| {
        let status = object.and_then(|object| object.status.as_ref());
        status.is_some_and(|status| status.artifact.is_some())
    };
    let shown = await_condition(objects, name, has_artifact);
    tokio::time::timeout(LIMIT, shown).await.unwrap().unwrap();
}

/// Waits until this many lookups were sent in all. Reading the log of the server is not counted.
async fn wait_for_lookups(server: &GitServer, expected: usize) {
    let waiting = async {
        let mut sent = 0;
        while sent < expected {
            tokio::time::sleep(Duration::from_millis(20)).await;
            allocation_counter::opt_out(|| sent = server.count(Step::LsRefs));
        }
    };
    tokio::time::timeout(LIMIT, waiting).await.unwrap();
}
