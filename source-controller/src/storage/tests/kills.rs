//! The whole controller as a process of its own, killed with SIGKILL inside the publication of an artifact: after each step by which a
//! file comes or goes. Once as a process that is killed, once as a machine that stops and loses what was not synced.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use clap::Parser as _;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sluice_api::source::{Artifact, GitRepository};
use sluice_embedded::{Embedded, Server, Serving, Store};
use sluice_harness::git::{GitServer, Repository};
use sluice_runtime::{client, http, shutdown::Token};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::archive::{Algorithm, Hasher};
use crate::storage::step::Orders;

const LIMIT: Duration = Duration::from_secs(50);
const PACE: Duration = Duration::from_millis(20);

/// The step after which the process ends, and which of that name it is, from 1.
type Step = (String, usize);

/// What a controller is started with.
#[derive(Serialize, Deserialize)]
struct Start {
    kubeconfig: PathBuf,
    storage: PathBuf,
    log: PathBuf,
    end: Option<Step>,
}

/// The controller as a program: these tests start their own binary with what it is told behind `--`. A plain test run has
/// nothing to do here.
#[tokio::test(flavor = "multi_thread")]
async fn as_controller() {
    let Some(told) = std::env::args().skip_while(|argument| argument != "--").nth(1) else {
        return;
    };
    let start: Start = serde_json::from_str(&told).unwrap();
    http::install_crypto();
    Orders {
        log: File::create(&start.log).unwrap(),
        end: start.end,
        made: Vec::new(),
    }
    .give();
    let settings = client::Settings {
        kubeconfig: Some(start.kubeconfig),
        ..client::Settings::default()
    };
    let client = client::build(&settings).await.unwrap();
    let options = crate::Options::parse_from([
        "source-controller",
        &format!("--storage-path={}", start.storage.display()),
        "--storage-addr=127.0.0.1:0",
        "--metrics-addr=0",
        "--health-addr=0",
        // What no status names goes with the next pass.
        "--artifact-retention-ttl=1ms",
    ]);
    crate::run(options, client, Token::new())
        .await
        .unwrap()
        .ended()
        .await;
}

/// An API, a Git server and a volume, which outlive the controllers.
struct Stage {
    served: Serving,
    _api: Embedded,
    _git: GitServer,
    repository: Repository,
    folder: tempfile::TempDir,
    objects: Api<GitRepository>,
    commits: u64,
}

impl Stage {
    async fn set() -> Self {
        let api = Server::builder()
            .crds(sluice_api::crds())
            .store(Store::memory())
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("storage")).unwrap();
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let served = api.serve(anywhere, folder.path()).await.unwrap();
        let (git, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
        let object = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": "app" },
            "spec": { "url": git.serve("app", &repository), "interval": "10m", "ref": { "branch": "main" } },
        });
        let objects: Api<GitRepository> = Api::namespaced(api.client(), "default");
        let object = serde_json::from_value(object).unwrap();
        objects.create(&PostParams::default(), &object).await.unwrap();
        Self {
            served,
            _api: api,
            _git: git,
            repository,
            folder,
            objects,
            commits: 0,
        }
    }

    /// Another commit, of a file that takes several writes to pack. Gives its hash.
    fn commit(&mut self) -> String {
        self.commits += 1;
        let noise = noise(self.commits, 1 << 20);
        let number = self.commits.to_string();
        self.repository
            .commit_files(&[("main.tf", &noise), ("number", &number)], &number)
            .unwrap()
    }

    fn storage(&self) -> PathBuf {
        self.folder.path().join("storage")
    }

    /// The object's directory.
    fn directory(&self) -> PathBuf {
        self.storage().join("gitrepository/default/app")
    }

    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.directory()).into_iter().flatten();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    fn start(&self, end: Option<&Step>) -> Child {
        let start = Start {
            kubeconfig: self.served.kubeconfig_path.clone(),
            storage: self.storage(),
            log: self.folder.path().join("steps"),
            end: end.cloned(),
        };
        Command::new(std::env::current_exe().unwrap())
            .args([
                "storage::tests::kills::as_controller",
                "--exact",
                "--nocapture",
                "--",
            ])
            .arg(serde_json::to_string(&start).unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(self.folder.path().join("stderr")).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// The steps that the last controller made.
    fn steps(&self) -> Vec<Step> {
        let log = fs::read_to_string(self.folder.path().join("steps")).unwrap();
        let made: Vec<_> = log.lines().collect();
        let number = |at: usize| made[..=at].iter().filter(|step| **step == made[at]).count();
        (0..made.len())
            .map(|at| (made[at].to_owned(), number(at)))
            .collect()
    }

    async fn artifact(&self) -> Option<Artifact> {
        self.objects.get("app").await.unwrap().status?.artifact
    }

    /// Asks for passes, again and again.
    async fn ask(&self) {
        for number in 0_u64.. {
            let asked = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": number.to_string() } } });
            let asked = Patch::Merge(asked);
            self.objects
                .patch("app", &PatchParams::default(), &asked)
                .await
                .unwrap();
            tokio::time::sleep(PACE).await;
        }
    }

    /// A controller that is killed at this step.
    async fn killed(&self, step: &Step) {
        let mut child = self.start(Some(step));
        let ending = async {
            tokio::select! {
                ended = child.wait() => ended,
                () = self.ask() => unreachable!("without an end"),
            }
        };
        let ended = tokio::time::timeout(LIMIT, ending).await;
        let log = fs::read_to_string(self.folder.path().join("stderr")).unwrap();
        let ended = ended
            .unwrap_or_else(|_| panic!("{step:?} was not reached: {log}"))
            .unwrap();
        assert_eq!(ExitStatus::signal(&ended), Some(9), "{step:?}: {ended} {log}");
        assert_eq!(self.steps().last(), Some(step));
    }

    /// What a disk may hold after a power cut at this step: file contents and names that were not synced are gone.
    fn lose_power(&self, step: &Step, commit: &str) {
        let target = self.directory().join(format!("{commit}.tar.gz"));
        match step.0.as_str() {
            "file made" | "written" => {
                let whole = |name: &&String| name.ends_with(".tar.gz") || name.ends_with(".tar.gz.lock");
                for name in self.names().iter().filter(|name| !whole(name)) {
                    let file = File::options().write(true).open(self.directory().join(name));
                    file.unwrap().set_len(0).unwrap();
                }
            }
            "renamed" => fs::remove_file(target).unwrap(),
            _ => {}
        }
    }

    /// Nothing that a consumer can get is less than what the status says of it.
    async fn holds(&self, when: &str) {
        for name in self.names().iter().filter(|name| name.ends_with(".tar.gz")) {
            let file = File::open(self.directory().join(name)).unwrap();
            let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
            let entries = archive.entries().unwrap().map(|entry| entry.unwrap().size());
            assert_eq!(
                entries.filter(|size| *size > 0).count(),
                2,
                "{when}: {name} is whole"
            );
        }
        if let Some(artifact) = self.artifact().await {
            let file = fs::read(self.storage().join(&artifact.path))
                .unwrap_or_else(|error| panic!("{when}: {}: {error}", artifact.path));
            assert_eq!(digest(&file), artifact.digest, "{when}");
        }
    }

    /// A controller that nothing happens to makes an artifact of this commit and leaves nothing else.
    async fn recovers(&self, commit: &str, when: &str) {
        let mut child = self.start(None);
        let wanted = [format!("{commit}.tar.gz"), format!("{commit}.tar.gz.lock")];
        let wanted = BTreeSet::from(wanted);
        let recovering = async {
            loop {
                if let Some(artifact) = self.artifact().await {
                    // Whatever is answered at the address in the status is what the status says.
                    let body = get(&artifact.url).await;
                    let good = body.is_none_or(|body| digest(&body) == artifact.digest);
                    assert!(good, "{when}: {}", artifact.url);
                    if artifact.revision.ends_with(commit) && self.names() == wanted {
                        return;
                    }
                }
                tokio::time::sleep(PACE).await;
            }
        };
        let recovering = async {
            tokio::select! {
                () = recovering => {}
                () = self.ask() => {}
            }
        };
        let recovered = tokio::time::timeout(LIMIT, recovering).await;
        assert!(recovered.is_ok(), "{when}: {:?}, not {wanted:?}", self.names());
        child.kill().await.unwrap();
        self.holds(when).await;
    }

    /// Kills a controller at this step while it makes an artifact of a new commit, and lets the next one recover: of that
    /// commit, or after a power cut of one that came meanwhile.
    async fn story(&mut self, step: &Step, power: bool) {
        let when = format!("killed at {step:?}, power {power}");
        let mut commit = self.commit();
        self.killed(step).await;
        self.holds(&when).await;
        if power {
            self.lose_power(step, &commit);
            self.holds(&when).await;
            commit = self.commit();
        }
        self.recovers(&commit, &when).await;
    }
}

/// Text that does not compress to less than half.
fn noise(seed: u64, bytes: usize) -> String {
    use rand::{RngCore as _, SeedableRng as _};
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let mut raw = vec![0; bytes / 2];
    random.fill_bytes(&mut raw);
    hex::encode(raw)
}

fn digest(bytes: &[u8]) -> String {
    Hasher::of(Algorithm::Sha256, bytes).unwrap().to_string()
}

/// The body behind an address; nothing where there is no server any more, or no file.
async fn get(url: &str) -> Option<Vec<u8>> {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
    answer
        .starts_with(b"HTTP/1.1 200")
        .then(|| answer.split_off(end + 4))
}

/// The steps of an undisturbed pass, without most of the writes.
async fn steps(stage: &mut Stage) -> Vec<Step> {
    let commit = stage.commit();
    stage.recovers(&commit, "undisturbed").await;
    let steps = stage.steps();
    let writes = steps.iter().filter(|(name, _)| name == "written").count();
    assert!(writes > 2, "a file can be half written: {steps:?}");
    let told = |(name, which): &Step| name != "written" || [1, writes / 2, writes - 1].contains(which);
    steps.into_iter().filter(told).collect()
}

fn names(steps: &[Step]) -> BTreeSet<&str> {
    steps.iter().map(|(name, _)| name.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_killed_inside_its_first_publication_leaves_nothing_half() {
    let steps = steps(&mut Stage::set().await).await;
    let wanted = [
        "directory made",
        "file made",
        "locked",
        "published",
        "renamed",
        "synced",
        "written",
    ];
    assert_eq!(names(&steps), BTreeSet::from(wanted));
    for step in &steps {
        for power in [false, true] {
            Stage::set().await.story(step, power).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_killed_inside_a_later_publication_leaves_nothing_half() {
    let mut stage = Stage::set().await;
    let first = stage.commit();
    stage.recovers(&first, "first").await;
    let steps = steps(&mut stage).await;
    let wanted = [
        "file made",
        "locked",
        "published",
        "removed",
        "renamed",
        "superseded",
        "synced",
        "written",
    ];
    assert_eq!(names(&steps), BTreeSet::from(wanted));
    for step in &steps {
        for power in [false, true] {
            stage.story(step, power).await;
        }
    }
}
