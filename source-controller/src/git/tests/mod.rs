//! Against the real `git http-backend`, with repositories made by the real `git`.

mod faults;
mod hostile;
mod lookup;
mod mirrors;
mod names;
mod older;
mod partial;
mod pins;
mod proxies;
mod redirects;
mod ssh;
mod tags;
mod tls;
mod transfer;
mod trees;
mod versions;

use std::fmt::Write as _;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sluice_harness::git::{GitServer, Repository, Step};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;

/// No test waits longer than this for anything.
const DEADLINE: Duration = Duration::from_secs(60);

/// A repository, a server that serves it, and an empty directory of mirrors.
struct World {
    repository: Repository,
    server: GitServer,
    url: String,
    mirrors: Mirrors,
    transport: Transport,
    root: TempDir,
}

impl World {
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

    /// With one commit of 100 files on `main`, 0.8 MB that does not compress well.
    async fn with_files() -> Self {
        let world = Self::new().await;
        for number in 0..100_u32 {
            world
                .repository
                .write(&format!("modules/{number}/main.tf"), noise(number, 8192))
                .unwrap();
        }
        world.repository.commit("First\n\nwith a body").unwrap();
        world
    }

    fn remote(&self) -> Remote {
        self.remote_at(&self.url)
    }

    fn remote_at(&self, url: &str) -> Remote {
        let address = Address::parse(url).unwrap();
        let credentials = Credentials::resolve(&address, None).unwrap();
        Remote {
            transport: self.transport.clone(),
            address,
            credentials,
            tls: Arc::default(),
            proxy: None,
            timeout: DEADLINE,
            limits: Limits::default(),
            owner: Owner::default(),
        }
    }

    async fn head(&self, reference: &Reference) -> Result<Head, FetchError> {
        self.head_at(&self.remote(), reference).await
    }

    async fn head_at(&self, remote: &Remote, reference: &Reference) -> Result<Head, FetchError> {
        let mirror = self.mirrors.open(remote);
        bounded(resolve(&mirror, remote, reference, &CancellationToken::new())).await
    }

    async fn fetch(&self, reference: &Reference) -> Result<Checkout, FetchError> {
        self.fetch_from(&self.remote(), reference).await
    }

    async fn fetch_from(&self, remote: &Remote, reference: &Reference) -> Result<Checkout, FetchError> {
        let head = self.head_at(remote, reference).await?;
        let mirror = self.mirrors.open(remote);
        bounded(fetch(&mirror, remote, &head, &CancellationToken::new())).await
    }

    /// Requests of one kind since the last look.
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

    /// Bytes of the last answer to a fetch.
    fn fetched_bytes(&self) -> u64 {
        let requests = self.server.requests();
        requests
            .iter()
            .rfind(|request| request.step == Step::Fetch)
            .unwrap()
            .response_bytes
    }

    /// Everything below the directory of mirrors whose name fits.
    fn files(&self, fits: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut waiting = vec![self.root.path().to_owned()];
        while let Some(directory) = waiting.pop() {
            // What is being deleted elsewhere may be gone by now.
            let Ok(entries) = std::fs::read_dir(directory) else {
                continue;
            };
            for path in entries.flatten().map(|entry| entry.path()) {
                if path.is_dir() {
                    waiting.push(path.clone());
                }
                if fits(&path.file_name().unwrap().to_string_lossy()) {
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

/// Text that differs for each seed and does not compress to nothing.
pub(super) fn noise(seed: u32, bytes: usize) -> String {
    let mut state = u64::from(seed) + 1;
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        writeln!(text, "{:08x}", state >> 32).unwrap();
    }
    text
}

/// Every name of a commit with its path.
fn entries(checkout: &Checkout) -> Result<Vec<(String, Child)>, ReadError> {
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

/// `mode object path` of each file, as `git ls-tree -r` gives it.
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

/// The same, as the real `git` sees it.
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

/// What the real `git` complains about in a mirror's repository.
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
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines()
        .filter(|line| !line.starts_with("notice: HEAD points to an unborn branch"))
        .collect()
}

fn generation(world: &World) -> PathBuf {
    let found = world.files(|name| name.starts_with("generation-"));
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

fn shared(world: World) -> Arc<World> {
    Arc::new(world)
}
