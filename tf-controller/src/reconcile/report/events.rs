//! The events of a reconciliation: each is recorded once, when its status is first written.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sluice_api::condition::{TerraformCondition as Kind, find};
use sluice_api::run::{Action, Phase, TerraformRun, Trigger};
use sluice_api::terraform::{Reason, TerraformStatus};
use sluice_runtime::event::Event;

use super::ready::{effect_summary, pending_run, silent_run};
use super::{DEPENDENCY_NOT_READY, Report, has_applied, message, phase, succeeded};
use crate::decide::{Idle, Step};
use crate::reconcile::adopt::foreign_plan;
use crate::reconcile::history::find_run;

/// Returns the events of the changes between the stored status and the one that this reconciliation writes.
pub(in crate::reconcile) fn events(report: &Report<'_>, after: &TerraformStatus) -> Vec<Event> {
    let mut events = Vec::new();
    let existing = report.stack.status.as_ref();
    let before = report.conditions();
    let state = |conditions, kind| {
        find(conditions, kind).map(|c| (c.status.clone(), c.reason.clone(), c.message.clone()))
    };
    let ready_is_new = state(before, Kind::Ready) != state(&after.conditions, Kind::Ready);
    if let Step::Start(run) = report.step
        && run.trigger == Trigger::Drift
        && ready_is_new
    {
        events.push(drift(report));
    }
    let lock_is_new = state(before, Kind::StateLocked) != state(&after.conditions, Kind::StateLocked);
    if lock_is_new && let Some(text) = released_lock(&after.conditions) {
        events.push(Event::normal(Reason::ForceUnlock, text));
    }
    if ready_is_new {
        events.extend(break_glass(report));
    }
    // Also while the run waits for a slot: the status does not name the plan any more.
    if let (Step::Start(_) | Step::WaitForSlot(_), Some(id)) =
        (report.step, foreign_plan(report.stack, report.runs))
    {
        let text = format!(
            "The pending plan {id:?} was created by another program: its id names a commit instead of an effect, so it is \
             not applied. A new plan replaces it and must be approved by its new id."
        );
        events.push(Event::normal(Reason::TerraformPlanReplaced, text));
    }
    events.extend(replan_requested(report));
    if let (Step::CreateFailed(why), true) = (report.step, ready_is_new) {
        events.push(Event::warning("ReconciliationFailed", why.as_str()));
    }
    if *report.step == Step::Follow && ready_is_new {
        let pending = report.runs.iter().find_map(pending_run);
        events.extend(pending.map(|text| Event::warning(Reason::RunPending, text)));
        events.extend(silent_run(report).map(|text| Event::warning("RunSilent", text)));
    }
    if let Step::Idle(rest) = report.step {
        if ready_is_new {
            events.extend(idle(report, rest, after));
        }
        events.extend(no_relevant_change(report, existing, after));
    }
    events
}

/// Reports that a request replaces the pending plan.
fn replan_requested(report: &Report<'_>) -> Option<Event> {
    let Step::Start(run) = report.step else {
        return None;
    };
    let pending = report.facts.history.pending.as_ref()?;
    let is_requested = run.action == Action::Plan && run.trigger == Trigger::Request;
    is_requested.then(|| {
        let id = &pending.plan_id;
        let text = match pending.rejection {
            Some(_) => format!("A new plan replaces {id}, which was rejected; it has another id."),
            None => format!("A new plan replaces {id}; if it has the same effect, it has the same id."),
        };
        Event::normal("ReplanRequested", text)
    })
}

fn idle(report: &Report<'_>, rest: &Idle, after: &TerraformStatus) -> Vec<Event> {
    let ready = find(&after.conditions, Kind::Ready);
    let (reason, message) = ready
        .map(|c| (c.reason.clone(), c.message.clone()))
        .unwrap_or_default();
    match rest {
        Idle::Suspended | Idle::BreakGlassCompleted => Vec::new(),
        Idle::BreakGlassDenied => vec![Event::warning("ReconciliationFailed", message)],
        Idle::DeletionSuspended => vec![Event::normal("DeletionSuspended", message)],
        Idle::PlanRejected => vec![Event::normal(reason, message)],
        Idle::Dependencies if reason == DEPENDENCY_NOT_READY => {
            let retry = report.stack.spec.retry_interval.as_ref();
            let retry = retry.map_or("15s", |interval| interval.as_str());
            let text = format!("Dependencies do not meet ready condition, retrying in {retry}");
            vec![Event::normal(reason, text)]
        }
        Idle::UnsupportedField
        | Idle::ContradictingFields
        | Idle::Dependencies
        | Idle::Dependents(_)
        | Idle::Source
        | Idle::InputsUnknown => vec![Event::warning(reason, message)],
        Idle::AwaitApproval | Idle::ShowPlan { .. } if reason == Reason::DriftDetected.as_str() => {
            vec![drift(report)]
        }
        Idle::AwaitApproval | Idle::ShowPlan { .. } => {
            vec![Event::normal(
                Reason::TerraformPlanSucceed,
                format!("Planned.\n{message}"),
            )]
        }
        Idle::RetryAt(_) | Idle::RetryLimit => {
            // The work before the failure is reported too: the apply may have succeeded.
            let applied = report.ended().next().filter(|run| has_applied(run));
            let mut events = applied
                .map(|run| completed_apply(report, run))
                .unwrap_or_default();
            events.push(failed(report, &reason, &message));
            events
        }
        Idle::InputPause(_) => {
            let last = report.ended().next();
            let mut events = last.map(|run| completed_apply(report, run)).unwrap_or_default();
            events.push(Event::warning("InputsChangeOften", message));
            events
        }
        Idle::InSync(_) => {
            let last = report.ended().next();
            last.map(|run| completed_apply(report, run)).unwrap_or_default()
        }
    }
}

/// Returns the message about the lock that was just released.
fn released_lock(conditions: &[Condition]) -> Option<String> {
    let lock = find(conditions, Kind::StateLocked).filter(|lock| lock.reason == Reason::ForceUnlock)?;
    Some(lock.message.clone())
}

/// Reports a break-glass session that started or ended; its end also if another run follows.
fn break_glass(report: &Report<'_>) -> Option<Event> {
    let open = |run: &&TerraformRun| phase(run) == Phase::BreakingTheGlass;
    if let Some(run) = report.runs.iter().find(open) {
        return Some(Event::warning(Reason::BreakTheGlass, message(run)));
    }
    let ended = matches!(
        report.step,
        Step::Start(_) | Step::Idle(Idle::BreakGlassCompleted)
    );
    let last = report.ended().next().filter(|run| ended && succeeded(run))?;
    (last.spec.action == Action::BreakTheGlass).then(|| Event::normal(Reason::BreakTheGlass, message(last)))
}

fn drift(report: &Report<'_>) -> Event {
    let plan = report
        .last_plan()
        .and_then(|run| run.status.as_ref())
        .map(|s| s.human_plan.as_str());
    Event::warning(
        Reason::DriftDetected,
        format!(
            "Drift detected{}.\n{}",
            effect_summary(report),
            plan.unwrap_or_default()
        ),
    )
}

/// Returns upstream's event of the failed step.
fn failed(report: &Report<'_>, reason: &str, message: &str) -> Event {
    // The event has its own prefix in place of that of the condition.
    let message = message
        .strip_prefix("error running ")
        .and_then(|rest| rest.split_once(": "))
        .map_or(message, |(_, rest)| rest);
    let last = report.ended().next();
    let destroys = last.is_some_and(|run| run.spec.destroy);
    let lock = last.and_then(|run| run.status.as_ref()?.lock.as_ref());
    let locked = lock.map(|lock| format!("State locked with Lock Identifier {}", lock.id));
    let message = locked.as_deref().unwrap_or(message);
    match reason.parse() {
        Ok(Reason::DriftDetectionFailed) => {
            Event::warning(reason, format!("Drift detection error: {message}"))
        }
        Ok(Reason::TfExecPlanFailed) => Event::warning(reason, format!("Plan error: {message}")),
        Ok(Reason::TfExecApplyFailed) if destroys => {
            Event::warning(Reason::TfExecDestroyFailed, format!("Destroy error: {message}"))
        }
        Ok(Reason::TfExecApplyFailed) => Event::warning(reason, format!("Apply error: {message}")),
        _ => Event::warning(reason, message),
    }
}

/// Returns the events of a successful run; a plan without changes has none.
fn completed_apply(report: &Report<'_>, run: &TerraformRun) -> Vec<Event> {
    let Some(end) = run.status.as_ref().filter(|_| has_applied(run)) else {
        return outputs_written(report, run).into_iter().collect();
    };
    let mut events = vec![if run.spec.destroy {
        Event::normal(Reason::TerraformDestroySucceed, "Destroy applied successfully")
    } else {
        Event::normal(Reason::TerraformAppliedSucceed, "Applied successfully")
    }];
    events.extend(outputs_written(report, run).filter(|_| !end.outputs.is_empty()));
    events
}

/// Reports that the outputs Secret was written: the keys of the selected outputs, or of all.
fn outputs_written(report: &Report<'_>, run: &TerraformRun) -> Option<Event> {
    let end = run.status.as_ref().filter(|s| s.outputs_written)?;
    let target = report.stack.spec.write_outputs_to_secret.as_ref();
    let selected = target.map(|target| target.outputs.as_slice()).unwrap_or_default();
    let key = |item: &String| {
        item.split_once(':')
            .map_or(item.as_str(), |(_, key)| key)
            .to_owned()
    };
    let keys: Vec<_> = if selected.is_empty() {
        end.outputs.clone()
    } else {
        selected.iter().map(key).collect()
    };
    let text = format!("Outputs written.\n{} output(s): {}", keys.len(), keys.join(", "));
    Some(Event::normal(Reason::TerraformOutputsWritten, text))
}

/// Reports a new revision that does not touch the stack's inputs.
fn no_relevant_change(
    report: &Report<'_>,
    existing: Option<&TerraformStatus>,
    after: &TerraformStatus,
) -> Option<Event> {
    let before = existing
        .map(|s| s.last_attempted_revision.as_str())
        .filter(|revision| !revision.is_empty())?;
    let last = report.facts.history.last.as_ref()?;
    let ran = find_run(report.runs, &last.name)?;
    let is_new =
        before != after.last_attempted_revision && after.last_attempted_revision != ran.spec.source.revision;
    (is_new && report.is_unchanged()).then(|| {
        let name = report.stack.metadata.name.as_deref().unwrap_or_default();
        let text = format!(
            "{}: no input of {name} has changed; no run",
            after.last_attempted_revision
        );
        Event::normal("NoRelevantChange", text)
    })
}
