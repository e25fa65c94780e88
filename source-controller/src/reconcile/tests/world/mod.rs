//! A world for passes: the embedded API, a real Git server, a directory for artifacts, a clock that stands still.

mod conforms;
mod counted;
mod judge;
mod live;
mod shown;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::source::{Artifact, GitRepository, GitRepositoryStatus};
use sluice_embedded::{Embedded, Server, Store};
use sluice_harness::git::{GitServer, Repository};
use sluice_runtime::blocking::Pool;
use sluice_runtime::clock::{Clock, ManualClock};
use sluice_runtime::event::{Recorder, Reporter};
use sluice_runtime::metrics::Metrics;
use sluice_runtime::random::Generator;
use sluice_runtime::schedule::Schedule;
use sluice_runtime::shutdown::Token;
use sluice_runtime::watch::{Next, Reconciler as _};

use crate::archive::Algorithm;
use crate::git::{Limits, Mirrors, Transport};
use crate::identity::{CacheSettings, Environment, Rules, TokenSettings, Tokens};
use crate::reconcile::{
    Bounds, Context, GitRepositories, Memory, Network, Origin, Places, Repositories, Times,
};
use crate::storage::{LocalDirectory, Retention};

use judge::{Nobody, Seen, judge, written};

pub(in crate::reconcile::tests) use conforms::{Verdict, kstatus};
pub(in crate::reconcile::tests) use counted::Requests;
pub(in crate::reconcile::tests) use live::shows;

pub(in crate::reconcile::tests) const NAMESPACE: &str = "team";
/// No pass and no wait of a test takes longer.
pub(in crate::reconcile::tests) const LIMIT: Duration = Duration::from_secs(50);

pub(in crate::reconcile::tests) struct World {
    pub(in crate::reconcile::tests) server: GitServer,
    pub(in crate::reconcile::tests) repository: Repository,
    pub(in crate::reconcile::tests) storage: tempfile::TempDir,
    pub(in crate::reconcile::tests) clock: Arc<ManualClock>,
    pub(in crate::reconcile::tests) client: Client,
    _api: Embedded,
    recorder: Recorder,
    mirrors: Arc<Mirrors>,
    mirrors_directory: tempfile::TempDir,
    limits: Limits,
    /// What providers are told by the process's environment.
    pub(in crate::reconcile::tests) environment: Environment,
    /// What the flags say about identities.
    pub(in crate::reconcile::tests) rules: Rules,
    tokens: OnceLock<Arc<Tokens>>,
    known: Vec<(String, String)>,
    /// Further repositories, by name.
    pub(in crate::reconcile::tests) others: BTreeMap<String, Repository>,
    /// The object after each write of the last pass.
    written: Mutex<Vec<GitRepository>>,
}

impl World {
    /// With a repository of one commit, served as `/app.git`.
    pub(in crate::reconcile::tests) async fn new() -> Self {
        let repository = Repository::create().unwrap();
        let mut world = Self::with(repository).await;
        world.commit(
            "first",
            &[
                ("main.tf", "locals {}\n"),
                (".sourceignore", "*.md\n"),
                ("README.md", "hello\n"),
            ],
        );
        world
    }

    /// With a repository of one commit and the object `app`, which has its artifact. What was told of it was read.
    pub(in crate::reconcile::tests) async fn ready() -> Self {
        let world = Self::new().await;
        world.create("app", json!({})).await;
        world.pass("app").await;
        world.told().await;
        world
    }

    /// With this repository.
    pub(in crate::reconcile::tests) async fn with(repository: Repository) -> Self {
        let server = GitServer::start().await.unwrap();
        server.serve("app", &repository);
        let api = Server::builder()
            .crds(sluice_api::crds())
            .store(Store::memory())
            .build()
            .unwrap();
        let client = api.client();
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
        let namespace = serde_json::from_value(json!({ "metadata": { "name": NAMESPACE } })).unwrap();
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        let clock = Arc::new(ManualClock::new(Timestamp::now()));
        let mirrors_directory = tempfile::tempdir().unwrap();
        let mirrors = Arc::new(Mirrors::new(mirrors_directory.path()).unwrap());
        let reporter = Reporter {
            component: "source-controller".into(),
            instance: "test".into(),
            trace: false,
        };
        let time: Arc<dyn Clock> = clock.clone();
        let recorder = Recorder::start(client.clone(), reporter, time);
        Self {
            known: vec![(server.address().to_string(), "git".into())],
            server,
            repository,
            storage: tempfile::tempdir().unwrap(),
            clock,
            client,
            _api: api,
            recorder,
            mirrors,
            mirrors_directory,
            limits: Limits::default(),
            others: BTreeMap::new(),
            written: Mutex::default(),
            environment: Environment::default(),
            rules: Rules::default(),
            tokens: OnceLock::new(),
        }
    }

    /// Commits files; the commit shows in tables as `<label>`.
    pub(in crate::reconcile::tests) fn commit(&mut self, label: &str, files: &[(&str, &str)]) -> String {
        let commit = self.repository.commit_files(files, label).unwrap();
        self.known.push((commit.clone(), format!("<{label}>")));
        commit
    }

    /// Shows `text` in tables as `<label>`.
    pub(in crate::reconcile::tests) fn label(&mut self, text: impl Into<String>, label: &str) {
        self.known.push((text.into(), format!("<{label}>")));
    }

    /// Serves another repository with one commit of these files, as `/<name>.git`; the commit shows as `<name>`.
    pub(in crate::reconcile::tests) fn serve(&mut self, name: &str, files: &[(&str, &str)]) {
        let repository = Repository::create().unwrap();
        let commit = repository.commit_files(files, name).unwrap();
        self.known.push((commit, format!("<{name}>")));
        self.server.serve(name, &repository);
        self.others.insert(name.to_owned(), repository);
    }

    pub(in crate::reconcile::tests) fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Where mirrors can be kept.
    pub(in crate::reconcile::tests) fn mirrors_directory(&self) -> &std::path::Path {
        self.mirrors_directory.path()
    }

    pub(in crate::reconcile::tests) fn context(&self) -> Context {
        self.context_with(self.network())
    }

    pub(in crate::reconcile::tests) fn network(&self) -> Arc<Network> {
        Arc::new(Network::new(Arc::clone(&self.mirrors), self.clock.clone()))
    }

    pub(in crate::reconcile::tests) fn context_with(&self, origin: Arc<dyn Origin>) -> Context {
        Context {
            client: self.client.clone(),
            clock: self.clock.clone(),
            repositories: Arc::new(Nobody),
            dependency_wait: Duration::from_secs(30),
            origin,
            storage: Arc::new(LocalDirectory::open(self.storage.path(), "sc").unwrap()),
            recorder: self.recorder.clone(),
            schedule: Schedule::new(0, Arc::new(Generator::seeded(1))),
            transport: Transport::new().unwrap(),
            tokens: self.tokens(),
            limits: self.limits,
            times: Times::default(),
            retention: Retention {
                ttl: Duration::from_secs(60),
                records: 2,
            },
            algorithm: Algorithm::Sha256,
            looks: Pool::new(4),
            packing: Pool::new(2),
            places: Places::new(Bounds::of(16, 2)),
            memory: Memory::default(),
            stop: Token::new(),
        }
    }

    /// One cache for all passes, made at the first of them.
    fn tokens(&self) -> Arc<Tokens> {
        let settings = || TokenSettings {
            client: self.client.clone(),
            clock: self.clock.clone(),
            environment: self.environment.clone(),
            rules: self.rules.clone(),
            cache: CacheSettings::default(),
        };
        let made = || Arc::new(Tokens::new(settings(), &Metrics::new()).unwrap());
        Arc::clone(self.tokens.get_or_init(made))
    }

    pub(in crate::reconcile::tests) fn objects(&self) -> Api<GitRepository> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Creates an object of `/app.git`, branch main, with these further fields of the spec.
    pub(in crate::reconcile::tests) async fn create(&self, name: &str, fields: Value) {
        let mut spec =
            json!({ "url": self.server.url("app"), "interval": "5m", "ref": { "branch": "main" } });
        merge(&mut spec, fields);
        let object = serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": name }, "spec": spec,
        }));
        self.objects()
            .create(&PostParams::default(), &object.unwrap())
            .await
            .unwrap();
    }

    /// Creates an object of this spec, if the API takes it.
    pub(in crate::reconcile::tests) async fn try_create(&self, name: &str, spec: &Value) -> bool {
        let object = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": name }, "spec": spec,
        });
        let Ok(object) = serde_json::from_value(object) else {
            return false;
        };
        self.objects()
            .create(&PostParams::default(), &object)
            .await
            .is_ok()
    }

    /// Creates an object of `/<name>.git` and makes its artifact.
    pub(in crate::reconcile::tests) async fn create_of(&self, name: &str) {
        self.create(name, json!({ "url": self.server.url(name) })).await;
        self.pass(name).await;
    }

    /// Merges into the object.
    pub(in crate::reconcile::tests) async fn edit(&self, name: &str, patch: Value) {
        self.objects()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Asks for a pass.
    pub(in crate::reconcile::tests) async fn request(&self, name: &str, token: &str) {
        let annotations = json!({ "reconcile.fluxcd.io/requestedAt": token });
        self.edit(name, json!({ "metadata": { "annotations": annotations } }))
            .await;
    }

    pub(in crate::reconcile::tests) async fn delete(&self, name: &str) {
        self.objects()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    pub(in crate::reconcile::tests) async fn secret(&self, name: &str, fields: Value) {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let secret = json!({ "metadata": { "name": name }, "stringData": fields });
        let patch = PatchParams::default();
        if secrets.get_opt(name).await.unwrap().is_none() {
            secrets
                .create(&PostParams::default(), &serde_json::from_value(secret).unwrap())
                .await
                .unwrap();
        } else {
            secrets.patch(name, &patch, &Patch::Merge(secret)).await.unwrap();
        }
    }

    pub(in crate::reconcile::tests) async fn delete_secret(&self, name: &str) {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        secrets.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Merges into the object's status.
    pub(in crate::reconcile::tests) async fn edit_status(&self, name: &str, patch: Value) {
        self.objects()
            .patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    pub(in crate::reconcile::tests) async fn get(&self, name: &str) -> GitRepository {
        self.objects().get(name).await.unwrap()
    }

    pub(in crate::reconcile::tests) async fn status(&self, name: &str) -> GitRepositoryStatus {
        self.get(name).await.status.unwrap_or_default()
    }

    pub(in crate::reconcile::tests) async fn artifact(&self, name: &str) -> Artifact {
        self.status(name).await.artifact.expect("an artifact")
    }

    /// The objects as a controller sees them that has just looked.
    pub(in crate::reconcile::tests) async fn seen(&self) -> Arc<dyn Repositories> {
        let all = self.objects().list(&ListParams::default()).await;
        Arc::new(Seen(all.unwrap().items))
    }

    /// One pass; if it only put the finalizer there, the one that follows it.
    pub(in crate::reconcile::tests) async fn pass(&self, name: &str) -> Next {
        Box::pin(self.pass_in(self.context(), name)).await
    }

    /// One pass with this context. What it wrote is judged, write for write.
    pub(in crate::reconcile::tests) async fn pass_in(&self, context: Context, name: &str) -> Next {
        let stop = context.stop.clone();
        let context = Context {
            repositories: self.seen().await,
            ..context
        };
        let passes = GitRepositories::new(Arc::new(context));
        let before = self.get(name).await;
        let seen = before.metadata.resource_version.clone().unwrap();
        let objects = self.objects();
        let changes = objects.watch(&WatchParams::default(), &seen).await.unwrap();
        let object = Arc::new(before.clone());
        let fresh = object.metadata.finalizers.is_none() && object.metadata.deletion_timestamp.is_none();
        let pass = async {
            let next = passes.reconcile(object.clone()).await.unwrap();
            if fresh {
                passes.reconcile(object).await.unwrap()
            } else {
                next
            }
        };
        let next = tokio::time::timeout(LIMIT, pass).await.unwrap();
        let after = self.objects().get_opt(name).await.unwrap();
        let last = after.and_then(|object| object.metadata.resource_version);
        let written = if last.as_ref() == Some(&seen) {
            Vec::new()
        } else {
            let written = written(changes, name, last);
            tokio::time::timeout(LIMIT, written).await.unwrap()
        };
        // An object that waits for a place is not at rest.
        let goes_on = matches!(next, Next::Queued(_));
        judge(&before, &written, stop.is_cancelled() || goes_on);
        *self.written.lock().unwrap() = written;
        next
    }

    /// How many mirrors there are.
    pub(in crate::reconcile::tests) fn mirrors_on_disk(&self) -> usize {
        let entries = std::fs::read_dir(self.mirrors_directory.path()).unwrap();
        entries
            .filter(|entry| entry.as_ref().unwrap().path().is_dir())
            .count()
    }

    /// Path of an artifact's file.
    pub(in crate::reconcile::tests) fn file(&self, artifact: &Artifact) -> PathBuf {
        self.storage.path().join(&artifact.path)
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                if value.is_null() {
                    into.remove(&key);
                } else {
                    into.insert(key, value);
                }
            }
        }
        (into, from) => *into = from,
    }
}
