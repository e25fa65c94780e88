//! The kubelet of the load test, which also plays the runner.
//!
//! Pods of 1,500 runs do not fit on one machine, so none is started. The Jobs and their pods are real objects: the Job controller of
//! Kubernetes creates the pods. Nothing schedules them; the kubelet takes each, and writes its phases. Instead of a container, it does
//! what the controllers see of a runner: with the rights of the account of runs it claims the run, plans one resource, asks the gate,
//! applies, and reports. It reads no bundle, starts no CLI, and takes no time, so a run of it says nothing about the duration of runs.

use std::collections::{BTreeMap, HashSet};
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_api::run::gate::{Gate, check_new_plan};
use sluice_api::run::{Change, ChangeSummary, Claim, Phase, PlanEffects, TerraformRun, TerraformRunStatus};
use sluice_api::terraform::approval::CandidatePlan;
use sluice_api::terraform::{Reason, Terraform};
use sluice_tests::BoxError;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// The label with the name of a pod's Job, which is the name of its run.
const JOB_NAME_LABEL: &str = "batch.kubernetes.io/job-name";
/// Attempts to claim a run. A conflict is a write of the controller.
const MAX_CONFLICTS: u32 = 20;
/// The size of a stored plan and of a state in bytes: those of a small stack.
const STORED_BYTES: usize = 4096;
/// The peak memory of the CLI that a run reports, in bytes.
const PEAK_MEMORY: i64 = 120 << 20;

/// A kubelet for all pods of runs. It stops when dropped.
pub(super) struct Kubelet {
    watch: JoinHandle<()>,
    error: watch::Receiver<Option<String>>,
}

impl Kubelet {
    /// Starts the watch of pods. `runners` are clients with the account of runs, by namespace.
    pub(super) fn start(client: Client, runners: BTreeMap<String, Client>) -> Self {
        let (sender, error) = watch::channel(None);
        let node = Node {
            client,
            runners,
            error: sender,
        };
        let watch = tokio::spawn(start_pods(Arc::new(node)));
        Self { watch, error }
    }

    /// Returns the first error of a pod.
    pub(super) fn error(&self) -> Option<String> {
        self.error.borrow().clone()
    }

    /// Waits for the first error of a pod.
    pub(super) async fn failed(&self) -> String {
        let mut error = self.error.clone();
        let found = error.wait_for(Option::is_some).await;
        found.map_or_else(
            |_| "the kubelet has stopped".to_owned(),
            |error| error.clone().unwrap_or_default(),
        )
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// Starts each pod once.
async fn start_pods(node: Arc<Node>) {
    let of_runs = watcher::Config::default().labels(TERRAFORM_LABEL);
    let pods = watcher(Api::<Pod>::all(node.client.clone()), of_runs);
    let mut pods = pin!(pods.default_backoff().applied_objects());
    let (mut known, mut tasks) = (HashSet::new(), JoinSet::new());
    while let Some(pod) = pods.next().await {
        while tasks.try_join_next().is_some() {}
        let Ok(pod) = pod else { continue };
        if !known.insert(pod.uid()) {
            continue;
        }
        let node = Arc::clone(&node);
        tasks.spawn(async move {
            if let Err(error) = Box::pin(node.run_pod(&pod)).await {
                let text = format!("pod {}: {error}", pod.name_any());
                node.error.send_modify(|first| {
                    first.get_or_insert(text);
                });
            }
        });
    }
}

/// What the kubelet and its pods use of the API.
struct Node {
    client: Client,
    runners: BTreeMap<String, Client>,
    error: watch::Sender<Option<String>>,
}

impl Node {
    /// Runs a pod from its start to its end.
    async fn run_pod(&self, pod: &Pod) -> Result<(), BoxError> {
        let namespace = pod.namespace().unwrap_or_default();
        let runner = self.runners.get(&namespace).ok_or("no account of runs")?;
        let started = Time(Timestamp::now());
        let running = json!({ "running": { "startedAt": started } });
        self.write_status(pod, "Running", &running, &started).await?;
        Box::pin(Runner::new(runner, pod, &namespace).carry_out()).await?;
        let ended = Time(Timestamp::now());
        let terminated = json!({ "terminated": { "exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": ended } });
        self.write_status(pod, "Succeeded", &terminated, &started).await
    }

    /// Writes the status of a pod with one container.
    async fn write_status(
        &self,
        pod: &Pod,
        phase: &str,
        state: &Value,
        started: &Time,
    ) -> Result<(), BoxError> {
        let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        let container = container.ok_or("the pod has no container")?;
        let is_running = phase == "Running";
        let container = json!({ "name": container.name, "image": container.image, "imageID": "", "restartCount": 0,
            "ready": is_running, "started": is_running, "state": state });
        let status = json!({ "phase": phase, "startTime": started, "containerStatuses": [container] });
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let patch = Patch::Merge(json!({ "status": status }));
        pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }
}

/// The runner of one run.
struct Runner<'a> {
    pod: &'a Pod,
    runs: Api<TerraformRun>,
    stacks: Api<Terraform>,
    secrets: Api<Secret>,
}

impl<'a> Runner<'a> {
    fn new(client: &Client, pod: &'a Pod, namespace: &str) -> Self {
        Self {
            pod,
            runs: Api::namespaced(client.clone(), namespace),
            stacks: Api::namespaced(client.clone(), namespace),
            secrets: Api::namespaced(client.clone(), namespace),
        }
    }

    /// Claims the run, plans, and applies if the gate permits it.
    async fn carry_out(&self) -> Result<(), BoxError> {
        let run = self.claim().await?;
        let stack = &run.spec.terraform.name;
        self.store(&format!("tfplan-default-{stack}")).await?;
        let plan = planned(&run);
        let found = self.stacks.get_opt(stack).await?;
        let candidate = CandidatePlan {
            id: &plan.plan_id,
            effects: plan.effects.as_ref(),
            entries: &plan.change_entries,
            ..CandidatePlan::default()
        };
        if check_new_plan(&run.spec, found.as_ref(), candidate) != Gate::Apply {
            let end = ended(plan, Reason::TerraformPlannedWithChanges, "Plan generated");
            return self.write(&run, &end).await.map(drop);
        }
        let applying = TerraformRunStatus {
            phase: Phase::Applying,
            attempted_apply: true,
            ..plan
        };
        let run = self.write(&run, &applying).await?;
        self.store(&format!("tfstate-default-{stack}")).await?;
        let applied = TerraformRunStatus {
            applied: true,
            ..applying
        };
        let end = ended(applied, Reason::TerraformAppliedSucceed, "Applied successfully");
        self.write(&run, &end).await.map(drop)
    }

    /// Claims the run of the pod by compare-and-swap.
    async fn claim(&self) -> Result<TerraformRun, BoxError> {
        let name = self.pod.labels().get(JOB_NAME_LABEL).ok_or("a pod of no Job")?;
        let claimed = TerraformRunStatus {
            phase: Phase::Claimed,
            claim: Some(Claim {
                holder: self.pod.uid().unwrap_or_default(),
                pod: self.pod.name_any(),
                pod_namespace: self.pod.namespace().unwrap_or_default(),
                pod_uid: self.pod.uid().unwrap_or_default(),
                ..Claim::default()
            }),
            job_name: name.clone(),
            started_at: Some(Time(Timestamp::now())),
            possible_lock_windows: Some(Vec::new()),
            ..TerraformRunStatus::default()
        };
        for _ in 0..MAX_CONFLICTS {
            let run = self.runs.get(name).await?;
            let phase = run.status.as_ref().map(|status| status.phase).unwrap_or_default();
            if phase != Phase::Pending {
                return Err(format!("run {name} is {}", phase.as_str()).into());
            }
            match self.write(&run, &claimed).await {
                Err(error) if is_conflict(&error) => {}
                written => return written,
            }
        }
        Err(format!("run {name} changes all the time").into())
    }

    /// Adds a status to that of the run.
    async fn write(&self, run: &TerraformRun, status: &TerraformRunStatus) -> Result<TerraformRun, BoxError> {
        let metadata = json!({ "resourceVersion": run.resource_version() });
        let patch = Patch::Merge(json!({ "metadata": metadata, "status": status }));
        let params = PatchParams::default();
        Ok(self.runs.patch_status(&run.name_any(), &params, &patch).await?)
    }

    /// Creates a Secret as large as what a run stores.
    async fn store(&self, name: &str) -> Result<(), BoxError> {
        let data = json!({ "data": "x".repeat(STORED_BYTES) });
        let secret = json!({ "metadata": { "name": name }, "stringData": data });
        let secret = serde_json::from_value(secret)?;
        self.secrets.create(&PostParams::default(), &secret).await?;
        Ok(())
    }
}

fn is_conflict(error: &BoxError) -> bool {
    let error = error.downcast_ref::<kube::Error>();
    matches!(error, Some(kube::Error::Api(status)) if status.is_conflict())
}

/// Returns the status of a run whose plan creates one resource.
fn planned(run: &TerraformRun) -> TerraformRunStatus {
    let commit = run.spec.source.revision.rsplit(':').next().unwrap_or_default();
    let commit: String = commit.chars().take(10).collect();
    // A digest of 40 hex digits that differs from that of every other plan.
    let effect = format!("{:0<40}", run.uid().unwrap_or_default().replace('-', ""));
    let counts = ChangeSummary {
        add: 1,
        ..ChangeSummary::default()
    };
    let address = "terraform_data.it";
    TerraformRunStatus {
        phase: Phase::Planning,
        has_changes: Some(true),
        plan_id: format!("plan-main-{commit}-{effect}"),
        plan_digest: format!("sha256:{effect:0<64}"),
        effect_digest: effect,
        changes: counts.short(),
        summary: Some(counts),
        change_entries: vec![Change {
            action: "create".to_owned(),
            address: address.to_owned(),
        }],
        effects: Some(PlanEffects {
            creates: 1,
            types: vec!["terraform_data".to_owned()],
            ..PlanEffects::default()
        }),
        human_plan: format!("# {address} will be created\n"),
        workspace: "default".to_owned(),
        ..TerraformRunStatus::default()
    }
}

/// Returns the status at the end of a run that succeeded.
fn ended(status: TerraformRunStatus, reason: Reason, message: &str) -> TerraformRunStatus {
    TerraformRunStatus {
        phase: Phase::Succeeded,
        reason: reason.as_str().to_owned(),
        message: message.to_owned(),
        peak_memory_bytes: Some(PEAK_MEMORY),
        finished_at: Some(Time(Timestamp::now())),
        ..status
    }
}
