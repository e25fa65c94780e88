//! A world for passes: the embedded API, a real Git server, a directory for artifacts, a clock that stands still.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as CoreEvent, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::source::{Artifact, GitRepository, GitRepositoryStatus};
use sluice_embedded::{Embedded, Server, Store};
use sluice_harness::git::{GitServer, Repository};
use sluice_runtime::blocking::Pool;
use sluice_runtime::clock::{Clock, ManualClock};
use sluice_runtime::event::{Recorder, Reporter};
use sluice_runtime::random::Generator;
use sluice_runtime::schedule::Schedule;
use sluice_runtime::shutdown::Token;
use sluice_runtime::watch::{Next, Reconciler as _};

use crate::archive::Algorithm;
use crate::git::{Limits, Mirrors, Transport};
use crate::reconcile::{Context, GitRepositories, Network, Origin, Places};
use crate::storage::{LocalDirectory, Retention};

pub(super) const NAMESPACE: &str = "team";
/// No pass and no wait of a test takes longer.
pub(super) const LIMIT: Duration = Duration::from_secs(50);

pub(super) struct World {
    pub(super) server: GitServer,
    pub(super) repository: Repository,
    pub(super) storage: tempfile::TempDir,
    pub(super) clock: Arc<ManualClock>,
    pub(super) client: Client,
    _api: Embedded,
    recorder: Recorder,
    mirrors: Arc<Mirrors>,
    _mirrors_directory: tempfile::TempDir,
    limits: Limits,
    known: Vec<(String, String)>,
}

impl World {
    /// With a repository of one commit, served as `/app.git`.
    pub(super) async fn new() -> Self {
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

    /// With this repository.
    pub(super) async fn with(repository: Repository) -> Self {
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
            _mirrors_directory: mirrors_directory,
            limits: Limits::default(),
        }
    }

    /// Commits files; the commit shows in tables as `<label>`.
    pub(super) fn commit(&mut self, label: &str, files: &[(&str, &str)]) -> String {
        let commit = self.repository.commit_files(files, label).unwrap();
        self.known.push((commit.clone(), format!("<{label}>")));
        commit
    }

    pub(super) fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    pub(super) fn context(&self) -> Context {
        self.context_with(Arc::new(Network::new(Arc::clone(&self.mirrors))))
    }

    pub(super) fn context_with(&self, origin: Arc<dyn Origin>) -> Context {
        Context {
            client: self.client.clone(),
            clock: self.clock.clone(),
            origin,
            storage: Arc::new(LocalDirectory::open(self.storage.path(), "sc").unwrap()),
            recorder: self.recorder.clone(),
            schedule: Schedule::new(0, Arc::new(Generator::seeded(1))),
            transport: Transport::new().unwrap(),
            limits: self.limits,
            retention: Retention {
                ttl: Duration::from_secs(60),
                records: 2,
            },
            algorithm: Algorithm::Sha256,
            looks: Pool::new(4),
            packing: Pool::new(2),
            places: Places::new(4),
            stop: Token::new(),
        }
    }

    pub(super) fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    pub(super) fn objects(&self) -> Api<GitRepository> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Creates an object of `/app.git`, branch main, with these further fields of the spec.
    pub(super) async fn create(&self, name: &str, fields: Value) {
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

    /// Merges into the object.
    pub(super) async fn edit(&self, name: &str, patch: Value) {
        self.objects()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    pub(super) async fn delete(&self, name: &str) {
        self.objects()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    pub(super) async fn secret(&self, name: &str, fields: Value) {
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

    pub(super) async fn get(&self, name: &str) -> GitRepository {
        self.objects().get(name).await.unwrap()
    }

    pub(super) async fn status(&self, name: &str) -> GitRepositoryStatus {
        self.get(name).await.status.unwrap_or_default()
    }

    pub(super) async fn artifact(&self, name: &str) -> Artifact {
        self.status(name).await.artifact.expect("an artifact")
    }

    /// One pass; if it only put the finalizer there, the one that follows it.
    pub(super) async fn pass(&self, name: &str) -> Next {
        self.pass_in(self.context(), name).await
    }

    pub(super) async fn pass_in(&self, context: Context, name: &str) -> Next {
        let passes = GitRepositories::new(Arc::new(context));
        let object = Arc::new(self.get(name).await);
        let fresh = object.metadata.finalizers.is_none() && object.metadata.deletion_timestamp.is_none();
        let pass = async {
            let next = passes.reconcile(object.clone()).await.unwrap();
            if fresh {
                passes.reconcile(object).await.unwrap()
            } else {
                next
            }
        };
        tokio::time::timeout(LIMIT, pass).await.unwrap()
    }

    /// Path of an artifact's file.
    pub(super) fn file(&self, artifact: &Artifact) -> PathBuf {
        self.storage.path().join(&artifact.path)
    }

    /// Names in an artifact.
    pub(super) fn names(&self, artifact: &Artifact) -> Vec<String> {
        let gzip = std::fs::File::open(self.file(artifact)).unwrap();
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(gzip));
        let path =
            |entry: std::io::Result<tar::Entry<'_, _>>| entry.unwrap().path().unwrap().display().to_string();
        tar.entries().unwrap().map(path).collect()
    }

    /// What the object shows, and what was told since the last table.
    pub(super) async fn table(&self, name: &str) -> String {
        let object = self.get(name).await;
        let status = object.status.clone().unwrap_or_default();
        let mut lines: Vec<String> = status
            .conditions
            .iter()
            .map(|c| {
                let generation = c.observed_generation.unwrap_or_default();
                format!(
                    "{}={}/{} @{generation} {}",
                    c.type_, c.status, c.reason, c.message
                )
            })
            .collect();
        let revision = status
            .artifact
            .map_or_else(|| "none".to_owned(), |held| held.revision);
        lines.push(format!(
            "generation {} observed {} artifact {revision}",
            object.metadata.generation.unwrap_or_default(),
            status.observed_generation.unwrap_or_default(),
        ));
        lines.extend(self.told().await);
        self.masked(&lines.join("\n"))
    }

    /// Events since the last call, oldest first.
    pub(super) async fn told(&self) -> Vec<String> {
        self.recorder.flush().await;
        let events: Api<CoreEvent> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut found = events.list(&ListParams::default()).await.unwrap().items;
        found.sort_by_key(|event| event.metadata.name.clone());
        let mut lines = Vec::new();
        for event in found {
            let annotations = event.metadata.annotations.unwrap_or_default();
            let about: Vec<_> = annotations
                .keys()
                .filter_map(|key| key.rsplit('/').next())
                .collect();
            lines.push(format!(
                "event {} {} {}{}",
                event.type_.unwrap_or_default(),
                event.reason.unwrap_or_default(),
                event.message.unwrap_or_default(),
                if about.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", about.join(", "))
                },
            ));
            let name = event.metadata.name.unwrap_or_default();
            events.delete(&name, &DeleteParams::default()).await.unwrap();
        }
        lines
    }

    /// Commits and addresses by their labels.
    pub(super) fn masked(&self, text: &str) -> String {
        self.known
            .iter()
            .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
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
