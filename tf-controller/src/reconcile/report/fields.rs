//! The fields of the status beside its conditions: plan, drift, apply, revisions, counters, inventory and lock.

use super::{Report, phase, succeeded};
use crate::{
    decide::{Outcome, Rest, Step},
    reconcile::gather::is_taken_up,
};
use kube::ResourceExt as _;
use sluice_api::{
    annotation::REQUESTED_AT,
    run::{Action, PlanEffects, Trigger},
    terraform::{LockStatus, PlanStatus, TerraformStatus},
};

/// The request that was answered before anything could be done for it: owed until a run takes it up, or another one is made.
pub(super) fn owed(report: &Report<'_>, status: &mut TerraformStatus) {
    let away = matches!(
        report.step,
        Step::Rest(Rest::Source | Rest::InputsUnknown | Rest::Dependencies)
    );
    if let Some(token) = report.handled.filter(|_| away && report.facts.request.is_some()) {
        token.clone_into(&mut status.owed_reconcile_at);
    }
    let asked = report.stack.annotations().get(REQUESTED_AT);
    let stands = asked == Some(&status.owed_reconcile_at);
    if !stands || is_taken_up(&status.owed_reconcile_at, report.runs) {
        status.owed_reconcile_at.clear();
    }
}

/// What the newest plan says.
pub(super) fn planned(report: &Report<'_>, status: &mut TerraformStatus) {
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
        // The types are for the guard rails; the run has them.
        Some(PlanEffects {
            types: Vec::new(),
            types_omitted: 0,
            ..effects
        })
    });
    if report.last_plan().is_some() || pending.is_some() || status.plan.is_some() {
        let plan = status.plan.get_or_insert_with(PlanStatus::default);
        let shown = pending.filter(|_| !is_asked_anew(report));
        plan.pending = shown.map(|p| p.plan_id.clone()).unwrap_or_default();
        plan.is_drift_detection_plan = pending.is_some_and(|p| p.drift);
        plan.is_destroy_plan = report
            .last_plan()
            .map_or(plan.is_destroy_plan, |run| run.spec.destroy);
    }
    if report.is_unchanged() {
        // A commit that the stack does not read: whoever waits for that revision may go on.
        let revision = report.revision().unwrap_or_default();
        if !status.last_planned_revision.is_empty() {
            revision.clone_into(&mut status.last_planned_revision);
        }
    }
}

/// Whether a plan is being made because somebody asks for it: whoever waits for its id (`tfctl replan`) must not be shown the
/// one that it replaces.
fn is_asked_anew(report: &Report<'_>) -> bool {
    if let Step::Start(run) = report.step {
        return run.action == Action::Plan && run.trigger == Trigger::Request;
    }
    let active = report.runs.iter().find(|run| !phase(run).is_final());
    active.is_some_and(|run| run.spec.action == Action::Plan && run.spec.trigger == Trigger::Request)
}

/// What the newest apply says.
pub(super) fn applied(report: &Report<'_>, status: &mut TerraformStatus) {
    let Some(landed) = report.landed() else {
        return;
    };
    let run = landed.apply;
    status
        .last_applied_revision
        .clone_from(&landed.proof.spec.source.revision);
    let (Some(begun), Some(end)) = (&run.status, &landed.proof.status) else {
        return;
    };
    let id = run.spec.plan.as_ref().map_or(&begun.plan_id, |plan| &plan.id);
    if !id.is_empty() {
        id.clone_into(&mut status.plan.get_or_insert_with(PlanStatus::default).last_applied);
    }
    if !end.outputs.is_empty() && !run.spec.destroy {
        status.available_outputs.clone_from(&end.outputs);
    }
    // A person may have approved what a look for drift had planned.
    let held = report.stack.status.as_ref().and_then(|held| held.plan.as_ref());
    let approved = held.filter(|plan| !id.is_empty() && plan.pending == *id);
    let waits = report.facts.history.pending.is_some();
    let was_drift = !waits && approved.is_some_and(|plan| plan.is_drift_detection_plan);
    if was_drift || run.spec.trigger == Trigger::Drift {
        status
            .last_applied_by_drift_detection_at
            .clone_from(&end.finished_at);
    }
}

/// Counters, generations and times of the pass itself.
pub(super) fn outcome(report: &Report<'_>, status: &mut TerraformStatus) {
    let history = &report.facts.history;
    if let Some(run) = history.active.as_ref().or(history.last.as_ref()) {
        let revision = report
            .runs
            .iter()
            .find(|r| r.metadata.name.as_deref() == Some(&run.name));
        if let Some(run) = revision {
            status
                .last_attempted_revision
                .clone_from(&run.spec.source.revision);
        }
    }
    // A run that begins is of the revision that the source has now.
    let is_attempted = report.is_unchanged() || matches!(report.step, Step::Start(_));
    if let (true, Some(revision)) = (is_attempted, report.revision()) {
        revision.clone_into(&mut status.last_attempted_revision);
    }
    if let Some(time) = history.last_success {
        status.last_successful_reconcile_at =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time));
    }
    status.reconciliation_failures = match &history.last {
        Some(last) if matches!(last.outcome, Outcome::Failed | Outcome::Lost) => i64::from(last.attempt),
        _ => 0,
    };
    lock(report, status);
    inventory(report, status);
    if matches!(report.step, Step::Rest(_) | Step::NotMade(_)) {
        status.observed_generation = Some(report.facts.generation);
    }
}

/// The newest list of what the state holds.
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

/// The state lock that the newest run met, until a run gets past it.
fn lock(report: &Report<'_>, status: &mut TerraformStatus) {
    let Some(last) = report.ended().next() else { return };
    let met = last
        .status
        .as_ref()
        .and_then(|s| s.lock.as_ref())
        .filter(|_| !succeeded(last))
        .map(|lock| lock.id.clone());
    if met.is_some() || status.lock.is_some() {
        let lock = status.lock.get_or_insert_with(LockStatus::default);
        let pending = met.unwrap_or_default();
        if lock.pending != pending {
            lock.last_applied = std::mem::replace(&mut lock.pending, pending);
        }
    }
}
