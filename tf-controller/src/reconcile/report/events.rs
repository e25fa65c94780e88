//! The events of a pass: told once, when the status that they belong to is written first.

use super::{
    DEPENDENCY_NOT_READY, Report, has_applied, phase,
    ready::{LOOK_FAILED, classes},
    succeeded,
};
use crate::decide::{Rest, Step};
use crate::reconcile::takeover::foreign_plan;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sluice_api::{
    condition::{TerraformCondition as Kind, find},
    run::{Action, Phase, TerraformRun, Trigger},
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
    let lock_is_new = word(before, Kind::StateLocked) != word(&after.conditions, Kind::StateLocked);
    if lock_is_new && let Some(text) = released(&after.conditions) {
        events.push(Event::normal("ForceUnlock", text));
    }
    if ready_is_new {
        events.extend(session(report));
    }
    // Also while the run waits for a place: the status does not name the plan any more.
    if let (Step::Start(_) | Step::Wait, Some(id)) = (report.step, foreign_plan(report.stack, report.runs)) {
        let text = format!(
            "The plan {id:?} that waited was made by another program: its id names a commit and no effect, so it is \
             not applied. A new plan is made, to be approved by its own id."
        );
        events.push(Event::normal("TerraformPlanReplaced", text));
    }
    events.extend(asked_anew(report));
    if let (Step::NotMade(why), true) = (report.step, ready_is_new) {
        events.push(Event::warning("ReconciliationFailed", why.as_str()));
    }
    if let Step::Rest(rest) = report.step {
        if ready_is_new {
            events.extend(resting(report, rest, after));
        }
        events.extend(no_relevant_change(report, held, after));
    }
    events
}

/// A request makes another plan in place of the one that waits.
fn asked_anew(report: &Report<'_>) -> Option<Event> {
    let Step::Start(run) = report.step else {
        return None;
    };
    let waits = report.facts.history.pending.as_ref()?;
    let asked = run.action == Action::Plan && run.trigger == Trigger::Request;
    asked.then(|| {
        let text = format!(
            "A new plan is made in place of {}; should it do the same, its id is the same.",
            waits.plan_id
        );
        Event::normal("ReplanRequested", text)
    })
}

fn resting(report: &Report<'_>, rest: &Rest, after: &TerraformStatus) -> Vec<Event> {
    let message = find(&after.conditions, Kind::Ready)
        .map(|c| c.message.clone())
        .unwrap_or_default();
    let reason = find(&after.conditions, Kind::Ready)
        .map(|c| c.reason.clone())
        .unwrap_or_default();
    match rest {
        Rest::Suspended | Rest::GlassOver => Vec::new(),
        Rest::GlassRefused => vec![Event::warning("ReconciliationFailed", message)],
        Rest::DeletionSuspended => vec![Event::normal("DeletionSuspended", message)],
        Rest::Dependencies if reason == DEPENDENCY_NOT_READY => {
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
        Rest::RetryAt(_) | Rest::RetryLimit => {
            // What came before the failure is told too: the apply may have ended well.
            let applied = report.ended().next().filter(|run| has_applied(run));
            let mut events = applied.map(|run| finished(report, run)).unwrap_or_default();
            events.push(failed(report, &reason, &message));
            events
        }
        Rest::InputPause(_) => {
            let last = report.ended().next();
            let mut events = last.map(|run| finished(report, run)).unwrap_or_default();
            events.push(Event::warning("InputsChangeOften", message));
            events
        }
        Rest::Steady(_) => {
            let last = report.ended().next();
            last.map(|run| finished(report, run)).unwrap_or_default()
        }
    }
}

/// The lock that was released just now.
fn released(conditions: &[Condition]) -> Option<String> {
    let lock = find(conditions, Kind::StateLocked).filter(|lock| lock.reason == "ForceUnlock")?;
    Some(lock.message.clone())
}

/// A session that was opened or has ended; the end is told although another run follows.
fn session(report: &Report<'_>) -> Option<Event> {
    let message = |run: &TerraformRun| run.status.as_ref().map(|s| s.message.clone()).unwrap_or_default();
    let open = |run: &&TerraformRun| phase(run) == Phase::BreakingTheGlass;
    if let Some(run) = report.runs.iter().find(open) {
        return Some(Event::warning("BreakTheGlass", message(run)));
    }
    let ended = matches!(report.step, Step::Start(_) | Step::Rest(Rest::GlassOver));
    let last = report.ended().next().filter(|run| ended && succeeded(run))?;
    (last.spec.action == Action::BreakTheGlass).then(|| Event::normal("BreakTheGlass", message(last)))
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
    let last = report.ended().next();
    let destroys = last.is_some_and(|run| run.spec.destroy);
    let lock = last.and_then(|run| run.status.as_ref()?.lock.as_ref());
    let held = lock.map(|lock| format!("State locked with Lock Identifier {}", lock.id));
    let message = held.as_deref().unwrap_or(message);
    match reason {
        LOOK_FAILED => Event::warning(reason, format!("Drift detection error: {message}")),
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
    let Some(end) = run.status.as_ref().filter(|_| has_applied(run)) else {
        return written(report, run).into_iter().collect();
    };
    let mut events = vec![if run.spec.destroy {
        Event::normal("TerraformDestroySucceed", "Destroy applied successfully")
    } else {
        Event::normal("TerraformAppliedSucceed", "Applied successfully")
    }];
    events.extend(written(report, run).filter(|_| !end.outputs.is_empty()));
    events
}

/// The Secret with the outputs was changed: the keys of what was chosen, or of all.
fn written(report: &Report<'_>, run: &TerraformRun) -> Option<Event> {
    let end = run.status.as_ref().filter(|s| s.outputs_written)?;
    let target = report.stack.spec.write_outputs_to_secret.as_ref();
    let chosen = target.map(|target| target.outputs.as_slice()).unwrap_or_default();
    let key = |item: &String| {
        item.split_once(':')
            .map_or(item.as_str(), |(_, key)| key)
            .to_owned()
    };
    let keys: Vec<_> = if chosen.is_empty() {
        end.outputs.clone()
    } else {
        chosen.iter().map(key).collect()
    };
    let text = format!("Outputs written.\n{} output(s): {}", keys.len(), keys.join(", "));
    Some(Event::normal("TerraformOutputsWritten", text))
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
