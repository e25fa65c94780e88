//! What replaces a pending plan by a new one, besides changed inputs.

use jiff::Timestamp;

use super::{Approval, Facts, Idle, RunAction, Step, Trigger, start};

/// Returns the next step of a stack whose pending plan was rejected. Neither the interval nor an approval ends the wait.
pub(super) fn rejected_plan_step(facts: &Facts) -> Step {
    if let Some(trigger) = replan_trigger(facts, None) {
        return start(facts, RunAction::Plan, trigger, 1);
    }
    if facts.approval == Approval::Replan && is_spec_newer(facts) {
        return start(facts, RunAction::Plan, Trigger::Spec, 1);
    }
    Step::Idle(Idle::PlanRejected)
}

/// Returns why a new plan replaces the pending one: a reconcile request, or drift that may have disappeared by the time `due`.
pub(super) fn replan_trigger(facts: &Facts, due: Option<Timestamp>) -> Option<Trigger> {
    if facts.request.is_some() {
        return Some(Trigger::Request);
    }
    due.filter(|due| facts.now >= *due).map(|_| Trigger::Interval)
}

/// Returns whether the newest run was created for an older spec.
pub(super) fn is_spec_newer(facts: &Facts) -> bool {
    facts
        .history
        .last
        .as_ref()
        .is_some_and(|last| last.generation != facts.generation)
}
