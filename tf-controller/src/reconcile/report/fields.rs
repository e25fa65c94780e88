//! The fields of the status besides its conditions: plan, drift, the last completed apply, revisions, counters, inventory and lock.

use kube::ResourceExt as _;
use sluice_api::annotation::REQUESTED_AT;
use sluice_api::run::{Action, PlanEffects, TerraformRun, Trigger};
use sluice_api::terraform::{LockStatus, PlanStatus, Reason, TerraformStatus};

use super::{Report, has_applied, phase, succeeded};
use crate::decide::{Idle, Outcome, Step};
use crate::reconcile::facts::is_taken_up;
use crate::reconcile::history::{find_run, sequence};

/// Sets the reconcile request that was echoed before it could be handled. It stays pending until a run handles it, or
/// another request is made.
pub(super) fn pending_request(report: &Report<'_>, status: &mut TerraformStatus) {
    let is_unhandled = matches!(
        report.step,
        Step::Idle(Idle::Source | Idle::InputsUnknown | Idle::Dependencies)
    );
    if let Some(token) = report
        .handled
        .filter(|_| is_unhandled && report.facts.request.is_some())
    {
        token.clone_into(&mut status.pending_reconcile_request);
    }
    let requested = report.stack.annotations().get(REQUESTED_AT);
    let is_current = requested == Some(&status.pending_reconcile_request);
    if !is_current || is_taken_up(&status.pending_reconcile_request, report.runs) {
        status.pending_reconcile_request.clear();
    }
}

/// Sets the fields of the newest plan.
pub(super) fn plan(report: &Report<'_>, status: &mut TerraformStatus) {
    let pending = report.facts.history.pending.as_ref();
    if let Some(run) = report.last_plan() {
        let ended = run.status.as_ref().and_then(|s| s.finished_at.clone());
        status.last_plan_at.clone_from(&ended);
        status.last_planned_generation = run.spec.terraform.generation;
        status.last_planned_revision.clone_from(&run.spec.source.revision);
        if pending.is_some_and(|p| p.drift) {
            status.last_drift_detected_at = ended;
        }
    }
    status.drift = pending.filter(|p| p.drift).and_then(|_| {
        let effects = report.last_plan()?.status.as_ref()?.effects.clone()?;
        // The types are only for `autoApply`; the run has them.
        Some(PlanEffects {
            types: Vec::new(),
            types_omitted: 0,
            ..effects
        })
    });
    if report.last_plan().is_some() || pending.is_some() || status.plan.is_some() {
        let plan = status.plan.get_or_insert_with(PlanStatus::default);
        let visible = pending.filter(|p| p.rejection.is_none() && !is_replan_requested(report));
        plan.pending = visible.map(|p| p.plan_id.clone()).unwrap_or_default();
        plan.is_drift_detection_plan = pending.is_some_and(|p| p.drift);
        plan.is_destroy_plan = report
            .last_plan()
            .map_or(plan.is_destroy_plan, |run| run.spec.destroy);
    }
    if report.is_unchanged() {
        // The commit does not touch the stack's inputs: those who wait for that revision may continue.
        let revision = report.revision().unwrap_or_default();
        if !status.last_planned_revision.is_empty() {
            revision.clone_into(&mut status.last_planned_revision);
        }
    }
}

/// Returns whether a plan is being made by request: a caller that waits for its id (`tfctl replan`) must not see the
/// plan that it replaces.
fn is_replan_requested(report: &Report<'_>) -> bool {
    if let Step::Start(run) = report.step {
        return run.action == Action::Plan && run.trigger == Trigger::Request;
    }
    let active = report.runs.iter().find(|run| !phase(run).is_final());
    active.is_some_and(|run| run.spec.action == Action::Plan && run.spec.trigger == Trigger::Request)
}

/// An apply that is complete, also if its own end is not recorded: its runner was killed or failed on the way, and a later plan
/// found no changes.
pub(super) struct CompletedApply<'a> {
    /// The run that applied.
    pub(super) apply: &'a TerraformRun,
    /// The run that shows the result: the same, or a later plan without changes.
    pub(super) proof: &'a TerraformRun,
}

impl<'a> Report<'a> {
    /// Returns the newest ended run that started its apply.
    pub(super) fn last_apply(&self) -> Option<&'a TerraformRun> {
        self.ended()
            .find(|run| run.status.as_ref().is_some_and(|s| s.attempted_apply))
    }

    /// Returns the newest completed apply.
    pub(super) fn completed_apply(&self) -> Option<CompletedApply<'a>> {
        self.ended().find_map(|apply| {
            let proof = self.proof(apply)?;
            Some(CompletedApply { apply, proof })
        })
    }

    /// Returns the run that shows that this apply is complete, if it is.
    pub(super) fn proof(&self, apply: &'a TerraformRun) -> Option<&'a TerraformRun> {
        let has_outputs = apply
            .status
            .as_ref()
            .is_some_and(|status| !status.outputs.is_empty());
        if has_applied(apply) && (succeeded(apply) || has_outputs) {
            return Some(apply);
        }
        if !apply.status.as_ref().is_some_and(|status| status.attempted_apply) {
            return None;
        }
        let nothing_left = |run: &&TerraformRun| {
            let status = run.status.as_ref();
            phase(run).is_final()
                && succeeded(run)
                && run.spec.destroy == apply.spec.destroy
                && status.is_some_and(|status| status.has_changes == Some(false))
        };
        let later = self.ended().take_while(|run| sequence(run) > sequence(apply));
        let found = later.filter(nothing_left).last();
        // It applied but has no outputs: the later plan has them.
        found.or_else(|| has_applied(apply).then_some(apply))
    }

    /// Returns whether the Secret holds the outputs of this apply: the run wrote them itself, or a later run without changes did.
    pub(super) fn has_written(&self, apply: &TerraformRun) -> bool {
        let own = apply
            .status
            .as_ref()
            .is_some_and(|s| s.reason != Reason::OutputsWritingFailed);
        let later = self.ended().take_while(|run| sequence(run) > sequence(apply));
        let unchanged = |run: &TerraformRun| {
            succeeded(run) && run.status.as_ref().is_some_and(|s| s.has_changes == Some(false))
        };
        own || later.into_iter().any(unchanged)
    }
}

/// Sets the fields of the newest completed apply.
pub(super) fn apply(report: &Report<'_>, status: &mut TerraformStatus) {
    let Some(completed) = report.completed_apply() else {
        return;
    };
    let run = completed.apply;
    status
        .last_applied_revision
        .clone_from(&completed.proof.spec.source.revision);
    let (Some(started), Some(end)) = (&run.status, &completed.proof.status) else {
        return;
    };
    let id = run.spec.plan.as_ref().map_or(&started.plan_id, |plan| &plan.id);
    if !id.is_empty() {
        id.clone_into(&mut status.plan.get_or_insert_with(PlanStatus::default).last_applied);
    }
    if !end.outputs.is_empty() && !run.spec.destroy {
        status.available_outputs.clone_from(&end.outputs);
    }
    // A user may have approved the plan of a drift check.
    let existing = report
        .stack
        .status
        .as_ref()
        .and_then(|status| status.plan.as_ref());
    let approved = existing.filter(|plan| !id.is_empty() && plan.pending == *id);
    let is_pending = report.facts.history.pending.is_some();
    let was_drift = !is_pending && approved.is_some_and(|plan| plan.is_drift_detection_plan);
    if was_drift || run.spec.trigger == Trigger::Drift {
        status
            .last_applied_by_drift_detection_at
            .clone_from(&end.finished_at);
    }
}

/// Sets counters, generations and times of the reconciliation.
pub(super) fn counters(report: &Report<'_>, status: &mut TerraformStatus) {
    let history = &report.facts.history;
    let newest = history.active.as_ref().or(history.last.as_ref());
    if let Some(run) = newest.and_then(|run| find_run(report.runs, &run.name)) {
        status
            .last_attempted_revision
            .clone_from(&run.spec.source.revision);
    }
    // A new run uses the current revision of the source.
    let is_attempted = report.is_unchanged() || matches!(report.step, Step::Start(_));
    if let (true, Some(revision)) = (is_attempted, report.revision()) {
        revision.clone_into(&mut status.last_attempted_revision);
    }
    if let Some(time) = history.last_success {
        status.last_successful_reconcile_at =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time));
    }
    status.reconciliation_failures = match &history.last {
        Some(last) if matches!(last.outcome, Outcome::Failed | Outcome::Lost) => {
            i64::from(history.failures(last))
        }
        _ => 0,
    };
    lock(report, status);
    inventory(report, status);
    if matches!(report.step, Step::Idle(_) | Step::CreateFailed(_)) {
        status.observed_generation = Some(report.facts.generation);
    }
}

/// Sets the newest inventory.
fn inventory(report: &Report<'_>, status: &mut TerraformStatus) {
    let mut listed = report
        .ended()
        .filter_map(|run| run.status.as_ref()?.inventory.clone());
    if !report.stack.spec.enable_inventory {
        status.inventory = None;
    } else if let Some(inventory) = listed.next() {
        status.inventory = Some(inventory);
    }
}

/// Sets the state lock of the newest run, until a run gets past it.
fn lock(report: &Report<'_>, status: &mut TerraformStatus) {
    let Some(last) = report.ended().next() else { return };
    let lock_id = last
        .status
        .as_ref()
        .and_then(|s| s.lock.as_ref())
        .filter(|_| !succeeded(last))
        .map(|lock| lock.id.clone());
    if lock_id.is_some() || status.lock.is_some() {
        let lock = status.lock.get_or_insert_with(LockStatus::default);
        let pending = lock_id.unwrap_or_default();
        if lock.pending != pending {
            lock.last_applied = std::mem::replace(&mut lock.pending, pending);
        }
    }
}
