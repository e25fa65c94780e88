//! What must hold of every decision, said without looking at how it is made.

use super::super::{
    Approval, Dependencies, Facts, Glass, Inputs, LockWish, NewRun, Outcome, Rest, RunAction, RunFact,
    SourceFact, Step, Trigger, decide,
};
use jiff::{SignedDuration, Timestamp};

/// The law that this step breaks, if any.
pub(crate) fn broken(facts: &Facts, step: &Step) -> Option<&'static str> {
    match step {
        Step::Start(run) => started(facts, run),
        Step::Follow => facts
            .history
            .active
            .is_none()
            .then_some("only a run in progress is followed"),
        Step::Release => released(facts),
        Step::Rest(_) => rested(facts, step),
        Step::Wait => Some("whether there is a place is not known here"),
        Step::NotMade(_) => Some("what the API takes is not known here"),
    }
}

/// The first of these that does not hold.
fn first(laws: &[(bool, &'static str)]) -> Option<&'static str> {
    laws.iter().find(|(holds, _)| !holds).map(|(_, law)| *law)
}

fn started(facts: &Facts, run: &NewRun) -> Option<&'static str> {
    first(&[
        (facts.history.active.is_none(), "never two runs at once"),
        (!facts.suspended, "a suspended stack starts nothing"),
        (facts.refused.is_none(), "a refused field starts nothing"),
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
            "what is made waits for what it builds on",
        ),
        (
            facts.dependants.is_empty() || !run.destroy || !run.action.applies(),
            "what is destroyed waits for what builds on it",
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

/// An apply has leave: of a person for this very plan, of `auto`, or of the deletion.
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
            let named = run.plan.as_ref();
            let waits = facts.history.pending.as_ref();
            let inputs = match &facts.inputs {
                Inputs::Known(inputs) => Some(inputs),
                Inputs::Failed { .. } | Inputs::Unresolved => None,
            };
            let held = waits.is_some_and(|plan| plan.held);
            let leave = match facts.approval {
                Approval::Auto => !held,
                Approval::Given { .. } => true,
                Approval::None | Approval::Replan | Approval::Disabled => false,
            };
            leave
                && !policy.plan_only
                && !facts.deleting
                && named
                    .zip(waits)
                    .is_some_and(|((id, from), plan)| *id == plan.plan_id && *from == plan.run)
                && last.map(|run| &run.inputs) == inputs
                && last.map(|run| run.destroy) == Some(policy.destroy)
        }
        RunAction::Unlock => policy.lock == LockWish::Released && run.plan.is_none(),
        RunAction::BreakTheGlass => policy.glass == Glass::Wanted && !facts.deleting,
    }
}

/// What the run says to have caused it is the case.
fn has_cause(facts: &Facts, run: &NewRun) -> bool {
    let Some(last) = &facts.history.last else {
        return matches!(run.trigger, Trigger::Revision | Trigger::Deletion) && run.attempt == 1;
    };
    let edited = last.generation != facts.generation;
    let failed = matches!(last.outcome, Outcome::Failed | Outcome::Lost);
    let inputs = Inputs::Known(last.inputs.clone());
    let others = facts.inputs != inputs || last.destroy != facts.policy.destroy;
    let pending = facts.history.pending.as_ref();
    let waited = |since: Timestamp, wait: SignedDuration| since.saturating_add(wait).unwrap() <= facts.now;
    let retry_due =
        waited(last.finished, facts.retry.delay(last.attempt)) && !facts.retry.is_exhausted(last.attempt);
    match run.trigger {
        Trigger::Revision => others && !edited && (facts.request.is_some() || is_rested(facts, last)),
        Trigger::Spec => edited && (others || failed || facts.approval == Approval::Replan),
        Trigger::Retry => {
            let stale = last.stale && last.attempt < 4;
            failed && !others && run.attempt == last.attempt + 1 && (retry_due || stale)
        }
        Trigger::Request => facts.request.is_some(),
        Trigger::Interval => {
            let since = pending.map_or(facts.history.last_success, |plan| Some(plan.planned));
            !failed && !others && since.is_some_and(|since| waited(since, facts.interval))
        }
        Trigger::Approval => pending.is_some(),
        Trigger::Repair => facts.history.outputs_gone && !failed && !others,
        Trigger::Drift => pending.is_some_and(|plan| plan.drift) && facts.approval == Approval::Auto,
        Trigger::Deletion => {
            let tried = last.trigger == Trigger::Deletion;
            let due = waited(last.finished, facts.retry.delay(last.attempt)) || facts.request.is_some();
            facts.deleting && (!tried || (failed || pending.is_some()) && due)
        }
    }
}

/// Inputs that change again and again do not cause run after run.
fn is_rested(facts: &Facts, last: &RunFact) -> bool {
    let over = facts
        .history
        .input_runs
        .is_none_or(|runs| facts.now >= runs.until());
    over || last.destroy != facts.policy.destroy
}

fn released(facts: &Facts) -> Option<&'static str> {
    let destroyed = facts
        .history
        .last
        .as_ref()
        .is_some_and(|run| run.trigger == Trigger::Deletion && run.outcome == Outcome::Succeeded)
        && facts.history.pending.is_none();
    first(&[
        (facts.deleting, "only a deleted stack is let go"),
        (!facts.suspended, "a suspended stack is not let go"),
        (
            facts.history.active.is_none(),
            "a stack is not let go beside a run in progress",
        ),
        (
            destroyed || !facts.policy.destroy_on_deletion,
            "a stack that destroys on deletion is destroyed before it is let go",
        ),
        (
            facts.contradiction.is_none(),
            "contradicting fields let nothing go",
        ),
        (
            facts.dependants.is_empty(),
            "a stack is not let go before those that build on it",
        ),
    ])
}

/// Whoever rests waits for a time in the future or for an event that has a name, and goes on when that has come.
fn rested(facts: &Facts, step: &Step) -> Option<&'static str> {
    if facts.history.active.is_some() {
        return Some("a run in progress is followed");
    }
    let held = facts.history.pending.as_ref().is_some_and(|plan| plan.held);
    if matches!(step, Step::Rest(Rest::AwaitApproval))
        && !held
        && !matches!(facts.approval, Approval::None | Approval::Replan)
    {
        return Some("only a plan that somebody may approve waits for an approval");
    }
    let patient = matches!(
        step,
        Step::Rest(
            Rest::RetryAt(_)
                | Rest::InputPause(_)
                | Rest::RetryLimit
                | Rest::Steady(_)
                | Rest::ShowPlan { .. }
                | Rest::AwaitApproval
        )
    );
    if patient && facts.request.is_some() {
        return Some("a request is taken up");
    }
    let mut facts = facts.clone();
    let mut step = step.clone();
    for _ in 0..10 {
        let Step::Rest(rest) = &step else { return None };
        let before = facts.now;
        happen(&mut facts, rest);
        if !holds_back(rest) && facts.now <= before {
            return Some("who waits for a time waits for one in the future");
        }
        let next = decide(&facts);
        if next == step {
            return Some("never stuck: what a state waits for changes it");
        }
        step = next;
    }
    Some("never stuck: there is an end to what is waited for")
}

/// Whether the rest ends by an event, and not by the time.
fn holds_back(rest: &Rest) -> bool {
    match rest {
        Rest::RetryAt(_) | Rest::InputPause(_) | Rest::Steady(_) | Rest::ShowPlan { again: Some(_) } => false,
        Rest::Suspended
        | Rest::DeletionSuspended
        | Rest::Refused
        | Rest::Contradiction
        | Rest::Dependencies
        | Rest::Dependants
        | Rest::Source
        | Rest::InputsUnknown
        | Rest::AwaitApproval
        | Rest::ShowPlan { again: None }
        | Rest::RetryLimit
        | Rest::GlassRefused
        | Rest::GlassOver => true,
    }
}

/// What the rest waits for comes.
fn happen(facts: &mut Facts, rest: &Rest) {
    match rest {
        Rest::Suspended | Rest::DeletionSuspended => facts.suspended = false,
        Rest::Refused => facts.refused = None,
        Rest::Contradiction => facts.contradiction = None,
        Rest::Dependencies => facts.dependencies = Dependencies::Ready,
        Rest::Dependants => facts.dependants.clear(),
        Rest::Source => {
            facts.source = SourceFact::Found {
                revision: "main@sha1:cc".into(),
                digest: "sha256:dd".into(),
            }
        }
        Rest::InputsUnknown => facts.inputs = Inputs::Known(super::SAME.into()),
        Rest::AwaitApproval => facts.approval = Approval::Given { by: "kubectl".into() },
        Rest::ShowPlan { again: None } => facts.policy.plan_only = false,
        Rest::RetryLimit => facts.request = Some("another".into()),
        Rest::GlassRefused | Rest::GlassOver => facts.policy.glass = Glass::Whole,
        Rest::RetryAt(when)
        | Rest::InputPause(when)
        | Rest::Steady(when)
        | Rest::ShowPlan { again: Some(when) } => {
            facts.now = *when;
        }
    }
}
