//! The stack of a trial: two resources of the provider of the suites, the second one after the first.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use sluice_harness::git::Repository;
use sluice_harness::trial::TrialProvider;
use sluice_runtime::sync::lock;
use sluice_tests::scenario::retry;

use super::Trial;
use super::fault::{Fault, Moment, QUOTA_EXCEEDED};
use super::stage::Stage;

/// How long the provider works in the step of the moment: far longer than it takes to see it and to cause the fault.
const STEP: Duration = Duration::from_secs(6);

/// The Secret and the ConfigMap with variables of the module.
pub(super) const INPUTS: &str = "inputs";
/// The deadline of a run whose CLI hangs.
const SHORT_DEADLINE: &str = "40s";
/// Seconds after which a CLI is killed that ignores its interrupt.
const SHORT_GRACE: u32 = 10;
/// The memory limit of a pod.
const MEMORY_LIMIT: &str = "512Mi";
/// What the provider takes beyond it.
const TAKEN_MEBIBYTES: u32 = 1024;

const RESOURCES: &str = r#"
variable "content" {
  default = "one"
}
variable "note" {
  default = ""
}
resource "trial_thing" "first" {
  name    = "first"
  content = var.content
}
resource "trial_thing" "second" {
  name    = "second"
  content = trial_thing.first.id
}
output "first" {
  value = trial_thing.first.random
}
"#;

/// A stack with its source and its provider.
pub(super) struct Stack {
    pub(super) client: Client,
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) provider: TrialProvider,
    pub(super) is_manual: bool,
    /// What a run says because of the fault.
    pub(super) evidence: Option<&'static str>,
    /// Ids of the plans that were approved.
    pub(super) approved: Mutex<BTreeSet<String>>,
    /// The revision to apply.
    revision: Mutex<String>,
    /// When the first pod was seen.
    start: Mutex<Option<Instant>>,
    repository: Repository,
}

/// What the object says.
pub(super) struct StackStatus {
    object: Value,
    revision: String,
}

impl StackStatus {
    fn text(&self, pointer: &str) -> &str {
        self.object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn ready(&self) -> Option<&Value> {
        let conditions = self.object.pointer("/status/conditions")?.as_array()?;
        conditions.iter().find(|condition| condition["type"] == "Ready")
    }

    pub(super) fn is_applied(&self) -> bool {
        let is_ready = self.ready().is_some_and(|ready| ready["status"] == "True");
        let applied = self.text("/status/lastAppliedRevision");
        // A revision after the applied one that changes no resource is only planned.
        let has_no_changes = !applied.is_empty() && self.text("/status/lastPlannedRevision") == self.revision;
        is_ready && (applied == self.revision || has_no_changes)
    }
}

impl Stack {
    pub(super) async fn create(stage: &Stage, trial: Trial) -> Result<Self, String> {
        let provider = TrialProvider::create().map_err(|error| error.to_string())?;
        open_to_pods(&provider).map_err(|error| error.to_string())?;
        provider
            .set_behaviour(&behaviour(trial.fault, trial.moment))
            .map_err(|error| error.to_string())?;
        let repository = Repository::create().map_err(|error| error.to_string())?;
        let name = format!("trial-{}", trial.number);
        let url = stage.serve(&name, &repository);
        let client = stage.node.client().await.map_err(|error| error.to_string())?;
        let stack = Self {
            client,
            namespace: name.clone(),
            name,
            provider,
            is_manual: trial.is_manual,
            evidence: trial.fault.evidence(trial.moment),
            approved: Mutex::default(),
            revision: Mutex::default(),
            start: Mutex::default(),
            repository,
        };
        stage.create_namespace(&stack.namespace).await?;
        stack.commit("")?;
        stack.create_inputs().await?;
        stack.apply(&stack.source(&url)).await?;
        stack.apply(&stack.manifest(trial.fault)).await?;
        Ok(stack)
    }

    /// Commits the module with these lines; the stack is to be applied at this commit.
    fn commit(&self, lines: &str) -> Result<(), String> {
        let module = format!("{}{RESOURCES}{lines}", self.provider.provider_block());
        let commit = self
            .repository
            .commit_files(&[("main.tf", module)], "Two resources");
        *lock(&self.revision) = format!("main@sha1:{}", commit.map_err(|error| error.to_string())?);
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
        requested.map(drop).map_err(|error| error.to_string())
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
        applied.map(drop).map_err(|error| error.to_string())
    }

    fn source(&self, url: &str) -> Value {
        json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": self.name, "namespace": self.namespace },
            "spec": { "interval": "10m", "url": url, "ref": { "branch": "main" } },
        })
    }

    fn manifest(&self, fault: Fault) -> Value {
        let folder = self.provider.cli_config();
        let folder = folder.parent().map(|folder| folder.display().to_string());
        let config = self.provider.cli_config().display().to_string();
        let mut spec = json!({
            "interval": "10m", "retryInterval": "3s", "path": "./",
            "approvePlan": if self.is_manual { "" } else { "auto" },
            "sourceRef": { "kind": "GitRepository", "name": self.name },
            "varsFrom": [{ "kind": "Secret", "name": INPUTS }, { "kind": "ConfigMap", "name": INPUTS }],
            "writeOutputsToSecret": { "name": format!("{}-outputs", self.name) },
            "runnerPodTemplate": { "spec": {
                "env": [{ "name": "TF_CLI_CONFIG_FILE", "value": config }],
                "volumes": [{ "name": "provider", "hostPath": { "path": folder } }],
                "volumeMounts": [{ "name": "provider", "mountPath": folder }],
            } },
        });
        match fault {
            Fault::HangProvider | Fault::IgnoreInterrupt => {
                spec["runDeadline"] = json!(SHORT_DEADLINE);
                spec["runnerTerminationGracePeriodSeconds"] = json!(SHORT_GRACE);
            }
            Fault::ExhaustMemory => {
                let limits = json!({ "limits": { "memory": MEMORY_LIMIT } });
                spec["runnerPodTemplate"]["spec"]["resources"] = limits;
            }
            _ => {}
        }
        json!({
            "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": { "name": self.name, "namespace": self.namespace },
            "spec": spec,
        })
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

    /// Returns name and container id of each pod that has not ended.
    pub(super) async fn running_pods(&self) -> Result<Vec<(String, Option<String>)>, String> {
        let (pods, selected) = (self.pods(), ListParams::default().labels(&self.pod_selector()));
        let found = retry(|| pods.list(&selected))
            .await
            .map_err(|error| error.to_string())?;
        let is_running = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            !matches!(phase, Some("Succeeded" | "Failed"))
        };
        let container = |pod: &Pod| {
            let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
            containers.first()?.container_id.clone()
        };
        let running = found.items.iter().filter(|pod| is_running(pod));
        Ok(running.map(|pod| (pod.name_any(), container(pod))).collect())
    }

    /// Returns the runs of the stack, oldest first.
    pub(super) async fn runs(&self) -> Result<Vec<Value>, String> {
        let api = self.api(&gvk("infra.sluice.dev", "v1alpha1", "TerraformRun"));
        let selected = ListParams::default().labels(&self.pod_selector());
        let found = retry(|| api.list(&selected))
            .await
            .map_err(|error| error.to_string())?;
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
        let found = retry(|| api.get(&self.name))
            .await
            .map_err(|error| error.to_string())?;
        Ok(StackStatus {
            object: serde_json::to_value(found).unwrap(),
            revision: lock(&self.revision).clone(),
        })
    }

    /// Approves the pending plan, as a person would who reads each plan.
    pub(super) async fn approve(&self, status: &StackStatus) -> Result<(), String> {
        let plan = status.text("/status/plan/pending");
        if !self.is_manual || plan.is_empty() || !self.approved.lock().unwrap().insert(plan.to_owned()) {
            return Ok(());
        }
        let api = self.api(&gvk("infra.contrib.fluxcd.io", "v1alpha2", "Terraform"));
        let patch = Patch::Merge(json!({ "spec": { "approvePlan": plan } }));
        let params = PatchParams::default();
        let approved = retry(|| api.patch(&self.name, &params, &patch)).await;
        approved.map(drop).map_err(|error| error.to_string())
    }

    /// Returns whether the namespace is deleted.
    pub(super) async fn is_gone(&self) -> Result<bool, String> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let found = retry(|| namespaces.get_opt(&self.namespace)).await;
        found
            .map(|found| found.is_none())
            .map_err(|error| error.to_string())
    }

    /// Returns whether the moment has come; `delay` is that of [`Moment::Any`].
    pub(super) async fn has_reached(&self, moment: Moment, delay: Duration) -> Result<bool, String> {
        if let Some(step) = moment.step() {
            return Ok(self.provider.calls().iter().any(|call| call == step));
        }
        if self.start.lock().unwrap().is_none() && !self.running_pods().await?.is_empty() {
            *self.start.lock().unwrap() = Some(Instant::now());
        }
        let wait = if moment == Moment::Any {
            delay
        } else {
            Duration::ZERO
        };
        let start = *self.start.lock().unwrap();
        Ok(start.is_some_and(|start| start.elapsed() >= wait))
    }

    /// The provider is neither slow nor faulty any more.
    pub(super) fn behave_well(&self) {
        self.provider.set_behaviour(&json!({})).unwrap();
    }

    /// Removes the resource that a killed apply created and could not record, as a user would who reads the error. Returns how many.
    pub(super) fn remove_orphan(&self, status: &StackStatus) -> usize {
        let message = status
            .ready()
            .and_then(|ready| ready["message"].as_str())
            .unwrap_or_default();
        let mut removed = 0;
        for name in ["first", "second"] {
            let error = format!("thing \"{name}\" exists already");
            if message.contains(&error) && self.provider.delete_resource(name).is_ok() {
                removed += 1;
            }
        }
        removed
    }

    /// Returns what a user would look at.
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

pub(super) fn gvk(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Permits the user of runs to enter the folder of the provider and to write its data.
fn open_to_pods(provider: &TrialProvider) -> std::io::Result<()> {
    let data = provider.data_dir();
    let things = data.join("things");
    fs::set_permissions(data.parent().unwrap_or(&data), Permissions::from_mode(0o755))?;
    fs::set_permissions(&data, Permissions::from_mode(0o777))?;
    fs::set_permissions(&things, Permissions::from_mode(0o777))
}

/// Returns what the provider does in the step of the moment.
fn behaviour(fault: Fault, moment: Moment) -> Value {
    let Some(step) = moment.step() else {
        return json!({});
    };
    let order = match fault {
        Fault::CrashProvider => json!({ "crash": true }),
        Fault::FailProvider => json!({ "fail": QUOTA_EXCEEDED }),
        Fault::HangProvider | Fault::IgnoreInterrupt => json!({ "hang": true }),
        Fault::ExhaustMemory => json!({ "memoryMiB": TAKEN_MEBIBYTES }),
        _ => json!({ "delayMs": STEP.as_millis() }),
    };
    json!({ "steps": { step: order }, "ignoreInterrupts": fault == Fault::IgnoreInterrupt })
}
