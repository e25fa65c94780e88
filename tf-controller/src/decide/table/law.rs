//! The laws of every decision, written independently of its implementation.

use jiff::{SignedDuration, Timestamp};

use super::super::{
    Approval, BreakGlass, Dependencies, Facts, ForceUnlock, Idle, Inputs, NewRun, Outcome, RunAction,
    RunFact, SourceFact, Step, Trigger, decide,
};

/// Returns the law that this step breaks.
pub(crate) fn broken(facts: &Facts, dependents: &[String], step: &Step) -> Option<&'static str> {
    match step {
        Step::Start(run) => started(facts, dependents, run),
        Step::Follow => facts
            .history
            .active
            .is_none()
            .then_some("only a run in progress is followed"),
        Step::Release => released(facts, dependents),
        Step::Idle(_) => idle(facts, dependents, step),
        Step::WaitForSlot(_) => Some("the decision does not know slots"),
        Step::CreateFailed(_) => Some("the decision does not know the API"),
    }
}

/// Returns the first law that does not hold.
fn first(laws: &[(bool, &'static str)]) -> Option<&'static str> {
    laws.iter().find(|(holds, _)| !holds).map(|(_, law)| *law)
}

fn started(facts: &Facts, dependents: &[String], run: &NewRun) -> Option<&'static str> {
    first(&[
        (facts.history.active.is_none(), "never two runs at once"),
        (!facts.suspended, "a suspended stack starts nothing"),
        (
            facts.unsupported_field.is_none(),
            "an unsupported field starts nothing",
        ),
        (
            matches!(facts.source, SourceFact::Found { .. }) || facts.deleting,
            "nothing but a destroy is run without an artifact",
        ),
        (
            facts.contradiction.is_none(),
            "contradicting fields start nothing",
        ),
        (
            facts.dependencies == Dependencies::Ready || run.destroy,
            "a run waits for its dependencies",
        ),
        (
            dependents.is_empty() || !run.destroy || !run.action.applies(),
            "a destroy waits for its dependents",
        ),
        (
            matches!(facts.inputs, Inputs::Known(_)),
            "nothing is run without inputs",
        ),
        (
            may_change(facts, run),
            "never an apply without an approval of that effect or auto",
        ),
        (
            has_cause(facts, run),
            "never a run when nothing changed, nor before its time",
        ),
        (
            run.destroy == (facts.deleting || facts.policy.destroy),
            "a run destroys when the stack is to be destroyed",
        ),
    ])
}

/// Returns whether an apply is allowed: by an approval of this plan, by `auto`, or by the deletion.
fn may_change(facts: &Facts, run: &NewRun) -> bool {
    let destroys = facts.deleting && facts.policy.destroy_on_deletion;
    let policy = &facts.policy;
    let last = facts.history.last.as_ref();
    match run.action {
        RunAction::Plan => run.plan.is_none() && !facts.deleting,
        RunAction::PlanAndApply if facts.deleting => {
            destroys && run.destroy && run.trigger == Trigger::Deletion
        }
        RunAction::PlanAndApply => facts.approval == Approval::Auto && !policy.plan_only,
        RunAction::Apply => {
            let planned = run.plan.as_ref();
            let pending = facts.history.pending.as_ref();
            let inputs = match &facts.inputs {
                Inputs::Known(inputs) => Some(inputs),
                Inputs::Failed { .. } | Inputs::Unresolved => None,
            };
            let held = pending.is_some_and(|plan| plan.held);
            let rejected = pending.is_some_and(|plan| plan.rejection.is_some());
            let is_approved = match facts.approval {
                Approval::Auto => !held,
                Approval::Given { .. } => true,
                Approval::None | Approval::Replan | Approval::Disabled => false,
            };
            is_approved
                && !rejected
                && !policy.plan_only
                && !facts.deleting
                && planned
                    .zip(pending)
                    .is_some_and(|((id, from), plan)| *id == plan.plan_id && *from == plan.run)
                && last.map(|run| &run.inputs) == inputs
                && last.map(|run| run.destroy) == Some(policy.destroy)
        }
        RunAction::Unlock => policy.force_unlock == ForceUnlock::Yes && run.plan.is_none(),
        RunAction::BreakTheGlass => policy.break_glass == BreakGlass::Requested && !facts.deleting,
    }
}

/// Returns whether the run's trigger is true.
fn has_cause(facts: &Facts, run: &NewRun) -> bool {
    let Some(last) = &facts.history.last else {
        return matches!(run.trigger, Trigger::Revision | Trigger::Deletion) && run.attempt == 1;
    };
    let edited = last.generation != facts.generation;
    let failed = matches!(last.outcome, Outcome::Failed | Outcome::Lost);
    let inputs = Inputs::Known(last.inputs.clone());
    let changed = facts.inputs != inputs || last.destroy != facts.policy.destroy;
    let pending = facts.history.pending.as_ref();
    let waited = |since: Timestamp, wait: SignedDuration| since.saturating_add(wait).unwrap() <= facts.now;
    // Five disruptions in a row use up no retry. The wait grows with each.
    let disruptions = facts.history.disruptions;
    let failures = if (1..=5).contains(&disruptions) {
        last.attempt - 1
    } else {
        last.attempt
    };
    let delay = facts.retry.delay(last.attempt + disruptions.saturating_sub(1));
    let retry_due = waited(last.finished, delay) && !facts.retry.is_exhausted(failures);
    match run.trigger {
        Trigger::Revision => changed && !edited && (facts.request.is_some() || is_pause_over(facts, last)),
        Trigger::Spec => edited && (changed || failed || facts.approval == Approval::Replan),
        Trigger::Retry => {
            let stale = last.stale && last.attempt < 4;
            failed && !changed && run.attempt == failures + 1 && (retry_due || stale)
        }
        Trigger::Request => facts.request.is_some(),
        Trigger::Interval => {
            let since = pending.map_or(facts.history.last_success, |plan| Some(plan.planned));
            // A failed run is retried, unless it left a plan that waits.
            (!failed || pending.is_some())
                && !changed
                && !waits_rejected(facts)
                && since.is_some_and(|since| waited(since, facts.interval))
        }
        Trigger::Approval => pending.is_some(),
        Trigger::Repair => facts.history.outputs_gone && !failed && !changed,
        Trigger::Drift => pending.is_some_and(|plan| plan.drift) && facts.approval == Approval::Auto,
        Trigger::Deletion => {
            let is_retry = last.trigger == Trigger::Deletion;
            let edited = pending.is_some() && facts.generation != last.generation;
            let due = edited || waited(last.finished, delay) || facts.request.is_some();
            facts.deleting && (!is_retry || (failed || pending.is_some()) && due)
        }
    }
}

/// Returns whether the pending plan was rejected and would be applied otherwise: such a plan is not made again by itself.
fn waits_rejected(facts: &Facts) -> bool {
    let pending = facts.history.pending.as_ref();
    let shown_only = facts.policy.plan_only || facts.approval == Approval::Disabled;
    !shown_only && pending.is_some_and(|plan| plan.rejection.is_some())
}

/// Returns whether the pause between runs of changed inputs is over.
fn is_pause_over(facts: &Facts, last: &RunFact) -> bool {
    let over = facts
        .history
        .input_runs
        .is_none_or(|runs| facts.now >= runs.until());
    over || last.destroy != facts.policy.destroy
}

fn released(facts: &Facts, dependents: &[String]) -> Option<&'static str> {
    let destroyed = facts
        .history
        .last
        .as_ref()
        .is_some_and(|run| run.trigger == Trigger::Deletion && run.outcome == Outcome::Succeeded)
        && facts.history.pending.is_none();
    first(&[
        (facts.deleting, "only a deleted stack is released"),
        (!facts.suspended, "a suspended stack is not released"),
        (
            facts.history.active.is_none(),
            "a stack is not released during a run",
        ),
        (
            destroyed || !facts.policy.destroy_on_deletion,
            "a stack that destroys on deletion is destroyed before its release",
        ),
        (
            facts.contradiction.is_none(),
            "contradicting fields release nothing",
        ),
        (
            dependents.is_empty(),
            "a stack is not released before its dependents",
        ),
    ])
}

/// An idle stack waits for a time in the future or for a named event, and continues when it has come.
fn idle(facts: &Facts, dependents: &[String], step: &Step) -> Option<&'static str> {
    if facts.history.active.is_some() {
        return Some("a run in progress is followed");
    }
    let is_rejected_step = matches!(step, Step::Idle(Idle::PlanRejected));
    let awaits_approval = matches!(step, Step::Idle(Idle::AwaitApproval));
    if is_rejected_step && !waits_rejected(facts) || awaits_approval && waits_rejected(facts) {
        return Some("a rejected plan, and no other, waits for a change or a request");
    }
    let held = facts.history.pending.as_ref().is_some_and(|plan| plan.held);
    if awaits_approval && !held && !matches!(facts.approval, Approval::None | Approval::Replan) {
        return Some("only a plan that can be approved waits for an approval");
    }
    let waits_for_user_or_time = matches!(
        step,
        Step::Idle(
            Idle::RetryAt(_)
                | Idle::InputPause(_)
                | Idle::RetryLimit
                | Idle::InSync(_)
                | Idle::ShowPlan { .. }
                | Idle::AwaitApproval
                | Idle::PlanRejected
        )
    );
    if waits_for_user_or_time && facts.request.is_some() {
        return Some("a request is handled");
    }
    let (mut facts, mut dependents) = (facts.clone(), dependents);
    let mut step = step.clone();
    for _ in 0..10 {
        let Step::Idle(idle) = &step else { return None };
        let before = facts.now;
        if matches!(idle, Idle::Dependents(_)) {
            dependents = &[];
        }
        end_wait(&mut facts, idle);
        if !is_ended_by_event(idle) && facts.now <= before {
            return Some("a stack waits for a time in the future");
        }
        let next = decide(&facts, dependents);
        if next == step {
            return Some("never stuck: the awaited event changes the state");
        }
        step = next;
    }
    Some("never stuck: waiting ends")
}

/// Returns whether an event, not the time, ends the idle state.
fn is_ended_by_event(idle: &Idle) -> bool {
    match idle {
        Idle::RetryAt(_) | Idle::InputPause(_) | Idle::InSync(_) | Idle::ShowPlan { again: Some(_) } => false,
        Idle::Suspended
        | Idle::DeletionSuspended
        | Idle::UnsupportedField
        | Idle::ContradictingFields
        | Idle::Dependencies
        | Idle::Dependents(_)
        | Idle::Source
        | Idle::InputsUnknown
        | Idle::AwaitApproval
        | Idle::PlanRejected
        | Idle::ShowPlan { again: None }
        | Idle::RetryLimit
        | Idle::BreakGlassDenied
        | Idle::BreakGlassCompleted => true,
    }
}

/// Sets the event or the time that the idle state waits for.
fn end_wait(facts: &mut Facts, idle: &Idle) {
    match idle {
        Idle::Suspended | Idle::DeletionSuspended => facts.suspended = false,
        Idle::UnsupportedField => facts.unsupported_field = None,
        Idle::ContradictingFields => facts.contradiction = None,
        Idle::Dependencies => facts.dependencies = Dependencies::Ready,
        Idle::Dependents(_) => {} // the caller removes them
        Idle::Source => {
            facts.source = SourceFact::Found {
                revision: "main@sha1:cc".into(),
                digest: "sha256:dd".into(),
            }
        }
        Idle::InputsUnknown => facts.inputs = Inputs::Known(super::SAME.into()),
        Idle::AwaitApproval => facts.approval = Approval::Given { by: "kubectl".into() },
        Idle::ShowPlan { again: None } => facts.policy.plan_only = false,
        Idle::RetryLimit | Idle::PlanRejected => facts.request = Some("another".into()),
        Idle::BreakGlassDenied | Idle::BreakGlassCompleted => {
            facts.policy.break_glass = BreakGlass::NotRequested;
        }
        Idle::RetryAt(when)
        | Idle::InputPause(when)
        | Idle::InSync(when)
        | Idle::ShowPlan { again: Some(when) } => {
            facts.now = *when;
        }
    }
}
