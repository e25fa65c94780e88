//! Reconciles one stack. This file alone knows the order of the steps:
//!
//! 1. `active_run::check`: while the run is alive and unchanged, nothing else happens; a change of it skips steps 2 and 3.
//! 2. `observe::read_live`: the stack, with the finalizer.
//! 3. `observe`: the runs and the source.
//! 4. `facts::Outline`: what follows from these objects alone.
//! 5. `resolution`: the inputs, for a destroy without its source from the last applied record.
//! 6. `dependencies`: the state of the stacks that this one depends on.
//! 7. `adopt`: the newest run of an object that has a status but no runs.
//! 8. `facts::build_facts`: everything that the decision uses.
//! 9. `decide`: the next step, which may wait for the dependents. A stack without a run releases its slot here.
//! 10. `cleanup::delete_bundle`: the bundle of an ended run; `rejection::record`: the rejection of the pending plan, in its run.
//! 11. `execute`: starts (`dispatch`) or supervises (`supervision`) a run.
//! 12. `metrics::count_runs`, and `trace::export` for runs that have ended; then `release`: removes a deleted stack, or `report`: writes status and events, then
//!     `metrics::set_state`, `approvals::report`: the status of `PlanApproval` objects, and `cleanup::prune`.
//! 13. `ActiveRuns`: stores the active run for the next reconciliation.

mod account;
mod active_run;
mod adopt;
mod approvals;
mod blocked_destroy;
mod cleanup;
mod dependencies;
mod dispatch;
mod end_reason;
mod execute;
mod facts;
mod heartbeat;
mod history;
mod metrics;
#[cfg(test)]
mod model;
mod observe;
mod rejection;
mod release;
mod report;
mod resolution;
mod resolve;
mod run_object;
mod supervision;
mod trace;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

pub(crate) use active_run::ActiveRuns;
use active_run::{ActiveRun, Lookup};
use adopt::adopted_run;
pub(crate) use cleanup::{DeletedBundles, forget_stack};
pub(crate) use dependencies::{dependency_order, related_stacks, relevant_version};
use execute::execute;
pub(crate) use execute::occupies_slot;
use facts::{Outline, Settings, build_facts};
pub(crate) use heartbeat::HeartbeatTracker;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Client, Resource, ResourceExt};
pub(crate) use metrics::StackMetrics;
use observe::{LiveStack, Observed, observe};
use report::{Report, events, status};
use resolution::{Resolution, resolve_inputs};
pub(crate) use resolve::Artifacts;
pub use resolve::{LocalInputsError, local_bundle};
use sluice_api::annotation::REQUESTED_AT;
use sluice_api::condition::{ConditionType, TerraformCondition};
use sluice_api::interval::Interval;
use sluice_api::reference::{CrossNamespace, ObjectName};
use sluice_api::run::{PlanApproval, TerraformRun};
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;
use sluice_runtime::clock::Clock;
use sluice_runtime::event::Recorder;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::status::{Applied, WriteError};
use sluice_runtime::sync::lock;
use sluice_runtime::trace::Tracer;
use sluice_runtime::watch::{ObjectCache, Reconciler, Requeue};
use sluice_tf_core::bundle::StateCopies;

use crate::decide::{Dependencies, Facts, Step, decide_alone, needs_dependents, wait_for_dependents};
use crate::executor::Executor;
use crate::inputs;
use crate::runs::RunOwners;
use crate::schedule::RunSlots;

/// Everything that reconciliations share.
pub(crate) struct Context {
    /// Client of the Kubernetes API.
    pub(crate) client: Client,
    /// The clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// Starts runners and reports their liveness.
    pub(crate) executor: Arc<dyn Executor>,
    /// Records events.
    pub(crate) recorder: Recorder,
    /// Exports traces.
    pub(crate) tracer: Tracer,
    /// Directory of the installed versions of the CLI.
    pub(crate) tools_dir: Option<PathBuf>,
    /// The stacks whose newest bundle is deleted.
    pub(crate) deleted_bundles: cleanup::DeletedBundles,
    /// Heartbeats of runs whose process locks are not visible here.
    pub(crate) heartbeats: HeartbeatTracker,
    /// The active runs, as of the last reconciliation.
    pub(crate) active_runs: ActiveRuns,
    /// The index from runs to their stacks, kept by the watch.
    pub(crate) run_owners: Arc<RunOwners>,
    /// Unpacked artifacts.
    pub(crate) artifacts: Artifacts,
    /// The run queue and its slots.
    pub(crate) run_slots: Arc<RunSlots>,
    /// Metrics of stacks and runs.
    pub(crate) metrics: StackMetrics,
    /// When this controller started to decide.
    pub(crate) started_at: Timestamp,
    /// Whether cross-namespace references are allowed.
    pub(crate) cross_namespace: CrossNamespace,
    /// Longest break-glass session; `None`: sessions are not allowed.
    pub(crate) break_glass_limit: Option<Interval>,
    /// Maximum size in bytes of the files that are stored with the last applied record.
    pub(crate) destroy_files_limit: u64,
    /// The copies of its state that a run stores before it applies, without keys.
    pub(crate) state_copies: StateCopies,
    /// Whether stacks with `spec.serviceAccountName` run without that ServiceAccount.
    pub(crate) ignore_account: bool,
    /// ServiceAccount of stacks that name none. If it is set, the inputs of each stack are read under its account.
    pub(crate) default_account: Option<String>,
    /// ServiceAccount under which the deletion of a stack destroys whose own account does not exist.
    pub(crate) destroy_account: Option<String>,
    /// Deadline of runs whose stack sets none.
    pub(crate) run_deadline: Interval,
    /// The Secret with the keys that seal stored plans.
    pub(crate) plan_encryption: Option<ObjectName>,
    /// Where the CLI runs, for the generated backend.
    pub(crate) cli_location: inputs::CliLocation,
    /// The cache of all stacks, for `dependsOn`.
    pub(crate) stacks: ObjectCache<Terraform>,
    /// The cache of all approvals of plans.
    pub(crate) approvals: ObjectCache<PlanApproval>,
    /// The cache of all sources, for traces.
    pub(crate) sources: ObjectCache<GitRepository>,
    /// The only namespace that is watched; `None`: all of them.
    pub(crate) watched_namespace: Option<String>,
    /// The backend of stacks that configure none.
    pub(crate) default_backend: inputs::DefaultBackend,
}

impl Context {
    /// Returns the API of a kind in the namespace of this object.
    fn api_of<K>(&self, object: &impl ResourceExt) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &object.namespace().unwrap_or_default())
    }
}

/// Reconciles Terraform objects.
pub(crate) struct TerraformReconciler {
    context: Arc<Context>,
    /// The stacks that this controller has reconciled. Files of other stacks are never removed.
    reconciled: Mutex<HashSet<ObjectKey>>,
}

/// Why a reconciliation could not report. Faults of the stack itself are written to its status.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    /// Reading the stack, its runs or its source failed, or deleting the last bundle.
    #[error("cannot read {stack}, its runs or its source, or delete its last bundle: {source}")]
    Observe {
        /// The stack.
        stack: String,
        /// The error of the API.
        source: Box<kube::Error>,
    },
    /// Writing failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Starting or supervising a run failed.
    #[error("cannot execute the step of {stack}: {text}")]
    Dispatch {
        /// The stack.
        stack: String,
        /// The error.
        text: String,
    },
}

impl TerraformReconciler {
    /// Returns a reconciler in this context.
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let reconciled = Mutex::default();
        Self { context, reconciled }
    }

    fn reconciled(&self) -> MutexGuard<'_, HashSet<ObjectKey>> {
        lock(&self.reconciled)
    }
}

impl Reconciler<Terraform> for TerraformReconciler {
    type Error = ReconcileError;

    async fn reconcile(&self, stack: Arc<Terraform>) -> Result<Requeue, ReconcileError> {
        self.reconciled().insert(ObjectKey::of(&*stack));
        Box::pin(reconcile_stack(&stack, &self.context)).await
    }

    fn deleted(&self, key: &ObjectKey) {
        if self.reconciled().remove(key) {
            cleanup::forget_stack(&self.context, key.clone());
        }
    }
}

async fn reconcile_stack(stack: &Terraform, context: &Context) -> Result<Requeue, ReconcileError> {
    let api: Api<Terraform> = context.api_of(stack);
    match active_run::check(stack, context).await {
        Ok(Lookup::Unchanged(poll)) => return Ok(Requeue::After(poll)),
        Ok(Lookup::Changed(updated)) => {
            let observed = Observed::with_active_run(updated.runs);
            return Box::pin(decide_and_report(&api, updated.live, observed, context)).await;
        }
        // Also after an error: then everything is read.
        Ok(Lookup::Unknown) | Err(_) => {}
    }
    let Some(live) = observe::read_live(&api, stack).await? else {
        return Ok(Requeue::OnChange);
    };
    let observed = observe(&live.stack, context).await;
    let observed = observed.map_err(|source| read_error(stack, source))?;
    Box::pin(decide_and_report(&api, live, observed, context)).await
}

/// Decides on the observed state, executes the step and reports it.
async fn decide_and_report(
    api: &Api<Terraform>,
    live: LiveStack,
    observed: Observed,
    context: &Context,
) -> Result<Requeue, ReconcileError> {
    let (stack, mut versions) = (&live.stack, live.versions);
    let outline = Outline::new(stack, &observed, Settings::new(stack, context));
    let (is_active, claimed) = (outline.history.active.is_some(), outline.claimed_run());
    let resolution = resolve_inputs(&outline, context).await;
    let decided = decide_and_prepare(outline, &resolution, context).await;
    if decided.is_err() && !is_active {
        // A stack that fails every time must not keep the slot of a run that has ended.
        context.run_slots.release_held(&ObjectKey::of(stack));
    }
    let Decision { facts, step } = decided?;
    rejection::record(stack, &facts, &observed.runs, context).await?;
    let resolved = resolution.resolved.as_ref();
    let executed = execute(stack, &observed, &facts, resolved, step, context).await?;
    let ended = context
        .metrics
        .count_runs(stack, &observed.runs, executed.started.as_ref());
    trace::export(&ended, &observed.runs, context);
    if executed.step == Step::Release {
        context.deleted_bundles.remove(stack);
        let released = release::release(api, stack, &observed.runs, context).await?;
        context.metrics.remove(stack);
        return Ok(released);
    }
    let written = write_status(api, stack, &observed, &facts, &executed.step, context).await?;
    if let Some(stack) = &written {
        let started = executed.started.as_ref();
        context
            .metrics
            .set_state(stack, &facts, &executed.step, &observed.runs, started);
    }
    approvals::report(stack, &observed, facts.history.pending.as_ref(), context).await;
    cleanup::prune(stack, &observed.runs, context).await;
    let run = claimed.or(executed.started.as_ref()).map(ResourceExt::name_any);
    match (run, written) {
        (Some(run), Some(stack)) => {
            versions.push(stack.resource_version());
            let mut runs = observed.runs;
            runs.extend(executed.started);
            let live = LiveStack { stack, versions };
            context.active_runs.insert(ActiveRun { live, runs, run });
        }
        _ => context.active_runs.remove(stack),
    }
    Ok(executed.next)
}

/// The next step, and the facts that it follows from.
struct Decision {
    facts: Facts,
    step: Step,
}

/// Decides, releases the slot if no run needs it, and deletes the bundle of an ended run.
async fn decide_and_prepare(
    outline: Outline<'_>,
    resolution: &Resolution,
    context: &Context,
) -> Result<Decision, ReconcileError> {
    let (stack, runs) = (outline.stack, &outline.observed.runs);
    let decision = decide(outline, resolution, context).await?;
    if !matches!(decision.step, Step::Start(_) | Step::Follow) {
        // Before anything that may fail every time: else the slot would never be free.
        context.run_slots.release(&ObjectKey::of(stack));
    }
    let deleted = cleanup::delete_bundle(stack, runs, context).await;
    deleted.map_err(|source| read_error(stack, source))?;
    Ok(decision)
}

/// Decides, after reading the dependencies and dependents where they can matter.
async fn decide(
    outline: Outline<'_>,
    resolution: &Resolution,
    context: &Context,
) -> Result<Decision, ReconcileError> {
    let stack = outline.stack;
    let dependencies = read_dependencies(&outline, context).await?;
    let adopted = adopted_run(&outline, &resolution.inputs);
    let facts = build_facts(outline, resolution, adopted, dependencies);
    let step = decide_alone(&facts);
    let dependents = if needs_dependents(&facts, &step) {
        dependencies::dependents(stack, context).await?
    } else {
        Vec::new()
    };
    let step = wait_for_dependents(&facts, step, dependents);
    Ok(Decision { facts, step })
}

/// Returns the state of the dependencies. Of a deleted stack, only a cycle matters.
async fn read_dependencies(outline: &Outline<'_>, context: &Context) -> Result<Dependencies, ReconcileError> {
    let (stack, history) = (outline.stack, &outline.history);
    if stack.spec.suspend || history.active.is_some() || outline.unsupported_field.is_some() {
        return Ok(Dependencies::Ready);
    }
    if outline.deleting {
        return Ok(dependencies::cycle_of(stack, context));
    }
    dependencies::check(stack, &outline.observed.source, context).await
}

fn read_error(stack: &Terraform, source: kube::Error) -> ReconcileError {
    ReconcileError::Observe {
        stack: stack.name_any(),
        source: Box::new(source),
    }
}

/// Writes the status, then records the events of what changed in it. Returns the stack as written, unless it is gone.
async fn write_status(
    api: &Api<Terraform>,
    stack: &Terraform,
    observed: &Observed,
    facts: &Facts,
    step: &Step,
    context: &Context,
) -> Result<Option<Terraform>, ReconcileError> {
    let token = stack.annotations().get(REQUESTED_AT).map(String::as_str);
    let report = Report {
        stack,
        facts,
        runs: &observed.runs,
        approvals: &observed.approvals,
        step,
        // A request is handled when its run has ended, or at once if no run follows from it.
        handled: token.filter(|_| matches!(step, Step::Idle(_))),
        is_silent: supervision::has_silent_run(&observed.runs, context),
    };
    let owned: Vec<_> = TerraformCondition::OWNED
        .iter()
        .map(|kind| kind.as_str())
        .collect();
    let compute = |stack: &Terraform| status(&Report { stack, ..report });
    let written = sluice_runtime::status::apply(api, stack, &owned, compute).await?;
    if let Applied::Written(_) = &written {
        for event in events(&report, &status(&report)) {
            context.recorder.record(stack, with_annotations(stack, event));
        }
    }
    Ok(written.object())
}

fn with_annotations(
    stack: &Terraform,
    mut event: sluice_runtime::event::Event,
) -> sluice_runtime::event::Event {
    for (key, value) in sluice_api::annotation::event_annotations(stack.annotations()) {
        event = event.with(key, value);
    }
    event
}

/// Returns the owner reference to a stack; `None` for an object that the API has not stored.
pub(crate) fn owner(stack: &Terraform) -> Option<OwnerReference> {
    stack.controller_owner_ref(&())
}

/// Returns the key of the stack that a run belongs to.
pub(crate) fn stack_of(run: &TerraformRun) -> ObjectKey {
    ObjectKey {
        namespace: run.namespace().unwrap_or_default(),
        name: run.spec.terraform.name.clone(),
    }
}
