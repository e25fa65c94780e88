//! A test environment: the embedded API, a real Git server, a directory for artifacts, and a manual clock.

mod conformance;
mod controller;
mod requests;
mod snapshots;
mod writes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::Duration;

pub(in crate::reconcile::tests) use conformance::{Verdict, kstatus};
pub(in crate::reconcile::tests) use controller::has_condition;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::{Api, Client};
pub(in crate::reconcile::tests) use requests::RequestCounter;
use serde_json::{Value, json};
use sluice_api::source::{Artifact, GitRepository, GitRepositoryStatus};
use sluice_embedded::{ApiServer, Store};
use sluice_harness::git::{GitServer, Repository};
use sluice_runtime::blocking::Pool;
use sluice_runtime::clock::{Clock, ManualClock};
use sluice_runtime::event::{Recorder, Reporter};
use sluice_runtime::metrics::Metrics;
use sluice_runtime::random::Generator;
use sluice_runtime::schedule::Schedule;
use sluice_runtime::shutdown::Token;
use sluice_runtime::trace::Tracer;
use sluice_runtime::watch::{Reconciler as _, Requeue, ShownVersions};
use writes::{CachedObjects, NoRepositories, check_writes, versions_of};

use crate::archive::{Algorithm, Capacity};
use crate::git::{Limits, Mirrors, Transport};
use crate::identity::{CacheSettings, Environment, IdentityPolicy, TokenSettings, Tokens};
use crate::reconcile::{
    Context, DurationBounds, GitRepositories, Network, ObjectTracker, Origin, Repositories, Secrets,
    SlotLimits, Slots,
};
use crate::storage::{LocalDirectory, Retention};

pub(in crate::reconcile::tests) const NAMESPACE: &str = "team";
/// Time limit of every reconciliation and wait.
pub(in crate::reconcile::tests) const LIMIT: Duration = Duration::from_secs(50);

/// The definition of the kind. All definitions are generated once: that takes a quarter of the time of a short test.
static DEFINITIONS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(|| {
    let mut definitions = sluice_api::crds();
    definitions.retain(|definition| definition.spec.names.kind == "GitRepository");
    definitions
});

pub(in crate::reconcile::tests) struct TestEnvironment {
    pub(in crate::reconcile::tests) server: GitServer,
    pub(in crate::reconcile::tests) repository: Repository,
    pub(in crate::reconcile::tests) storage: tempfile::TempDir,
    pub(in crate::reconcile::tests) clock: Arc<ManualClock>,
    pub(in crate::reconcile::tests) client: Client,
    _api: ApiServer,
    recorder: Recorder,
    mirrors: Arc<Mirrors>,
    mirrors_directory: tempfile::TempDir,
    limits: Limits,
    /// Environment variables for providers.
    pub(in crate::reconcile::tests) environment: Environment,
    /// Flags for identities.
    pub(in crate::reconcile::tests) policy: IdentityPolicy,
    tokens: OnceLock<Arc<Tokens>>,
    labels: Vec<(String, String)>,
    /// Other repositories, by name.
    pub(in crate::reconcile::tests) others: BTreeMap<String, Repository>,
    /// The object after each write of the last reconciliation.
    versions: Mutex<Vec<GitRepository>>,
}

impl TestEnvironment {
    /// Creates an environment with a repository of one commit, served as `/app.git`.
    pub(in crate::reconcile::tests) async fn new() -> Self {
        let repository = Repository::create().unwrap();
        let mut env = Self::with(repository).await;
        env.commit(
            "first",
            &[
                ("main.tf", "locals {}\n"),
                (".sourceignore", "*.md\n"),
                ("README.md", "hello\n"),
            ],
        );
        env
    }

    /// Creates an environment with a repository of one commit and the ready object `app`. Discards its events.
    pub(in crate::reconcile::tests) async fn ready() -> Self {
        let env = Self::new().await;
        env.create("app", json!({})).await;
        env.reconcile("app").await;
        env.events().await;
        env
    }

    /// Creates an environment with this repository.
    pub(in crate::reconcile::tests) async fn with(repository: Repository) -> Self {
        let server = GitServer::start().await.unwrap();
        server.serve("app", &repository);
        let api = ApiServer::builder()
            .crds(DEFINITIONS.clone())
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
            labels: vec![(server.address().to_string(), "git".into())],
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
            versions: Mutex::default(),
            environment: Environment::default(),
            policy: IdentityPolicy::default(),
            tokens: OnceLock::new(),
        }
    }

    /// Commits files; snapshots show the commit as `<label>`.
    pub(in crate::reconcile::tests) fn commit(&mut self, label: &str, files: &[(&str, &str)]) -> String {
        let commit = self.repository.commit_files(files, label).unwrap();
        self.labels.push((commit.clone(), format!("<{label}>")));
        commit
    }

    /// Makes snapshots show `text` as `<label>`.
    pub(in crate::reconcile::tests) fn label(&mut self, text: impl Into<String>, label: &str) {
        self.labels.push((text.into(), format!("<{label}>")));
    }

    /// Serves another repository with one commit of these files as `/<name>.git`; snapshots show the commit as
    /// `<name>`.
    pub(in crate::reconcile::tests) fn serve(&mut self, name: &str, files: &[(&str, &str)]) {
        let repository = Repository::create().unwrap();
        let commit = repository.commit_files(files, name).unwrap();
        self.labels.push((commit, format!("<{name}>")));
        self.server.serve(name, &repository);
        self.others.insert(name.to_owned(), repository);
    }

    pub(in crate::reconcile::tests) fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Returns a directory for mirrors.
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
            secrets: Secrets::new(self.client.clone(), ShownVersions::default()),
            clock: self.clock.clone(),
            repositories: Arc::new(NoRepositories),
            dependency_wait: Duration::from_secs(30),
            progress_delay: Duration::ZERO,
            origin,
            storage: Arc::new(LocalDirectory::open(self.storage.path(), "sc").unwrap()),
            recorder: self.recorder.clone(),
            schedule: Schedule::new(0, Arc::new(Generator::seeded(1))),
            transport: Transport::new().unwrap(),
            tokens: self.tokens(),
            limits: self.limits,
            durations: DurationBounds::default(),
            retention: Retention {
                ttl: Duration::from_mins(1),
                records: 2,
            },
            algorithm: Algorithm::Sha256,
            blocking_pool: Pool::new(4),
            packing: Pool::new(2),
            capacity: Capacity::new(2, 4),
            slots: Slots::new(SlotLimits::of(16, 2)),
            tracker: ObjectTracker::default(),
            tracer: Tracer::default(),
            stop: Token::new(),
        }
    }

    /// Returns the shared token cache.
    fn tokens(&self) -> Arc<Tokens> {
        let settings = || TokenSettings {
            client: self.client.clone(),
            clock: self.clock.clone(),
            environment: self.environment.clone(),
            policy: self.policy.clone(),
            cache: CacheSettings::default(),
        };
        let created = || Arc::new(Tokens::new(settings(), &Metrics::new()).unwrap());
        Arc::clone(self.tokens.get_or_init(created))
    }

    pub(in crate::reconcile::tests) fn objects(&self) -> Api<GitRepository> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Creates an object for branch main of `/app.git`, with these additional fields.
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

    /// Creates an object with this spec; returns whether the API accepts it.
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

    /// Creates an object for `/<name>.git` and reconciles it.
    pub(in crate::reconcile::tests) async fn create_and_reconcile(&self, name: &str) {
        self.create(name, json!({ "url": self.server.url(name) })).await;
        self.reconcile(name).await;
    }

    /// Patches the object.
    pub(in crate::reconcile::tests) async fn edit(&self, name: &str, patch: Value) {
        self.objects()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Requests a reconciliation by annotation.
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

    /// Patches the object's status.
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

    /// Returns the current objects as a controller's cache.
    pub(in crate::reconcile::tests) async fn cached(&self) -> Arc<dyn Repositories> {
        let all = self.objects().list(&ListParams::default()).await;
        Arc::new(CachedObjects(all.unwrap().items))
    }

    /// Reconciles an object; twice if the first time only adds the finalizer.
    pub(in crate::reconcile::tests) async fn reconcile(&self, name: &str) -> Requeue {
        Box::pin(self.reconcile_in(self.context(), name)).await
    }

    /// Reconciles an object in this context, and checks every write.
    pub(in crate::reconcile::tests) async fn reconcile_in(&self, context: Context, name: &str) -> Requeue {
        let stop = context.stop.clone();
        let context = Context {
            repositories: self.cached().await,
            ..context
        };
        let reconciliations = GitRepositories::new(Arc::new(context));
        let before = self.get(name).await;
        let cached = before.metadata.resource_version.clone().unwrap();
        let objects = self.objects();
        let changes = objects.watch(&WatchParams::default(), &cached).await.unwrap();
        let object = Arc::new(before.clone());
        let is_new = object.metadata.finalizers.is_none() && object.metadata.deletion_timestamp.is_none();
        let reconcile = async {
            let next = reconciliations.reconcile(object.clone()).await.unwrap();
            if is_new {
                reconciliations.reconcile(object).await.unwrap()
            } else {
                next
            }
        };
        let next = tokio::time::timeout(LIMIT, reconcile).await.unwrap();
        let after = self.objects().get_opt(name).await.unwrap();
        let last = after.and_then(|object| object.metadata.resource_version);
        let versions = if last.as_ref() == Some(&cached) {
            Vec::new()
        } else {
            let versions = versions_of(changes, name, last);
            tokio::time::timeout(LIMIT, versions).await.unwrap()
        };
        // A queued object is not settled.
        let is_queued = matches!(next, Requeue::Queued(_));
        check_writes(&before, &versions, stop.is_cancelled() || is_queued);
        *self.versions.lock().unwrap() = versions;
        next
    }

    /// Returns the number of mirrors.
    pub(in crate::reconcile::tests) fn mirrors_on_disk(&self) -> usize {
        let entries = std::fs::read_dir(self.mirrors_directory.path()).unwrap();
        entries
            .filter(|entry| entry.as_ref().unwrap().path().is_dir())
            .count()
    }

    /// Returns the path of an artifact's file.
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
