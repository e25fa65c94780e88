//! The stack of a trial: two resources of the provider of the suites, the second one after the first.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Mutex;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_harness::git::Repository;
use sluice_harness::trial::TrialProvider;
use sluice_runtime::sync::lock;
use sluice_tests::scenario::retry;

use super::hold::Holds;
use super::manifests::{INPUTS, RESOURCES, behaviour};
use super::stage::Stage;
use super::status::StackStatus;
use super::{LIMIT, Trial, pods, sleep_before};

/// A stack with its source and its provider.
pub(super) struct Stack {
    pub(super) client: Client,
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) provider: TrialProvider,
    pub(super) trial: Trial,
    /// Ids of the plans that were approved.
    pub(super) approved: Mutex<BTreeSet<String>>,
    /// The revision to apply.
    revision: Mutex<String>,
    /// When a pod was seen to have started.
    pub(super) start: Mutex<Option<Instant>>,
    repository: Repository,
    /// The URL of the repository for pods.
    pub(super) url: String,
    /// What holds its runs besides the provider.
    pub(super) holds: Holds,
}

impl Stack {
    /// Makes the provider and the repository. Nothing is in the API yet.
    pub(super) async fn new(stage: &Stage<'_>, trial: Trial) -> Result<Self, String> {
        let provider = TrialProvider::create().map_err(failure("make the provider"))?;
        provider
            .open_to_pods()
            .map_err(failure("open the provider to pods"))?;
        provider
            .set_behaviour(&behaviour(trial.fault, trial.moment))
            .map_err(failure("set the behaviour of the provider"))?;
        let repository = Repository::create().map_err(failure("make the repository"))?;
        let name = format!("trial-{}", trial.number);
        let client = stage.node.client().await.map_err(failure("make a client"))?;
        Ok(Self {
            client,
            holds: Holds::prepare(stage, &name, trial.moment).await?,
            namespace: name.clone(),
            url: stage.serve(&name, &repository),
            name,
            provider,
            trial,
            approved: Mutex::default(),
            revision: Mutex::default(),
            start: Mutex::default(),
            repository,
        })
    }

    /// Creates the objects.
    pub(super) async fn start(&self, stage: &Stage<'_>) -> Result<(), String> {
        stage.create_namespace(&self.namespace).await?;
        self.holds.configure(stage).await?;
        self.commit("")?;
        self.create_inputs().await?;
        self.apply(&self.source()).await?;
        self.apply(&self.manifest()).await
    }

    /// Deletes the namespace, and pods in it without grace: remaining pods would continue, and load the node. Waits until it is gone.
    pub(super) async fn delete(&self) -> Result<(), String> {
        self.holds.delete(&self.client, &self.name).await;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        // It is absent after its own deletion.
        let how = DeleteParams::default();
        let _absent = retry(|| namespaces.delete(&self.namespace, &how)).await;
        let (pods, how, all) = (self.pods(), without_grace(), ListParams::default());
        let deadline = Instant::now() + LIMIT;
        while !self.is_gone().await? {
            let _ended = retry(|| pods.delete_collection(&how, &all)).await;
            sleep_before(deadline, "was not deleted after the trial", self).await?;
        }
        Ok(())
    }

    /// Commits the module with these lines; the stack is to be applied at this commit.
    fn commit(&self, lines: &str) -> Result<(), String> {
        let (provider, call) = (self.provider.provider_block(), self.holds.call());
        let module = format!("{provider}{RESOURCES}{call}{lines}");
        let commit = self
            .repository
            .commit_files(&[("main.tf", module)], "Two resources");
        *lock(&self.revision) = format!("main@sha1:{}", commit.map_err(failure("commit"))?);
        Ok(())
    }

    /// Commits a change of the module that changes no resource, and requests the source.
    pub(super) async fn change_source(&self) -> Result<(), String> {
        self.commit("# the next revision\n")?;
        let sources = self.api(&gvk("source.toolkit.fluxcd.io", "v1", "GitRepository"));
        let request = json!({ "reconcile.fluxcd.io/requestedAt": Timestamp::now().to_string() });
        let patch = Patch::Merge(json!({ "metadata": { "annotations": request } }));
        let params = PatchParams::default();
        let requested = retry(|| sources.patch(&self.name, &params, &patch)).await;
        requested.map(drop).map_err(failure("request the source"))
    }

    /// Creates the Secret and the ConfigMap that the stack reads.
    pub(super) async fn create_inputs(&self) -> Result<(), String> {
        let metadata = json!({ "name": INPUTS, "namespace": self.namespace });
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata,
            "stringData": { "content": "one" } });
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "note": "two" } });
        self.apply(&secret).await?;
        self.apply(&map).await
    }

    async fn apply(&self, manifest: &Value) -> Result<(), String> {
        let text = |pointer: &str| {
            manifest
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", "v1"));
        let api = self.api(&gvk(group, version, text("/kind")));
        let (parameters, patch) = (PatchParams::apply("tests").force(), Patch::Apply(manifest));
        let applied = retry(|| api.patch(text("/metadata/name"), &parameters, &patch)).await;
        let what = format!("apply {} {}", text("/kind"), text("/metadata/name"));
        applied.map(drop).map_err(failure(&what))
    }

    pub(super) fn api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, resource)
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(super) fn pod_selector(&self) -> String {
        format!("infra.sluice.dev/terraform={}", self.name)
    }

    /// Returns the runs of the stack, oldest first.
    pub(super) async fn runs(&self) -> Result<Vec<Value>, String> {
        let api = self.api(&gvk("infra.sluice.dev", "v1alpha1", "TerraformRun"));
        let selected = ListParams::default().labels(&self.pod_selector());
        let found = retry(|| api.list(&selected))
            .await
            .map_err(failure("list runs"))?;
        let mut runs: Vec<_> = found
            .items
            .iter()
            .map(|run| serde_json::to_value(run).unwrap())
            .collect();
        let sequence = |run: &Value| {
            let name = run["metadata"]["name"].as_str().unwrap_or_default();
            name.rsplit('-')
                .next()
                .and_then(|number| number.parse::<u64>().ok())
        };
        runs.sort_by_key(sequence);
        Ok(runs)
    }

    /// Reads the object.
    pub(super) async fn read(&self) -> Result<StackStatus, String> {
        let api = self.api(&gvk("infra.contrib.fluxcd.io", "v1alpha2", "Terraform"));
        let found = retry(|| api.get(&self.name)).await;
        let found = found.map_err(failure("read the stack"))?;
        Ok(StackStatus {
            object: serde_json::to_value(found).unwrap(),
            revision: lock(&self.revision).clone(),
        })
    }

    /// Approves the pending plan, as a user would who reads each plan.
    pub(super) async fn approve(&self, status: &StackStatus) -> Result<(), String> {
        let plan = status.text("/status/plan/pending");
        if !self.trial.is_manual || plan.is_empty() || !self.approved.lock().unwrap().insert(plan.to_owned())
        {
            return Ok(());
        }
        self.edit(&json!({ "approvePlan": plan })).await
    }

    /// Changes an annotation of the stack, of its source and of its runs, as another controller does. Returns how many objects it changed.
    pub(super) async fn annotate_objects(&self, value: usize) -> Result<usize, String> {
        let patch = json!({ "metadata": { "annotations": { "sluice.test/edits": value.to_string() } } });
        let (patch, params) = (Patch::Merge(patch), PatchParams::default());
        let runs = self.runs().await?;
        let runs = runs.iter().filter_map(|run| run["metadata"]["name"].as_str());
        let objects = [
            (
                "infra.contrib.fluxcd.io",
                "v1alpha2",
                "Terraform",
                self.name.as_str(),
            ),
            ("source.toolkit.fluxcd.io", "v1", "GitRepository", &self.name),
        ]
        .into_iter()
        .chain(runs.map(|run| ("infra.sluice.dev", "v1alpha1", "TerraformRun", run)));
        let mut changed = 0;
        for (group, version, kind, name) in objects {
            let api = self.api(&gvk(group, version, kind));
            // A run may have been removed since it was listed.
            changed += usize::from(retry(|| api.patch(name, &params, &patch)).await.is_ok());
        }
        Ok(changed)
    }

    /// Changes fields of the spec.
    async fn edit(&self, fields: &Value) -> Result<(), String> {
        let api = self.api(&gvk("infra.contrib.fluxcd.io", "v1alpha2", "Terraform"));
        let patch = Patch::Merge(json!({ "spec": fields }));
        let params = PatchParams::default();
        let edited = retry(|| api.patch(&self.name, &params, &patch)).await;
        edited.map(drop).map_err(failure("edit the stack"))
    }

    /// Returns whether the namespace is deleted.
    pub(super) async fn is_gone(&self) -> Result<bool, String> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let found = retry(|| namespaces.get_opt(&self.namespace)).await;
        found
            .map(|found| found.is_none())
            .map_err(failure("read the namespace"))
    }

    /// Returns the pods that have not ended.
    pub(super) async fn running_pods(&self) -> Result<Vec<Pod>, String> {
        pods::running(&self.pods(), &self.pod_selector()).await
    }

    /// Later runs have the usual deadline. The deadline of a run is that of its creation.
    pub(super) async fn reset_deadline(&self) -> Result<(), String> {
        if self.trial.fault.needs_deadline() {
            self.edit(&json!({ "runDeadline": null })).await?;
        }
        Ok(())
    }

    /// Returns what a user would read after a failure.
    pub(super) async fn describe(&self) -> String {
        let status = self.read().await.map(|status| status.object["status"].clone());
        let runs = self.runs().await.map(|runs| {
            let text = |run: &Value| {
                let status = &run["status"];
                format!(
                    "{} {} {} {}",
                    run["metadata"]["name"], status["phase"], status["reason"], status["message"]
                )
            };
            runs.iter().map(text).collect::<Vec<_>>().join("\n")
        });
        format!(
            "{:#}\n{}\n{:?}",
            status.unwrap_or_default(),
            runs.unwrap_or_default(),
            self.provider.calls()
        )
    }
}

/// Names what failed.
pub(super) fn failure<E: Display>(what: &str) -> impl Fn(E) -> String {
    move |error| format!("cannot {what}: {error}")
}

pub(super) fn without_grace() -> DeleteParams {
    DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    }
}

pub(super) fn gvk(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}
