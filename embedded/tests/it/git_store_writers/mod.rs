//! Many writers on Git stores: no write is lost or stored twice, whatever the other writers, the remote repository and SIGKILL do.

mod branch_log;
mod kill;
mod linearizability;
mod outage;
mod writer;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use kube::Client;
use serde_json::json;
use sluice_embedded::{ApiServer, GitOptions, StatusLocation, Store};
use sluice_harness::sample::Rng;
use tokio::task::JoinSet;

use self::linearizability::{Operation, Version, check};
use self::writer::{Counters, Writer, revision};
use crate::fixture::{CONFIGMAPS, eventually, ok, server_on, widget_definition};
use crate::git_store::{options, repository};
use crate::watch::watch;

/// Writers, each on one of the servers.
const WRITERS: usize = 8;
/// Objects that they share.
const OBJECTS: usize = 20;
/// Number of acknowledged writes, if `SLUICE_WRITES` does not set another one.
const WRITES: usize = 400;
/// Limit of the time of one write, with its attempts that are refused.
const TIME_OF_WRITE: Duration = Duration::from_millis(200);
/// Limit of the time of the rest.
const LIMIT: Duration = Duration::from_mins(1);
/// Name of the object that ends a watch.
const LAST: &str = "last";

/// The versions of each object.
type Versions = BTreeMap<String, Vec<Version>>;
/// The requests about each object.
type Operations = BTreeMap<String, Vec<Operation>>;

/// Returns the number in an environment variable.
fn number(variable: &str, default: usize) -> usize {
    let number = std::env::var(variable)
        .ok()
        .and_then(|number| number.parse().ok());
    number.unwrap_or(default)
}

/// Starts a server with a directory of its own below `dir`, to which `options` adds the repository.
fn server(dir: &Path, name: &str, options: impl Fn(&Path) -> GitOptions) -> ApiServer {
    let own = dir.join(name);
    std::fs::create_dir_all(&own).unwrap();
    server_on(Store::git(options(&own), &[widget_definition()]).unwrap())
}

/// Starts writers, which share the servers evenly, until `total` of their writes are acknowledged.
fn start(
    servers: &[ApiServer],
    count: usize,
    total: usize,
    counters: &Counters,
) -> JoinSet<Vec<(String, Operation)>> {
    let mut rng = Rng::from_environment("writers");
    let mut tasks = JoinSet::new();
    for number in 0..count {
        let at = number % servers.len();
        let own = Rng::from_seed(rng.next_u64());
        let writer = Writer::new(number, (at, servers[at].client()), own, OBJECTS, counters);
        tasks.spawn(writer.run(total / count));
    }
    tasks
}

/// Waits for the writers.
async fn finish(tasks: JoinSet<Vec<(String, Operation)>>, limit: Duration) -> Operations {
    let all = tokio::time::timeout(limit, tasks.join_all()).await;
    let mut operations = Operations::new();
    for (name, operation) in all.expect("the writers end in time").into_iter().flatten() {
        operations.entry(name).or_default().push(operation);
    }
    operations
}

/// Checks the requests about each object against its versions.
fn check_all(versions: &Versions, operations: &Operations) {
    for name in versions.keys() {
        assert!(operations.contains_key(name), "no writer has written {name}");
    }
    for (name, operations) in operations {
        let versions = versions.get(name).map_or(&[][..], Vec::as_slice);
        assert_eq!(check(versions, operations), Ok(()), "{name}");
    }
}

/// Returns the resourceVersions of the objects of a server by name.
async fn listed(client: &Client) -> BTreeMap<String, u64> {
    let list = ok(client, "GET", CONFIGMAPS, None).await;
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| {
            let name = item["metadata"]["name"].as_str().unwrap();
            (name.to_owned(), revision(item))
        })
        .collect()
}

/// Returns the resourceVersions of the objects that exist.
fn newest(versions: &Versions) -> BTreeMap<String, u64> {
    let existing = versions.iter().filter_map(|(name, versions)| {
        let newest = versions.last().filter(|version| version.token.is_some())?;
        Some((name.clone(), newest.revision))
    });
    existing.collect()
}

/// Returns the versions that a watch from a resourceVersion sees before the object [`LAST`].
async fn watched(client: &Client, since: u64) -> Versions {
    let mut events = watch(client, &format!("{CONFIGMAPS}?watch=1&resourceVersion={since}")).await;
    let mut versions = Versions::new();
    loop {
        let (type_, object) = events.next().await.expect("the watch goes on");
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        if name == LAST {
            return versions;
        }
        let token = object["data"]["token"].as_str().map(str::to_owned);
        let version = Version {
            revision: revision(&object),
            token: token.filter(|_| type_ != "DELETED"),
        };
        versions.entry(name).or_default().push(version);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_lose_none_of_the_writes_of_eight_writers() {
    write_on_two_servers(StatusLocation::Branch).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_lose_none_of_the_writes_of_eight_writers_with_the_status_in_files() {
    write_on_two_servers(StatusLocation::File).await;
}

/// Lets eight writers write on two servers, and checks that each write is there once.
async fn write_on_two_servers(status: StatusLocation) {
    let dir = tempfile::tempdir().unwrap();
    let repository = repository(dir.path());
    let total = number("SLUICE_WRITES", WRITES) / WRITERS * WRITERS;
    let open = |name: &str| {
        server(dir.path(), name, |own| GitOptions {
            status,
            ..options(own, &repository)
        })
    };
    let servers = [open("a"), open("b")];
    let [first, second] = servers.each_ref().map(ApiServer::client);
    let since = [
        revision(&ok(&first, "GET", CONFIGMAPS, None).await),
        revision(&ok(&second, "GET", CONFIGMAPS, None).await),
    ];
    let counters = Counters::default();
    let tasks = start(&servers, WRITERS, total, &counters);
    let writing = async {
        let limit = LIMIT + TIME_OF_WRITE * u32::try_from(total).unwrap();
        let operations = finish(tasks, limit).await;
        let last = json!({"metadata": {"name": LAST}, "data": {"token": LAST}});
        ok(&first, "POST", CONFIGMAPS, Some(&last)).await;
        operations
    };
    let (operations, by_first, by_second) =
        tokio::join!(writing, watched(&first, since[0]), watched(&second, since[1]));
    assert_eq!(counters.errors(), 0, "no write of a local repository fails");

    let mut versions = branch_log::versions(&repository);
    let expected = newest(&versions);
    for client in [&first, &second] {
        eventually("the server has the newest versions", || async {
            listed(client).await == expected
        })
        .await;
    }
    versions.remove(LAST);
    check_all(&versions, &operations);
    let count: usize = versions.values().map(Vec::len).sum();
    assert_eq!(count, total);
    assert_eq!(by_first, versions, "a watch sees each version once, in order");
    assert_eq!(by_second, versions, "and so does one on the other server");
}
