//! A stored plan: how it is approved, or why it is not applied.

use sluice_api::condition::{ConditionStatus, ConditionUpdate, TerraformCondition as Kind};
use sluice_api::terraform::{Reason, approval};

use super::{ReadyConditions, in_sync, not_ready, progressing, ready, retrying, settled, stalled};
use crate::decide::{Approval, Pending};
use crate::reconcile::history::candidate_plan;
use crate::reconcile::report::Report;

/// Reports a pending plan: its id, and why the value of `approvePlan` does not approve it.
pub(super) fn awaiting_approval(report: &Report<'_>) -> ReadyConditions {
    let Some(pending) = &report.facts.history.pending else {
        return settled(in_sync(report));
    };
    let set = format!("set approvePlan: \"{}\" to approve this plan", pending.plan_id);
    let candidate = candidate_plan(pending, report.runs, report.approvals);
    let advice = match approval::evaluate(&report.stack.spec, candidate) {
        approval::ApprovalDecision::Mismatch(mismatch) if candidate.state_mismatch.is_empty() => {
            format!("{set}. ({mismatch})")
        }
        approval::ApprovalDecision::Insufficient(missing) => {
            format!(
                "{missing}. {}",
                approval_advice(pending, candidate.state_mismatch)
            )
        }
        approval::ApprovalDecision::OnHold(held) => {
            format!("{set}. It is not applied automatically: {held}. Set approvePlan back afterwards.")
        }
        _ if !candidate.state_mismatch.is_empty() => {
            format!("{set}. Check the state first: {}.", candidate.state_mismatch)
        }
        _ => format!("{set}."),
    };
    if pending.drift {
        return retrying(drifted(report, &advice));
    }
    progressing(ready(
        ConditionStatus::Unknown,
        Reason::TerraformPlannedWithChanges,
        format!("Plan generated: {advice}"),
    ))
}

/// Returns how to approve a plan of a stack that requires PlanApprovals.
fn approval_advice(pending: &Pending, state_mismatch: &str) -> String {
    let create = format!(
        "Create a PlanApproval with planID: \"{}\" to approve this plan.",
        pending.plan_id
    );
    if state_mismatch.is_empty() {
        create
    } else {
        format!("{create} Check the state first: {state_mismatch}.")
    }
}

/// Reports a rejected plan: by whom, and what causes a new plan.
pub(super) fn rejected_plan(report: &Report<'_>) -> ReadyConditions {
    let pending = report.facts.history.pending.as_ref();
    let Some((pending, rejection)) = pending.zip(pending.and_then(|plan| plan.rejection.as_ref())) else {
        return settled(in_sync(report));
    };
    stalled(not_ready(
        Reason::PlanRejected,
        format!(
            "Plan {} was {rejection}. A change of what the stack reads, or a reconcile request, makes a new plan",
            pending.plan_id
        ),
    ))
}

/// Reports a plan that will not be applied. Under `disable` any difference is drift, unless drift detection is disabled.
pub(super) fn unapplied_plan(report: &Report<'_>) -> ReadyConditions {
    let spec = &report.stack.spec;
    let disabled = report.facts.approval == Approval::Disabled;
    let pending = report.facts.history.pending.as_ref();
    let any_is = disabled && !spec.disable_drift_detection && !spec.destroy;
    if any_is || pending.is_some_and(|plan| plan.drift) {
        return retrying(drifted(report, ""));
    }
    let why = if disabled {
        "Plan generated: it is not applied while approvePlan is \"disable\"."
    } else {
        "Plan generated: This object is in the plan only mode."
    };
    progressing(ready(
        ConditionStatus::Unknown,
        Reason::TerraformPlannedWithChanges,
        why,
    ))
}

/// Reports drift, with the plan that would undo it.
pub(super) fn drifted(report: &Report<'_>, advice: &str) -> ConditionUpdate<Kind> {
    let plan = report
        .last_plan()
        .and_then(|run| run.status.as_ref())
        .map(|s| s.human_plan.trim().to_owned());
    let plan = plan.unwrap_or_default();
    let classes = effect_summary(report);
    let text = match (advice.is_empty(), classes.is_empty()) {
        (true, true) => plan,
        (true, false) => format!("Drift detected{classes}\n{plan}"),
        (false, _) => format!("Drift detected{classes}: {advice}\n{plan}"),
    };
    not_ready(Reason::DriftDetected, text)
}

/// Summarizes the drift by class: ` (1 delete, 2 in-place)`.
pub(in crate::reconcile::report) fn effect_summary(report: &Report<'_>) -> String {
    let effects = report
        .last_plan()
        .and_then(|run| run.status.as_ref()?.effects.as_ref());
    let summary = effects.map(ToString::to_string).unwrap_or_default();
    if summary.is_empty() {
        summary
    } else {
        format!(" ({summary})")
    }
}
