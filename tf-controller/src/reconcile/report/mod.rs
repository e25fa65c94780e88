//! Reports a reconciliation: the status, computed from the runs and the step, and the events of what changed in it.
//!
//! Pure: the same facts give the same status, so a reconciliation without changes writes nothing.

mod events;
mod fields;
mod ready;
#[cfg(test)]
mod tests;

pub(super) use events::events;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use ready::{ReadyConditions, ready_conditions};
pub(super) use ready::{needs_change, says_silent};
use sluice_api::condition::{
    ConditionStatus, ConditionUpdate, TerraformCondition as Kind, find, merge_conditions,
};
use sluice_api::run::{Action, Phase, PlanApproval, TerraformRun};
use sluice_api::terraform::{Reason, Terraform, TerraformStatus};

use super::history::by_sequence;
use crate::decide::{Facts, Idle, Inputs, SourceFact, Step};

/// The reason of a stack that waits for its dependencies.
pub(super) const DEPENDENCY_NOT_READY: &str = Reason::DependencyNotReady.as_str();

/// The result of a reconciliation.
pub(super) struct Report<'a> {
    /// The object as read.
    pub(super) stack: &'a Terraform,
    /// The facts of the decision.
    pub(super) facts: &'a Facts,
    /// Its runs in any order, without the one that this reconciliation created.
    pub(super) runs: &'a [TerraformRun],
    /// The approvals that name it.
    pub(super) approvals: &'a [PlanApproval],
    /// The decided step.
    pub(super) step: &'a Step,
    /// The reconcile request that this reconciliation handled.
    pub(super) handled: Option<&'a str>,
    /// Whether the active run has sent no heartbeat for long, although its pod or process lock shows that it is alive.
    pub(super) is_silent: bool,
}

impl<'a> Report<'a> {
    /// Returns the ended runs that count, newest first.
    fn ended(&self) -> impl Iterator<Item = &'a TerraformRun> {
        by_sequence(self.runs).into_iter().rev().filter(|run| {
            let phase = phase(run);
            phase.is_final() && phase != Phase::Superseded
        })
    }

    /// Returns the newest ended run that made a plan.
    fn last_plan(&self) -> Option<&'a TerraformRun> {
        self.ended().find(|run| {
            run.status.as_ref().is_some_and(|s| s.has_changes.is_some()) && run.spec.action != Action::Apply
        })
    }

    /// Returns the stored conditions.
    fn conditions(&self) -> &'a [Condition] {
        let status = self.stack.status.as_ref();
        status
            .map(|status| status.conditions.as_slice())
            .unwrap_or_default()
    }

    /// Returns the revision of the source, if it has one.
    fn revision(&self) -> Option<&'a str> {
        match &self.facts.source {
            SourceFact::Found { revision, .. } => Some(revision),
            _ => None,
        }
    }

    /// Returns whether the newest run had the same inputs: nothing that the stack reads has changed since.
    pub(super) fn is_unchanged(&self) -> bool {
        let Inputs::Known(inputs) = &self.facts.inputs else {
            return false;
        };
        self.facts.history.active.is_none()
            && !matches!(self.step, Step::Start(_) | Step::CreateFailed(_))
            && self
                .facts
                .history
                .last
                .as_ref()
                .is_some_and(|last| last.inputs == *inputs)
    }
}

pub(super) fn phase(run: &TerraformRun) -> Phase {
    run.status.as_ref().map(|status| status.phase).unwrap_or_default()
}

/// Returns the message of a run; empty without one.
fn message(run: &TerraformRun) -> String {
    let status = run.status.as_ref();
    status.map(|status| status.message.clone()).unwrap_or_default()
}

pub(super) fn succeeded(run: &TerraformRun) -> bool {
    phase(run) == Phase::Succeeded
}

/// Returns whether the run's apply succeeded, whatever the result of outputs and health checks.
pub(super) fn has_applied(run: &TerraformRun) -> bool {
    let status = run.status.as_ref();
    status.is_some_and(|s| s.attempted_apply && (s.applied || succeeded(run)))
}

/// Returns the status after the reconciliation.
pub(super) fn status(report: &Report<'_>) -> TerraformStatus {
    let mut status = report.stack.status.clone().unwrap_or_default();
    if let Some(token) = report.handled {
        token.clone_into(&mut status.last_handled_reconcile_at);
    }
    fields::pending_request(report, &mut status);
    if *report.step == Step::Idle(Idle::Suspended) {
        // A stack that is ready stays ready for its dependents: it is not reconciled until it is resumed.
        if find(&status.conditions, Kind::Ready).is_some_and(|ready| ready.status == "True") {
            status.observed_generation = Some(report.facts.generation);
        }
        return status;
    }
    fields::plan(report, &mut status);
    fields::apply(report, &mut status);
    fields::counters(report, &mut status);
    let updates = updates(report, &status);
    let generation = Some(report.facts.generation);
    status.conditions = merge_conditions(&status.conditions, &updates, generation, report.facts.now);
    status
}

/// Returns one update per condition type; a type without one is removed.
fn updates(report: &Report<'_>, status: &TerraformStatus) -> Vec<ConditionUpdate<Kind>> {
    let ReadyConditions {
        ready,
        reconciling,
        stalled,
    } = ready_conditions(report);
    let mut updates = vec![ready];
    updates.extend(reconciling);
    updates.extend(stalled);
    updates.extend(plan(report).or_else(|| ConditionUpdate::retained(Kind::Plan, &status.conditions)));
    updates.extend(apply(report).or_else(|| ConditionUpdate::retained(Kind::Apply, &status.conditions)));
    updates.extend(output(report).or_else(|| ConditionUpdate::retained(Kind::Output, &status.conditions)));
    if !report.stack.spec.health_checks.is_empty() {
        updates.extend(
            health(report).or_else(|| ConditionUpdate::retained(Kind::HealthCheck, &status.conditions)),
        );
    }
    updates.extend(state_lock(report, status));
    updates
}

/// Reports the lock that blocks the stack, or its release until a run gets past it.
fn state_lock(report: &Report<'_>, status: &TerraformStatus) -> Option<ConditionUpdate<Kind>> {
    if let Some(lock) = status.lock.as_ref().filter(|lock| !lock.pending.is_empty()) {
        let message = format!("Terraform Locked with Lock Identifier: {}", lock.pending);
        return Some(ConditionUpdate::new(
            Kind::StateLocked,
            ConditionStatus::True,
            "LockHeld",
            message,
        ));
    }
    let last = report.ended().next()?;
    let released = |message: String| {
        let status = ConditionStatus::False;
        ConditionUpdate::new(Kind::StateLocked, status, Reason::ForceUnlock, message)
    };
    if last.spec.action == Action::Unlock && succeeded(last) {
        return Some(released(message(last)));
    }
    let lock = last.status.as_ref()?.released_lock.as_ref()?;
    let (run, proof) = (&lock.run, &lock.proof);
    Some(released(format!(
        "Run {} released the state lock {} that run {run} left behind: {proof}",
        last.name_any(),
        lock.id
    )))
}

/// Reports the newest health checks.
fn health(report: &Report<'_>) -> Option<ConditionUpdate<Kind>> {
    let checked = |run: &&TerraformRun| run.status.as_ref().is_some_and(|s| s.health.is_some());
    let status = report.ended().find(checked)?.status.as_ref()?;
    let (condition, reason, text) = if status.health.as_ref()?.passed {
        (
            ConditionStatus::True,
            Reason::HealthChecksSucceed,
            "Health checks succeeded",
        )
    } else {
        (
            ConditionStatus::False,
            Reason::HealthChecksFailed,
            status.message.as_str(),
        )
    };
    Some(unless_unchanged(
        report,
        Kind::HealthCheck,
        condition,
        reason,
        text,
    ))
}

/// Returns the existing condition if it is the same, so that its generation stays that of the reconciliation that first
/// reported it.
fn unless_unchanged(
    report: &Report<'_>,
    kind: Kind,
    status: ConditionStatus,
    reason: Reason,
    message: &str,
) -> ConditionUpdate<Kind> {
    let update = ConditionUpdate::new(kind, status, reason, message);
    match ConditionUpdate::retained(update.kind, report.conditions()) {
        Some(old)
            if (old.status, &old.reason, &old.message)
                == (update.status, &update.reason, &update.message) =>
        {
            old
        }
        _ => update,
    }
}

fn plan(report: &Report<'_>) -> Option<ConditionUpdate<Kind>> {
    if let Some(run) = report.ended().next()
        && let Some(status) = run.status.as_ref()
        && status.reason == Reason::PostPlanningWebhookFailed
    {
        let (failed, reason) = (ConditionStatus::False, Reason::PostPlanningWebhookFailed);
        return Some(unless_unchanged(
            report,
            Kind::Plan,
            failed,
            reason,
            &status.message,
        ));
    }
    let run = report.last_plan()?;
    let changes = run.status.as_ref()?.has_changes?;
    let (status, reason) = if changes {
        (ConditionStatus::True, Reason::TerraformPlannedWithChanges)
    } else {
        (ConditionStatus::False, Reason::TerraformPlannedNoChanges)
    };
    let text = match (changes, run.spec.destroy) {
        (true, _) => "Plan generated",
        (false, true) => "No objects need to be destroyed",
        (false, false) => "Plan no changes",
    };
    Some(unless_unchanged(report, Kind::Plan, status, reason, text))
}

fn apply(report: &Report<'_>) -> Option<ConditionUpdate<Kind>> {
    let applying = report.runs.iter().any(|run| phase(run) == Phase::Applying);
    if applying {
        return Some(ConditionUpdate::new(
            Kind::Apply,
            ConditionStatus::Unknown,
            "Progressing",
            "Apply started",
        ));
    }
    // An active run that has applied is newer than the ended ones.
    let active = report
        .runs
        .iter()
        .find(|run| !phase(run).is_final() && has_applied(run));
    let run = active.or_else(|| report.last_apply())?;
    let message = message(run);
    let (status, reason, text) = match (report.proof(run).is_some(), run.spec.destroy) {
        (true, true) => (
            ConditionStatus::True,
            Reason::TerraformAppliedSucceed,
            "Destroy applied successfully",
        ),
        (true, false) => (
            ConditionStatus::True,
            Reason::TerraformAppliedSucceed,
            "Applied successfully",
        ),
        (false, _) => (ConditionStatus::False, Reason::TerraformAppliedFail, &*message),
    };
    Some(unless_unchanged(report, Kind::Apply, status, reason, text))
}

fn output(report: &Report<'_>) -> Option<ConditionUpdate<Kind>> {
    let mut applies = report.ended().filter(|apply| !apply.spec.destroy);
    let run = applies.find_map(|apply| report.proof(apply))?;
    if run.status.as_ref()?.outputs.is_empty() {
        return None;
    }
    let (reason, text) = if report.stack.spec.write_outputs_to_secret.is_some() && report.has_written(run) {
        (Reason::TerraformOutputsWritten, "Outputs written")
    } else {
        (Reason::TerraformOutputsAvailable, "Outputs available")
    };
    Some(unless_unchanged(
        report,
        Kind::Output,
        ConditionStatus::True,
        reason,
        text,
    ))
}
