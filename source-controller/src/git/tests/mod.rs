//! Tests with the real `git http-backend` and repositories of the real `git`.

mod assumptions;
mod faults;
mod hostile;
mod lookup;
mod mirrors;
mod names;
mod older_versions;
mod partial;
mod pins;
mod proxies;
mod redirects;
mod retries;
mod ssh;
mod tags;
mod tls;
mod transfer;
mod trees;
mod versions;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sluice_harness::git::{GitServer, Repository, Step};
use sluice_harness::sample::noise;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;

/// Timeout of every wait in a test.
const DEADLINE: Duration = Duration::from_mins(1);

/// Opens a directory of mirrors again. A process that another test is starting may hold a copy of the lock until its `exec`.
fn reopen(root: &Path) -> Mirrors {
    Mirrors::with_limits(root, DiskLimits::default(), DEADLINE).unwrap()
}

/// A repository, a server that serves it, and an empty directory of mirrors.
struct TestEnvironment {
    repository: Repository,
    server: GitServer,
    url: String,
    mirrors: Mirrors,
    transport: Transport,
    root: TempDir,
}

impl TestEnvironment {
    async fn new() -> Self {
        Self::of(Repository::create().unwrap()).await
    }

    async fn of(repository: Repository) -> Self {
        let server = GitServer::start().await.unwrap();
        let url = server.serve("stack", &repository);
        let root = TempDir::new().unwrap();
        let mirrors = Mirrors::new(root.path()).unwrap();
        Self {
            repository,
            server,
            url,
            mirrors,
            transport: Transport::new().unwrap(),
            root,
        }
    }

    /// Creates one commit of 100 files on `main`, 0.8 MB that compress badly.
    async fn with_files() -> Self {
        let env = Self::new().await;
        for number in 0..100 {
            env.repository
                .write(&format!("modules/{number}/main.tf"), noise(number, 8192))
                .unwrap();
        }
        env.repository.commit("First\n\nwith a body").unwrap();
        env
    }

    fn remote(&self) -> Remote {
        self.remote_at(&self.url)
    }

    fn remote_at(&self, url: &str) -> Remote {
        let address = Address::parse(url).unwrap();
        let credentials = Credentials::resolve(&address, None).unwrap();
        let access = Access {
            address,
            credentials,
            tls: Arc::default(),
            proxy: None,
            owner: Owner::default(),
        };
        Remote {
            transport: self.transport.clone(),
            access: access.into(),
            timeout: DEADLINE,
            limits: Limits::default(),
        }
    }

    async fn head(&self, reference: &Reference) -> Result<Head, FetchError> {
        self.head_at(&self.remote(), reference).await
    }

    async fn head_at(&self, remote: &Remote, reference: &Reference) -> Result<Head, FetchError> {
        let mirror = self.mirrors.open(remote);
        let heads = bounded(resolve(
            &mirror,
            remote,
            reference,
            &[],
            &CancellationToken::new(),
        ))
        .await;
        heads.map(|heads| heads.head)
    }

    async fn fetch(&self, reference: &Reference) -> Result<Checkout, FetchError> {
        self.fetch_from(&self.remote(), reference).await
    }

    async fn fetch_from(&self, remote: &Remote, reference: &Reference) -> Result<Checkout, FetchError> {
        let head = self.head_at(remote, reference).await?;
        let mirror = self.mirrors.open(remote);
        bounded(fetch(&mirror, remote, &head, &CancellationToken::new())).await
    }

    /// Returns the kinds of the requests since the previous call.
    fn steps(&self) -> Vec<Step> {
        let steps = self
            .server
            .requests()
            .iter()
            .map(|request| request.step)
            .collect();
        self.server.clear_requests();
        steps
    }

    /// Returns the size of the last response to a fetch in bytes.
    fn fetched_bytes(&self) -> u64 {
        let requests = self.server.requests();
        requests
            .iter()
            .rfind(|request| request.step == Step::Fetch)
            .unwrap()
            .response_bytes
    }

    /// Returns all paths below the directory of mirrors with a matching name.
    fn files(&self, matches: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut waiting = vec![self.root.path().to_owned()];
        while let Some(directory) = waiting.pop() {
            // A directory may be deleted concurrently.
            let Ok(entries) = std::fs::read_dir(directory) else {
                continue;
            };
            for path in entries.flatten().map(|entry| entry.path()) {
                if path.is_dir() {
                    waiting.push(path.clone());
                }
                if matches(&path.file_name().unwrap().to_string_lossy()) {
                    found.push(path);
                }
            }
        }
        found
    }
}

fn main() -> Reference {
    Reference::Branch("main".into())
}

fn pinned(commit: &str) -> Reference {
    Reference::Commit {
        commit: commit.into(),
        branch: None,
        name: None,
    }
}

async fn bounded<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work)
        .await
        .expect("the deadline of the test")
}

/// Returns all entries of a commit with their paths.
fn entries(checkout: &Checkout) -> Result<Vec<(String, DirectoryEntry)>, ReadError> {
    let (mut found, mut waiting) = (Vec::new(), vec![(String::new(), checkout.commit().tree)]);
    while let Some((directory, tree)) = waiting.pop() {
        for child in checkout.directory(tree)? {
            let path = format!("{directory}{}", String::from_utf8_lossy(&child.name));
            if child.kind == Kind::Directory {
                waiting.push((format!("{path}/"), child.id));
            }
            found.push((path, child));
        }
    }
    Ok(found)
}

/// Returns `mode object path` of each file in the format of `git ls-tree -r`.
fn files(checkout: &Checkout) -> Vec<String> {
    let lines = entries(checkout)
        .unwrap()
        .into_iter()
        .filter_map(|(path, entry)| {
            let mode = match entry.kind {
                Kind::Directory => return None,
                Kind::File => "100644",
                Kind::Executable => "100755",
                Kind::Symlink => "120000",
                Kind::Gitlink => "160000",
            };
            Some(format!("{mode} {} {path}", entry.id))
        });
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    lines
}

/// Returns the same lines from the real `git`.
fn ls_tree(repository: &Repository, revision: &str) -> Vec<String> {
    let listing = repository.git(["ls-tree", "-r", "-z", revision]).unwrap();
    let lines = listing.split_terminator('\0').map(|line| {
        let (front, path) = line.split_once('\t').unwrap();
        let mut words = front.split(' ');
        let (mode, id) = (words.next().unwrap(), words.nth(1).unwrap());
        format!("{mode} {id} {path}")
    });
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    lines
}

/// Returns the warnings of the real `git fsck` about a mirror's repository.
fn fsck(directory: &Path) -> String {
    let output = std::process::Command::new("git")
        .args(["-c", "safe.directory=*", "--git-dir"])
        .arg(directory)
        .args(["fsck", "--full", "--strict", "--no-dangling"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let warnings = String::from_utf8_lossy(&output.stderr);
    warnings
        .lines()
        .filter(|line| !line.starts_with("notice: HEAD points to an unborn branch"))
        .collect()
}

fn generation(env: &TestEnvironment) -> PathBuf {
    let found = env.files(|name| name.starts_with("generation-"));
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

async fn read_all(checkout: Checkout) -> Result<u64, ReadError> {
    let read = move || {
        let mut bytes = 0;
        for (_, entry) in entries(&checkout)? {
            if matches!(entry.kind, Kind::File | Kind::Executable | Kind::Symlink) {
                let blob = checkout.read(entry.id)?;
                assert_eq!(blob.len() as u64, checkout.size(entry.id)?);
                bytes += blob.len() as u64;
            }
        }
        Ok(bytes)
    };
    bounded(tokio::task::spawn_blocking(read)).await.unwrap()
}

fn shared(env: TestEnvironment) -> Arc<TestEnvironment> {
    Arc::new(env)
}
