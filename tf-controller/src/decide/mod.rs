//! The decision: the next step of one stack. It is pure, so the tests enumerate it. `reconcile` gathers the [`Facts`], calls
//! [`decide_alone`], reads the dependents if the step can depend on them ([`needs_dependents`]), calls
//! [`wait_for_dependents`] and executes the [`Step`].
//!
//! The first rule that applies decides:
//!
//! 1. a deletion, with rules of its own;
//! 2. an active run is followed;
//! 3. `spec.suspend`;
//! 4. contradicting fields, and dependencies that are denied or in a cycle;
//! 5. an unsupported field;
//! 6. a source or inputs that cannot be used;
//! 7. maintenance: a break-glass session, the release of a state lock;
//! 8. changed inputs, or `destroy` switched;
//! 9. a plan that waits for its approval, or was rejected;
//! 10. a failed run to retry;
//! 11. outputs to repair;
//! 12. a reconcile request;
//! 13. the interval.
//!
//! A run then waits for the stacks that its stack depends on, and a destroy or deletion for the stacks that depend on it
//! (`dependency_order`). `tests::the_rules_apply_in_the_documented_order` tests this list.

mod dependency_order;
mod disruption;
mod facts;
mod input_pause;
mod interval_offset;
mod maintenance;
mod mutation_point;
mod replan;
mod retry;
#[cfg(test)]
pub(crate) mod table;
#[cfg(test)]
mod tests;

pub(crate) use dependency_order::{needs_dependents, wait_for_dependents};
pub(crate) use disruption::{FREE_DISRUPTIONS, disruptions_in_row};
pub(crate) use facts::{
    Approval, BreakGlass, Dependencies, Facts, ForceUnlock, Health, History, Inputs, NewRun, Outcome,
    Pending, PlannedEffect, Policy, RunAction, RunFact, SourceFact, Trigger, UnsupportedField,
};
pub(crate) use input_pause::InputRunStreak;
pub(crate) use interval_offset::IntervalOffset;
use jiff::Timestamp;
pub(crate) use mutation_point::{MutationPoint, holds};
#[cfg(test)]
pub(crate) use mutation_point::{disabled_point, with_disabled};
use replan::{is_spec_newer, rejected_plan_step, replan_trigger};
pub(crate) use retry::{RetryPolicy, Strategy};
#[cfg(test)]
pub(crate) use tests::{ended as ended_run, facts as facts_of_a_new_stack};

/// How many stale plans in a row are planned again without a wait.
const STALE_AT_ONCE: u32 = 3;

/// The next step of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Start this run.
    Start(NewRun),
    /// A run is due and there is no free slot; where it is in the queue and what it waits for. Never decided here: the decision knows
    /// only this stack.
    WaitForSlot(String),
    /// A run is due and the API refuses to create it, for this reason. Never decided here.
    CreateFailed(String),
    /// A run is in progress: supervise it.
    Follow,
    /// A deleted stack has nothing left to do: remove its finalizer.
    Release,
    /// No run now.
    Idle(Idle),
}

/// Why no run starts now, and when to reconcile again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// `spec.suspend` is set.
    Suspended,
    /// Suspended and deleted: the deletion waits for the resume, as upstream, and the status reports it.
    DeletionSuspended,
    /// A field is set that this version does not support.
    UnsupportedField,
    /// Two fields of the spec contradict each other; the facts name them.
    ContradictingFields,
    /// A stack that this one depends on is not ready, or cannot be; the facts name it and the reason.
    Dependencies,
    /// These stacks depend on this one and must be removed first.
    Dependents(Vec<String>),
    /// The source cannot be used; the facts give the reason.
    Source,
    /// The inputs cannot be resolved; the facts give the reason.
    InputsUnknown,
    /// A plan waits for its approval.
    AwaitApproval,
    /// The pending plan was rejected: only changed inputs, an edit or a request plan again.
    PlanRejected,
    /// A plan is published and not applied (`planOnly`, or `approvePlan: disable`).
    ShowPlan {
        /// When the stack is planned again; `None`: on a change only.
        again: Option<Timestamp>,
    },
    /// The inputs keep changing without a commit or an edit; the next run starts at this time.
    InputPause(Timestamp),
    /// The last run failed, or refused to apply the approved plan; the next attempt starts at this time.
    RetryAt(Timestamp),
    /// All attempts that `remediation.retries` allows have failed.
    RetryLimit,
    /// A break-glass session is requested and the controller does not allow it.
    BreakGlassDenied,
    /// A break-glass session has ended, and its field is still set.
    BreakGlassCompleted,
    /// The resources match the inputs; the next drift detection is due at this time.
    InSync(Timestamp),
}

/// Decides the next step of one stack without regard to its dependents.
pub(crate) fn decide_alone(facts: &Facts) -> Step {
    if facts.deleting {
        return deletion(facts);
    }
    if holds(MutationPoint::Active, facts.history.active.is_some()) {
        return Step::Follow;
    }
    if holds(MutationPoint::Suspended, facts.suspended) {
        return Step::Idle(Idle::Suspended);
    }
    if let Some(idle) = dependency_order::blocked_by_dependencies(facts) {
        return Step::Idle(idle);
    }
    match resolved_inputs(facts) {
        Ok(inputs) => dependency_order::wait_for_dependencies(facts, next_run(facts, inputs)),
        Err(idle) => Step::Idle(idle),
    }
}

/// Decides the next step with these dependents.
#[cfg(test)]
pub(crate) fn decide(facts: &Facts, dependents: &[String]) -> Step {
    wait_for_dependents(facts, decide_alone(facts), dependents.to_vec())
}

/// Returns the digest of the inputs, unless something prevents a run.
fn resolved_inputs(facts: &Facts) -> Result<&str, Idle> {
    if holds(MutationPoint::UnsupportedField, facts.unsupported_field.is_some()) {
        return Err(Idle::UnsupportedField);
    }
    // A destroy can also use the last applied files: then only the inputs count.
    let needs_source = !facts.deleting || facts.inputs == Inputs::Unresolved;
    if holds(
        MutationPoint::SourceMissing,
        needs_source && !matches!(facts.source, SourceFact::Found { .. }),
    ) {
        return Err(Idle::Source);
    }
    match &facts.inputs {
        Inputs::Known(inputs) => Ok(inputs),
        _ if holds(MutationPoint::InputsUnknown, true) => Err(dependency_order::missing_inputs(facts)),
        _ => Ok(""),
    }
}

/// Returns the next step of a stack that is not deleted, with a known source and inputs, and without an active run.
fn next_run(facts: &Facts, inputs: &str) -> Step {
    if let Some(first) = maintenance::maintenance_step(facts) {
        return first;
    }
    let Some(last) = &facts.history.last else {
        return start(facts, plan_action(facts), Trigger::Revision, 1);
    };
    if holds(MutationPoint::InputsChanged, last.inputs != inputs)
        || holds(
            MutationPoint::DestroySwitched,
            last.destroy != facts.policy.destroy,
        )
    {
        if let Some(until) = input_pause_until(facts, last, inputs) {
            return Step::Idle(Idle::InputPause(until));
        }
        let trigger = if last.generation == facts.generation {
            Trigger::Revision
        } else {
            Trigger::Spec
        };
        return start(facts, plan_action(facts), trigger, 1);
    }
    if let Some(pending) = facts
        .history
        .pending
        .as_ref()
        .filter(|_| holds(MutationPoint::PlanWaits, true))
    {
        return pending_plan_step(facts, pending);
    }
    if holds(
        MutationPoint::Failure,
        matches!(last.outcome, Outcome::Failed | Outcome::Lost),
    ) {
        return after_failure(facts, last);
    }
    if facts.history.outputs_gone {
        return start(facts, RunAction::Plan, Trigger::Repair, 1);
    }
    if holds(MutationPoint::Requested, facts.request.is_some()) {
        return start(facts, RunAction::Plan, Trigger::Request, 1);
    }
    let due = facts.due(facts.history.last_success.unwrap_or(last.finished));
    if holds(MutationPoint::IntervalNotDue, facts.now < due) {
        return Step::Idle(Idle::InSync(due));
    }
    start(facts, RunAction::Plan, Trigger::Interval, 1)
}

/// Returns the end of the pause before a run whose only cause is changed inputs.
fn input_pause_until(facts: &Facts, last: &RunFact, inputs: &str) -> Option<Timestamp> {
    let SourceFact::Found { digest, .. } = &facts.source else {
        return None;
    };
    let edited = last.generation != facts.generation || last.destroy != facts.policy.destroy;
    let by_inputs = last.inputs != inputs && !edited && last.source == *digest && facts.request.is_none();
    let until = facts.history.input_runs.filter(|_| by_inputs)?.until();
    holds(MutationPoint::InputPause, facts.now < until).then_some(until)
}

/// Returns the next step of a stack with a pending plan.
fn pending_plan_step(facts: &Facts, pending: &Pending) -> Step {
    let due = facts.due(pending.planned);
    let disabled = holds(
        MutationPoint::DisabledWithholds,
        facts.approval == Approval::Disabled,
    );
    if holds(MutationPoint::PlanOnlyWithholds, facts.policy.plan_only) || disabled {
        // A disabled stack only reports drift, which may disappear by itself: plan again at the interval.
        let again = (disabled || pending.drift).then_some(due);
        return match replan_trigger(facts, again) {
            Some(trigger) => start(facts, RunAction::Plan, trigger, 1),
            None => Step::Idle(Idle::ShowPlan { again }),
        };
    }
    if holds(MutationPoint::Rejected, pending.rejection.is_some()) {
        return rejected_plan_step(facts);
    }
    // `autoApply` and another state hold plans of `auto`, never a plan that is approved by its id or by users.
    let held = facts.approval == Approval::Auto && holds(MutationPoint::AutoApplyHold, pending.held);
    let replan = replan_trigger(facts, pending.drift.then_some(due));
    match (&facts.approval, replan) {
        (Approval::Auto | Approval::Given { .. }, _) if !held => match facts.apply_pause_until() {
            Some(until) => Step::Idle(Idle::RetryAt(until)),
            None => apply(facts, pending),
        },
        (Approval::Auto | Approval::None | Approval::Replan, Some(trigger)) => {
            start(facts, RunAction::Plan, trigger, 1)
        }
        (Approval::Replan, _) if is_spec_newer(facts) => start(facts, RunAction::Plan, Trigger::Spec, 1),
        _ if held || holds(MutationPoint::Unapproved, true) => Step::Idle(Idle::AwaitApproval),
        _ => apply(facts, pending),
    }
}

/// Applies the pending plan.
fn apply(facts: &Facts, pending: &Pending) -> Step {
    let (trigger, approved_by) = match &facts.approval {
        Approval::Given { by } => (Trigger::Approval, Some(by.clone())),
        _ if pending.drift => (Trigger::Drift, Some(automatic_approver(facts))),
        _ => (Trigger::Approval, Some(automatic_approver(facts))),
    };
    Step::Start(NewRun {
        action: RunAction::Apply,
        trigger,
        destroy: facts.policy.destroy,
        plan: Some((pending.plan_id.clone(), pending.run.clone())),
        approved_by,
        attempt: facts.history.last.as_ref().map_or(1, |last| last.attempt),
    })
}

/// Returns the next step after a failed or lost run: retry it, now or later, or give up.
fn after_failure(facts: &Facts, last: &RunFact) -> Step {
    if last.generation != facts.generation {
        return repeat_last(facts, Trigger::Spec, 1);
    }
    if facts.request.is_some() {
        return repeat_last(facts, Trigger::Request, 1);
    }
    if last.stale && !holds(MutationPoint::StaleLimit, last.attempt > STALE_AT_ONCE) {
        // The state changed after the approved plan: a plan with the same effect is still approved, so plan now.
        return repeat_last(facts, Trigger::Retry, last.attempt.saturating_add(1));
    }
    let is_exhausted = facts.retry.is_exhausted(facts.history.failures(last));
    if holds(MutationPoint::RetryLimit, is_exhausted) {
        return Step::Idle(Idle::RetryLimit);
    }
    let at = facts.retry_at(last);
    if holds(MutationPoint::RetryDelay, facts.now < at) {
        return Step::Idle(Idle::RetryAt(at));
    }
    repeat_last(facts, Trigger::Retry, facts.history.next_attempt(last))
}

/// Repeats the failed run. A drift detection stays one: it reports what it finds, with `ignoreDrift` applied, before a correction.
fn repeat_last(facts: &Facts, trigger: Trigger, attempt: u32) -> Step {
    let action = if facts.history.checked {
        RunAction::Plan
    } else {
        plan_action(facts)
    };
    start(facts, action, trigger, attempt)
}

/// Returns the next step of an object that is being deleted.
fn deletion(facts: &Facts) -> Step {
    if holds(MutationPoint::Active, facts.history.active.is_some()) {
        return Step::Follow;
    }
    if holds(MutationPoint::DeletionSuspended, facts.suspended) {
        return Step::Idle(Idle::DeletionSuspended);
    }
    if holds(MutationPoint::ContradictingFields, facts.contradiction.is_some()) {
        return Step::Idle(Idle::ContradictingFields);
    }
    if !holds(MutationPoint::DestroyFirst, facts.policy.destroy_on_deletion) {
        return Step::Release;
    }
    if let Some(first) =
        maintenance::maintenance_before_destroy(facts).filter(|_| resolved_inputs(facts).is_ok())
    {
        return first;
    }
    let last = facts
        .history
        .last
        .as_ref()
        .filter(|run| !holds(MutationPoint::NotDeletionRun, run.trigger != Trigger::Deletion));
    if let Some(run) = last {
        // A run that succeeded and left its plan did not apply it: the object was suspended in between.
        let withheld = holds(MutationPoint::DestroyWithheld, facts.history.pending.is_some());
        if holds(
            MutationPoint::Destroyed,
            run.outcome == Outcome::Succeeded && !withheld,
        ) {
            return Step::Release;
        }
        let at = if withheld {
            facts.retry_without_change_at(run)
        } else {
            facts.retry_at(run)
        };
        if holds(MutationPoint::DestroyDelay, facts.now < at) && facts.request.is_none() {
            return Step::Idle(Idle::RetryAt(at));
        }
    }
    if let Err(idle) = resolved_inputs(facts) {
        return Step::Idle(idle);
    }
    let attempt = last.map_or(1, |run| facts.history.next_attempt(run));
    Step::Start(NewRun {
        action: RunAction::PlanAndApply,
        trigger: Trigger::Deletion,
        destroy: true,
        plan: None,
        approved_by: Some("deletion".to_owned()),
        attempt,
    })
}

/// Returns the approver's name of runs that need no approval: `force` or `auto`.
fn automatic_approver(facts: &Facts) -> String {
    if facts.policy.forced { "force" } else { "auto" }.to_owned()
}

/// Returns the action of a new plan: with its apply in the same run if no approval is needed.
fn plan_action(facts: &Facts) -> RunAction {
    let needs_approval = holds(MutationPoint::NotAuto, facts.approval != Approval::Auto);
    if needs_approval || holds(MutationPoint::PlanOnlyPlans, facts.policy.plan_only) {
        RunAction::Plan
    } else {
        RunAction::PlanAndApply
    }
}

fn start(facts: &Facts, action: RunAction, trigger: Trigger, attempt: u32) -> Step {
    let approved_by = (action == RunAction::PlanAndApply).then(|| automatic_approver(facts));
    let destroy = facts.policy.destroy;
    Step::Start(NewRun {
        action,
        trigger,
        destroy,
        plan: None,
        approved_by,
        attempt,
    })
}
