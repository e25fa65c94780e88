//! SIGKILL at random moments of a process that writes to a Git store: this test runs again as that process.
//!
//! `SLUICE_STOPS=number` sets how often, and `SLUICE_SEED` repeats the moments.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::json;
use sluice_embedded::{ApiServer, GitOptions, Store};
use sluice_harness::sample::Rng;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::linearizability::Version;
use super::writer::revision;
use super::{LIMIT, OBJECTS, branch_log, listed, newest, number, outage};
use crate::fixture::{CONFIGMAPS, SECRETS, call, eventually, ok, server_on, widget_definition};
use crate::git_store::{git, options, repository};

/// Set for the process that writes: the directory of its files.
const DIRECTORY: &str = "SLUICE_STORE_DIRECTORY";
/// Set for the process that writes, if its repository is a remote one.
const REMOTE: &str = "SLUICE_STORE_REMOTE";
/// How often the process is killed, if `SLUICE_STOPS` does not set another number.
const ROUNDS: usize = 3;
/// Writers of the process.
const WRITERS: usize = 4;
/// Most acknowledged writes of ConfigMaps before a kill.
const MAX_WRITES: usize = 20;
/// Longest time between the last of them and the kill, in microseconds.
const MAX_DELAY: usize = 20_000;
/// Begins the line of an acknowledged write.
const ACKNOWLEDGED: &str = "acknowledged: ";

/// The files of the test.
struct Environment {
    dir: tempfile::TempDir,
    repository: PathBuf,
    is_remote: bool,
}

/// An acknowledged write.
struct Acknowledged {
    name: String,
    /// The write of a ConfigMap; `None` for a Secret, which is not in the repository.
    version: Option<Version>,
}

fn options_of(dir: &Path, is_remote: bool) -> GitOptions {
    let repository = dir.join("objects.git");
    if is_remote {
        outage::remote(dir, &repository)
    } else {
        options(dir, &repository)
    }
}

/// Opens the store as soon as its previous process or server has ended.
async fn open(options: &GitOptions) -> ApiServer {
    let deadline = Instant::now() + LIMIT;
    loop {
        match Store::git(options.clone(), &[widget_definition()]) {
            Ok(store) => return server_on(store),
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::task::yield_now().await;
    }
}

/// The process that writes until it is killed. Does nothing in a normal test run.
#[tokio::test(flavor = "multi_thread")]
async fn run_writer() {
    let Some(dir) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let is_remote = std::env::var_os(REMOTE).is_some();
    let server = open(&options_of(Path::new(&dir), is_remote)).await;
    let writers = (0..WRITERS).map(|writer| write(server.client(), writer));
    futures::future::join_all(writers).await;
}

/// Writes without an end, and prints each acknowledged write. The last writer writes Secrets.
async fn write(client: Client, writer: usize) {
    let process = std::process::id();
    for number in 0_usize.. {
        let token = format!("p{process}-w{writer}-{number}");
        if writer + 1 == WRITERS {
            let secret = json!({"metadata": {"name": token}, "stringData": {"token": token}});
            ok(&client, "POST", SECRETS, Some(&secret)).await;
            print(&token);
            continue;
        }
        let name = format!("o{}", (writer + number) % OBJECTS);
        let object = json!({"metadata": {"name": name}, "data": {"token": token}});
        let changed = call(&client, "PATCH", &format!("{CONFIGMAPS}/{name}"), Some(&object)).await;
        let stored = match changed.code {
            404 => call(&client, "POST", CONFIGMAPS, Some(&object)).await,
            _ => changed,
        };
        if stored.code < 300 {
            print(&format!("{name} {} {token}", revision(&stored.body)));
        }
    }
}

/// Prints a line in one piece. Ends the process when its output is closed, because the test has ended.
fn print(write: &str) {
    let line = format!("{ACKNOWLEDGED}{write}\n");
    let mut output = std::io::stdout().lock();
    if output
        .write_all(line.as_bytes())
        .and_then(|()| output.flush())
        .is_err()
    {
        std::process::exit(1);
    }
}

/// Reads a line of the process. Also one after other output: the test harness may begin the line.
fn parse(line: &str) -> Option<Acknowledged> {
    let (_, write) = line.split_once(ACKNOWLEDGED)?;
    let mut words = write.split(' ');
    let name = words.next()?.to_owned();
    let version = words.next().map(|revision| Version {
        revision: revision.parse().unwrap(),
        token: words.next().map(str::to_owned),
    });
    Some(Acknowledged { name, version })
}

impl Environment {
    fn new(is_remote: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let repository = repository(dir.path());
        Self {
            dir,
            repository,
            is_remote,
        }
    }

    /// Starts the process, and kills it after some of its writes. Returns those that it has acknowledged.
    async fn run_until_killed(&self, rng: &mut Rng) -> Vec<Acknowledged> {
        let log = self.dir.path().join("log");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "git_store_writers::kill::run_writer", "--nocapture"])
            .env(DIRECTORY, self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .kill_on_drop(true);
        if self.is_remote {
            command.env(REMOTE, "1");
        }
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (count, delay) = (1 + rng.below(MAX_WRITES), rng.below(MAX_DELAY));
        let mut acknowledged: Vec<Acknowledged> = Vec::new();
        let is_shared = |write: &&Acknowledged| write.version.is_some();
        while acknowledged.iter().filter(is_shared).count() < count {
            let line = tokio::time::timeout(LIMIT, lines.next_line()).await;
            let line = line.expect("a write in time").unwrap();
            let Some(line) = line else {
                unreachable!(
                    "the process has ended: {}",
                    std::fs::read_to_string(&log).unwrap()
                );
            };
            acknowledged.extend(parse(&line));
        }
        tokio::time::sleep(Duration::from_micros(u64::try_from(delay).unwrap())).await;
        child.kill().await.unwrap();
        // What it acknowledged in the meantime.
        while let Some(line) = lines.next_line().await.unwrap() {
            acknowledged.extend(parse(&line));
        }
        acknowledged
    }

    /// Checks the store after a kill, and that it can be written.
    async fn check(&self, acknowledged: &[Acknowledged], round: usize) {
        if !self.is_remote {
            // As the guide says: a process that is killed while it moves the branch leaves its lock.
            for lock in ["main.lock", "main-status.lock"] {
                drop(std::fs::remove_file(
                    self.repository.join("refs/heads").join(lock),
                ));
            }
        }
        let server = open(&options_of(self.dir.path(), self.is_remote)).await;
        let client = &server.client();
        let repository = self.repository.as_path();
        let object = json!({"metadata": {"name": format!("after-{round}")}, "data": {"token": "next"}});
        let object = &object;
        eventually("the store can be written", || async {
            let response = call(client, "POST", CONFIGMAPS, Some(object)).await;
            response.code == 201 || response.body["reason"] == "AlreadyExists"
        })
        .await;
        // A push of the killed process may still end. The store reads it as a change of another process.
        eventually("the server has the newest versions", || async {
            listed(client).await == newest(&branch_log::versions(repository))
        })
        .await;
        let versions = branch_log::versions(repository);
        let secrets = ok(client, "GET", SECRETS, None).await;
        let secrets = secrets["items"].as_array().unwrap().iter();
        let secrets: BTreeSet<&str> = secrets
            .filter_map(|secret| secret["metadata"]["name"].as_str())
            .collect();
        for Acknowledged { name, version } in acknowledged {
            let stored = match version {
                Some(version) => versions.get(name).is_some_and(|stored| stored.contains(version)),
                None => secrets.contains(name.as_str()),
            };
            assert!(
                stored,
                "round {round}: acknowledged and not stored: {name} {version:?}"
            );
        }
        git(repository, &["fsck", "--full", "--strict", "--no-dangling"]);
    }
}

async fn kill_again_and_again(is_remote: bool) {
    let environment = Environment::new(is_remote);
    let mut rng = Rng::from_environment("kills of a store");
    let mut acknowledged = Vec::new();
    for round in 1..=number("SLUICE_STOPS", ROUNDS) {
        acknowledged.extend(environment.run_until_killed(&mut rng).await);
        environment.check(&acknowledged, round).await;
    }
    assert!(!acknowledged.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_leaves_each_acknowledged_write_and_nothing_half_written() {
    kill_again_and_again(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_killed_while_it_pushes_leaves_each_acknowledged_write() {
    kill_again_and_again(true).await;
}
