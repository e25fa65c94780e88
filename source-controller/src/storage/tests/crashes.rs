//! Runs the whole controller as a process and kills it with SIGKILL at every checkpoint of publishing an artifact: once
//! as a killed process, and once as a machine that loses unsynced data.

mod kill_plan;

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
use sluice_embedded::{ApiServer, Store, TlsServer};
use sluice_harness::git::{GitServer, Repository};
use sluice_runtime::shutdown::Token;
use sluice_runtime::{client, http};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use self::kill_plan::KillPlan;
pub(in crate::storage) use self::kill_plan::checkpoint;
use crate::archive::{Algorithm, Hasher};

const LIMIT: Duration = Duration::from_secs(50);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A checkpoint and its occurrence, from 1.
type Step = (String, usize);

/// The parameters of a controller process.
#[derive(Serialize, Deserialize)]
struct Parameters {
    kubeconfig: PathBuf,
    storage: PathBuf,
    log: PathBuf,
    kill_after: Option<Step>,
}

/// The controller process: the tests start their own binary with parameters after `--`. Does nothing in a normal test
/// run.
#[tokio::test(flavor = "multi_thread")]
async fn run_controller() {
    let Some(parameters) = std::env::args().skip_while(|argument| argument != "--").nth(1) else {
        return;
    };
    let start: Parameters = serde_json::from_str(&parameters).unwrap();
    http::install_crypto();
    KillPlan {
        log: File::create(&start.log).unwrap(),
        kill_after: start.kill_after,
        passed: Vec::new(),
    }
    .install();
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
        // Files that no status names are removed by the next reconciliation.
        "--artifact-retention-ttl=1ms",
    ]);
    crate::run(options, client, Token::new())
        .await
        .unwrap()
        .wait()
        .await;
}

/// An API server, a Git server and a volume, which outlive the controllers.
struct CrashEnvironment {
    served: TlsServer,
    _api: ApiServer,
    _git: GitServer,
    repository: Repository,
    folder: tempfile::TempDir,
    objects: Api<GitRepository>,
    commits: u64,
}

impl CrashEnvironment {
    async fn new() -> Self {
        let api = ApiServer::builder()
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

    /// Commits a file that takes several writes to pack; returns the commit's hash.
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

    /// Returns the object's directory.
    fn directory(&self) -> PathBuf {
        self.storage().join("gitrepository/default/app")
    }

    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.directory()).into_iter().flatten();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    fn start(&self, kill_after: Option<&Step>) -> Child {
        let start = Parameters {
            kubeconfig: self.served.kubeconfig_path.clone(),
            storage: self.storage(),
            log: self.folder.path().join("steps"),
            kill_after: kill_after.cloned(),
        };
        Command::new(std::env::current_exe().unwrap())
            .args([
                "storage::tests::crashes::run_controller",
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

    /// Returns the checkpoints of the last controller.
    fn steps(&self) -> Vec<Step> {
        let log = fs::read_to_string(self.folder.path().join("steps")).unwrap();
        let passed: Vec<_> = log.lines().collect();
        let number = |at: usize| passed[..=at].iter().filter(|step| **step == passed[at]).count();
        (0..passed.len())
            .map(|at| (passed[at].to_owned(), number(at)))
            .collect()
    }

    async fn artifact(&self) -> Option<Artifact> {
        self.objects.get("app").await.unwrap().status?.artifact
    }

    /// Requests reconciliations repeatedly.
    async fn request_reconciliations(&self) {
        for number in 0_u64.. {
            let request = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": number.to_string() } } });
            let request = Patch::Merge(request);
            self.objects
                .patch("app", &PatchParams::default(), &request)
                .await
                .unwrap();
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Runs a controller until it is killed at this checkpoint.
    async fn run_until_killed(&self, step: &Step) {
        let mut child = self.start(Some(step));
        let ending = async {
            tokio::select! {
                ended = child.wait() => ended,
                () = self.request_reconciliations() => unreachable!("without an end"),
            }
        };
        let ended = tokio::time::timeout(LIMIT, ending).await;
        let log = fs::read_to_string(self.folder.path().join("stderr")).unwrap();
        let ended = ended
            .unwrap_or_else(|_| panic!("{step:?} not reached: {log}"))
            .unwrap();
        assert_eq!(ExitStatus::signal(&ended), Some(9), "{step:?}: {ended} {log}");
        assert_eq!(self.steps().last(), Some(step));
    }

    /// Simulates a power failure at this checkpoint: unsynced contents and names are lost.
    fn lose_power(&self, step: &Step, commit: &str) {
        let target = self.directory().join(format!("{commit}.tar.gz"));
        match step.0.as_str() {
            "file created" | "written" => {
                let absolute_path =
                    |name: &&String| name.ends_with(".tar.gz") || name.ends_with(".tar.gz.lock");
                for name in self.names().iter().filter(|name| !absolute_path(name)) {
                    let file = File::options().write(true).open(self.directory().join(name));
                    file.unwrap().set_len(0).unwrap();
                }
            }
            "renamed" => fs::remove_file(target).unwrap(),
            "index stored" => {
                let index = self.directory().join(format!("{commit}.tar.gz.segments"));
                File::options()
                    .write(true)
                    .open(index)
                    .unwrap()
                    .set_len(0)
                    .unwrap();
            }
            _ => {}
        }
    }

    /// Checks that every visible artifact is complete and matches the status.
    async fn assert_consistent(&self, when: &str) {
        for name in self.names().iter().filter(|name| name.ends_with(".tar.gz")) {
            let file = File::open(self.directory().join(name)).unwrap();
            let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
            let entries = archive.entries().unwrap().map(|entry| entry.unwrap().size());
            assert_eq!(
                entries.filter(|size| *size > 0).count(),
                2,
                "{when}: {name} is complete"
            );
        }
        if let Some(artifact) = self.artifact().await {
            let file = fs::read(self.storage().join(&artifact.path))
                .unwrap_or_else(|error| panic!("{when}: {}: {error}", artifact.path));
            assert_eq!(digest(&file), artifact.digest, "{when}");
        }
    }

    /// Checks that an uninterrupted controller builds an artifact of this commit and leaves no other file.
    async fn assert_recovers(&self, commit: &str, when: &str) {
        let mut child = self.start(None);
        let expected = ["", ".lock", ".segments"].map(|suffix| format!("{commit}.tar.gz{suffix}"));
        let expected = BTreeSet::from(expected);
        let recovering = async {
            loop {
                if let Some(artifact) = self.artifact().await {
                    // The URL in the status serves the content described by the status.
                    let body = get(&artifact.url).await;
                    let good = body.is_none_or(|body| digest(&body) == artifact.digest);
                    assert!(good, "{when}: {}", artifact.url);
                    if artifact.revision.ends_with(commit) && self.names() == expected {
                        return;
                    }
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let recovering = async {
            tokio::select! {
                () = recovering => {}
                () = self.request_reconciliations() => {}
            }
        };
        let recovered = tokio::time::timeout(LIMIT, recovering).await;
        assert!(recovered.is_ok(), "{when}: {:?}, not {expected:?}", self.names());
        child.kill().await.unwrap();
        self.assert_consistent(when).await;
    }

    /// Kills a controller at this checkpoint while it builds an artifact of a new commit, and lets the next one
    /// recover; after a power failure with another commit.
    async fn run_scenario(&mut self, step: &Step, power: bool) {
        let when = format!("killed at {step:?}, power {power}");
        let mut commit = self.commit();
        self.run_until_killed(step).await;
        self.assert_consistent(&when).await;
        if power {
            self.lose_power(step, &commit);
            self.assert_consistent(&when).await;
            commit = self.commit();
        }
        self.assert_recovers(&commit, &when).await;
    }
}

/// Returns a text that compresses to half its size at best.
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

/// Returns the body of a URL; `None` without a server or file.
async fn get(url: &str) -> Option<Vec<u8>> {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.ok()?;
    let end = response.windows(4).position(|w| w == b"\r\n\r\n")?;
    response
        .starts_with(b"HTTP/1.1 200")
        .then(|| response.split_off(end + 4))
}

/// Returns the checkpoints of an uninterrupted reconciliation, without most of the writes.
async fn steps(env: &mut CrashEnvironment) -> Vec<Step> {
    let commit = env.commit();
    env.assert_recovers(&commit, "undisturbed").await;
    let steps = env.steps();
    let writes = steps.iter().filter(|(name, _)| name == "written").count();
    assert!(writes > 2, "a file can be half written: {steps:?}");
    let selected = |(name, which): &Step| name != "written" || [1, writes / 2, writes - 1].contains(which);
    steps.into_iter().filter(selected).collect()
}

fn names(steps: &[Step]) -> BTreeSet<&str> {
    steps.iter().map(|(name, _)| name.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_during_the_first_publication_leaves_no_partial_artifact() {
    let steps = steps(&mut CrashEnvironment::new().await).await;
    let expected = [
        "directory created",
        "file created",
        "index stored",
        "locked",
        "published",
        "renamed",
        "synced",
        "written",
    ];
    assert_eq!(names(&steps), BTreeSet::from(expected));
    for step in &steps {
        for power in [false, true] {
            CrashEnvironment::new().await.run_scenario(step, power).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_during_a_later_publication_leaves_no_partial_artifact() {
    let mut env = CrashEnvironment::new().await;
    let first = env.commit();
    env.assert_recovers(&first, "first").await;
    let steps = steps(&mut env).await;
    let expected = [
        "file created",
        "index stored",
        "locked",
        "published",
        "removed",
        "renamed",
        "superseded",
        "synced",
        "written",
    ];
    assert_eq!(names(&steps), BTreeSet::from(expected));
    for step in &steps {
        for power in [false, true] {
            env.run_scenario(step, power).await;
        }
    }
}
