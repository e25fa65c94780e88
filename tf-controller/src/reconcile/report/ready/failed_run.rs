//! A run that failed, or that refused to apply the approved plan.

use kube::ResourceExt as _;
use sluice_api::condition::{ConditionUpdate, TerraformCondition as Kind};
use sluice_api::terraform::Reason;

use super::not_ready;
use crate::decide::{FREE_DISRUPTIONS, Outcome};
use crate::reconcile::history::by_sequence;
use crate::reconcile::report::{Report, message};

/// Reports the failure of the newest run.
pub(super) fn failed(report: &Report<'_>) -> ConditionUpdate<Kind> {
    let run = report.ended().next();
    let status = run.and_then(|run| run.status.as_ref());
    let reason = status
        .map(|s| s.reason.clone())
        .filter(|reason| !reason.is_empty());
    let reason = match reason {
        Some(reason) if report.facts.history.checked && reason == Reason::TfExecPlanFailed.as_str() => {
            Some(Reason::DriftDetectionFailed.into())
        }
        reason => reason,
    };
    let text = run.map(message).filter(|message| !message.is_empty());
    let lost = report
        .facts
        .history
        .last
        .as_ref()
        .is_some_and(|last| last.outcome == Outcome::Lost);
    let fallback = if lost {
        "the runner process ended without a report"
    } else {
        "the run failed"
    };
    let text = text.unwrap_or_else(|| fallback.to_owned());
    not_ready(
        reason.unwrap_or_else(|| Reason::RunFailed.into()),
        format!("{text}{}", disruption_note(report)),
    )
}

/// Tells whether a disrupted run uses up a retry. Empty if the run was not disrupted, or if the number of retries is not limited.
fn disruption_note(report: &Report<'_>) -> String {
    let facts = report.facts;
    let (history, count) = (&facts.history, facts.history.disruptions);
    if count == 0 || facts.deleting || facts.retry.retries.is_none() {
        String::new()
    } else if history.has_free_disruption() {
        format!("; disruption {count} of {FREE_DISRUPTIONS} in a row that use up no retry")
    } else {
        format!("; more than {FREE_DISRUPTIONS} disruptions in a row: it used up a retry")
    }
}

/// Reports the newest run, if it refused to apply the approved plan.
pub(super) fn refused_apply(report: &Report<'_>) -> Option<ConditionUpdate<Kind>> {
    report.facts.history.refused_apply?;
    let run = by_sequence(report.runs).pop()?;
    let text = format!(
        "Run {} did not apply the approved plan, and the next one tries again: {}. The runner of an older image does not \
         know each way to approve",
        run.name_any(),
        message(run)
    );
    Some(not_ready(Reason::Superseded, text))
}
