//! The events of a pass: told once, when the status that they belong to is written first.

use super::{Report, ready::classes, succeeded};
use crate::decide::{Rest, Step};
use sluice_api::{
    condition::{TerraformCondition as Kind, find},
    run::{Action, TerraformRun, Trigger},
    terraform::TerraformStatus,
};
use sluice_runtime::event::Event;

/// What is new between the held status and the one that this pass writes.
pub(in crate::reconcile) fn events(report: &Report<'_>, after: &TerraformStatus) -> Vec<Event> {
    let mut events = Vec::new();
    let held = report.stack.status.as_ref();
    let before = held.map(|s| s.conditions.as_slice()).unwrap_or_default();
    let word = |conditions, kind| {
        find(conditions, kind).map(|c| (c.status.clone(), c.reason.clone(), c.message.clone()))
    };
    let ready_is_new = word(before, Kind::Ready) != word(&after.conditions, Kind::Ready);
    if let Step::Start(run) = report.step
        && run.trigger == Trigger::Drift
        && ready_is_new
    {
        events.push(drift(report));
    }
    if let Step::Rest(rest) = report.step {
        if ready_is_new {
            events.extend(resting(report, rest, after));
        }
        events.extend(no_relevant_change(report, held, after));
    }
    events
}

fn resting(report: &Report<'_>, rest: &Rest, after: &TerraformStatus) -> Vec<Event> {
    let message = find(&after.conditions, Kind::Ready)
        .map(|c| c.message.clone())
        .unwrap_or_default();
    let reason = find(&after.conditions, Kind::Ready)
        .map(|c| c.reason.clone())
        .unwrap_or_default();
    match rest {
        Rest::Suspended => Vec::new(),
        Rest::DeletionSuspended => vec![Event::normal("DeletionSuspended", message)],
        Rest::Dependencies if reason == "DependencyNotReady" => {
            let retry = report.stack.spec.retry_interval.as_ref();
            let retry = retry.map_or("15s", |interval| interval.as_str());
            let text = format!("Dependencies do not meet ready condition, retrying in {retry}");
            vec![Event::normal(reason, text)]
        }
        Rest::Refused
        | Rest::Contradiction
        | Rest::Dependencies
        | Rest::Dependants
        | Rest::Source
        | Rest::InputsUnknown => vec![Event::warning(reason, message)],
        Rest::AwaitApproval | Rest::ShowPlan { .. } if reason == "DriftDetected" => vec![drift(report)],
        Rest::AwaitApproval | Rest::ShowPlan { .. } => {
            vec![Event::normal(
                "TerraformPlanSucceed",
                format!("Planned.\n{message}"),
            )]
        }
        Rest::RetryAt(_) | Rest::RetryLimit => vec![failed(report, &reason, &message)],
        Rest::Steady(_) => report
            .ended()
            .next()
            .map(|run| finished(report, run))
            .unwrap_or_default(),
    }
}

fn drift(report: &Report<'_>) -> Event {
    let plan = report
        .last_plan()
        .and_then(|run| run.status.as_ref())
        .map(|s| s.human_plan.as_str());
    Event::warning(
        "DriftDetected",
        format!("Drift detected{}.\n{}", classes(report), plan.unwrap_or_default()),
    )
}

/// Upstream's words for the step that failed.
fn failed(report: &Report<'_>, reason: &str, message: &str) -> Event {
    // What the condition says in front, the event says in its own words.
    let message = message
        .strip_prefix("error running ")
        .and_then(|rest| rest.split_once(": "))
        .map_or(message, |(_, rest)| rest);
    let destroys = report.ended().next().is_some_and(|run| run.spec.destroy);
    match reason {
        "TFExecPlanFailed" => Event::warning(reason, format!("Plan error: {message}")),
        "TFExecApplyFailed" if destroys => {
            Event::warning("TFExecDestroyFailed", format!("Destroy error: {message}"))
        }
        "TFExecApplyFailed" => Event::warning(reason, format!("Apply error: {message}")),
        _ => Event::warning(reason, message),
    }
}

/// An apply that ended well; a plan without changes is no news.
fn finished(report: &Report<'_>, run: &TerraformRun) -> Vec<Event> {
    let Some(end) = run
        .status
        .as_ref()
        .filter(|s| s.attempted_apply && succeeded(run))
    else {
        return Vec::new();
    };
    let mut events = vec![if run.spec.destroy {
        Event::normal("TerraformDestroySucceed", "Destroy applied successfully")
    } else {
        Event::normal("TerraformAppliedSucceed", "Applied successfully")
    }];
    let written =
        report.stack.spec.write_outputs_to_secret.is_some() && !end.outputs.is_empty() && !run.spec.destroy;
    if written && run.spec.action.applies() && run.spec.action != Action::Unlock {
        let names = end.outputs.join(", ");
        let text = format!("Outputs written.\n{} output(s): {names}", end.outputs.len());
        events.push(Event::normal("TerraformOutputsWritten", text));
    }
    events
}

/// A commit moved the revision and nothing that the stack reads.
fn no_relevant_change(
    report: &Report<'_>,
    held: Option<&TerraformStatus>,
    after: &TerraformStatus,
) -> Option<Event> {
    let before = held
        .map(|s| s.last_attempted_revision.as_str())
        .filter(|revision| !revision.is_empty())?;
    let last = report.facts.history.last.as_ref()?;
    let ran = report
        .runs
        .iter()
        .find(|run| run.metadata.name.as_deref() == Some(&last.name))?;
    let moved =
        before != after.last_attempted_revision && after.last_attempted_revision != ran.spec.source.revision;
    (moved && report.is_unchanged()).then(|| {
        let name = report.stack.metadata.name.as_deref().unwrap_or_default();
        let text = format!(
            "{}: nothing that {name} reads has changed; no run",
            after.last_attempted_revision
        );
        Event::normal("NoRelevantChange", text)
    })
}
