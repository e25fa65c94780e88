//! What comes before plans and applies: a session of a person, the release of a lock that the user named; and the fresh plan
//! after either.

use super::{
    Facts, Glass, LockWish, NewRun, Outcome, Rest, RunAction, RunFact, Step, Trigger, after, again,
    fresh_action, start,
};

/// What comes first for a living stack, if anything does.
pub(super) fn aside(facts: &Facts) -> Option<Step> {
    let last = facts.history.last.as_ref();
    match facts.policy.glass {
        Glass::Refused => return Some(Step::Rest(Rest::GlassRefused)),
        Glass::Over => return Some(Step::Rest(Rest::GlassOver)),
        Glass::Wanted => return Some(session(facts, last)),
        Glass::Whole => {}
    }
    let last = last?;
    if is_unlock_due(facts, last) {
        return Some(unlock(facts, last));
    }
    let done = last.outcome == Outcome::Succeeded;
    match last.action {
        // The state may be anything now, and what failed on the lock has still to be done.
        RunAction::Unlock if done => Some(again(facts, Trigger::Retry, last.attempt)),
        RunAction::BreakTheGlass if done => Some(start(facts, fresh_action(facts), Trigger::Request, 1)),
        _ => None,
    }
}

/// What comes before the destroy of a deletion.
pub(super) fn before_destroy(facts: &Facts) -> Option<Step> {
    let last = facts.history.last.as_ref()?;
    if is_unlock_due(facts, last) {
        return Some(unlock(facts, last));
    }
    let failed = last.action == RunAction::Unlock && last.outcome != Outcome::Succeeded;
    let at = after(last.finished, facts.retry.delay(last.attempt));
    (failed && facts.now < at && facts.request.is_none()).then_some(Step::Rest(Rest::RetryAt(at)))
}

/// The last run met the lock that the user names. A release that failed is followed by a try without one: the lock may be gone.
fn is_unlock_due(facts: &Facts, last: &RunFact) -> bool {
    facts.policy.lock == LockWish::Released && last.action != RunAction::Unlock
}

fn unlock(facts: &Facts, last: &RunFact) -> Step {
    Step::Start(NewRun {
        action: RunAction::Unlock,
        trigger: Trigger::Retry,
        destroy: facts.policy.destroy,
        plan: None,
        approved_by: None,
        attempt: last.attempt,
    })
}

/// A session; one that could not be opened is tried again after a while.
fn session(facts: &Facts, last: Option<&RunFact>) -> Step {
    let failed =
        last.filter(|run| run.action == RunAction::BreakTheGlass && run.generation == facts.generation);
    let attempt = failed.map_or(0, |run| run.attempt);
    if let Some(run) = failed {
        let at = after(run.finished, facts.retry.delay(run.attempt));
        if facts.now < at {
            return Step::Rest(Rest::RetryAt(at));
        }
    }
    start(
        facts,
        RunAction::BreakTheGlass,
        Trigger::Request,
        attempt.saturating_add(1),
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOW, at, ended, facts, line, with_last};
    use super::*;

    fn of(run: RunFact, edit: impl FnOnce(&mut Facts)) -> String {
        let mut facts = with_last(run);
        edit(&mut facts);
        line(&super::super::decide(&facts))
    }

    fn locked(action: RunAction, outcome: Outcome) -> RunFact {
        RunFact {
            action,
            attempt: 3,
            ..ended(outcome, 1)
        }
    }

    #[test]
    fn the_named_lock_is_released_once_and_then_the_work_is_done() {
        let named = |f: &mut Facts| f.policy.lock = LockWish::Released;
        let failed = locked(RunAction::Plan, Outcome::Failed);
        assert_eq!(of(failed.clone(), named), "Unlock because Retry, attempt 3");
        assert_eq!(
            of(failed.clone(), |_| ()),
            "RetryAt +14s",
            "a lock that nobody names stays"
        );
        let limit = |f: &mut Facts| {
            f.policy.lock = LockWish::Released;
            f.retry.retries = Some(1);
        };
        assert_eq!(
            of(failed.clone(), limit),
            "Unlock because Retry, attempt 3",
            "the user asks for it"
        );
        let released = locked(RunAction::Unlock, Outcome::Succeeded);
        assert_eq!(of(released.clone(), |_| ()), "Plan because Retry, attempt 3");
        let auto = |f: &mut Facts| f.approval = super::super::Approval::Auto;
        assert_eq!(
            of(released, auto),
            "PlanAndApply because Retry, attempt 3, approved by auto"
        );
        let refused = locked(RunAction::Unlock, Outcome::Failed);
        assert_eq!(of(refused, named), "RetryAt +14s", "no circle of releases");
        let suspended = |f: &mut Facts| {
            f.policy.lock = LockWish::Released;
            f.suspended = true;
        };
        assert_eq!(of(failed, suspended), "Suspended");
    }

    #[test]
    fn a_lock_in_the_way_of_a_deletion_is_released_and_never_taken_for_the_destroy() {
        let deleting = |lock: LockWish| {
            move |f: &mut Facts| {
                f.deleting = true;
                f.policy.destroy_on_deletion = true;
                f.policy.lock = lock;
            }
        };
        let destroy = RunFact {
            trigger: Trigger::Deletion,
            ..locked(RunAction::PlanAndApply, Outcome::Failed)
        };
        assert_eq!(
            of(destroy, deleting(LockWish::Released)),
            "Unlock because Retry, attempt 3"
        );
        let released = locked(RunAction::Unlock, Outcome::Succeeded);
        let expected = "PlanAndApply (destroy) because Deletion, attempt 1, approved by deletion";
        assert_eq!(
            of(
                RunFact {
                    trigger: Trigger::Retry,
                    ..released
                },
                deleting(LockWish::Stays)
            ),
            expected
        );
        let refused = RunFact {
            trigger: Trigger::Retry,
            ..locked(RunAction::Unlock, Outcome::Failed)
        };
        assert_eq!(of(refused, deleting(LockWish::Released)), "RetryAt +14s");
    }

    #[test]
    fn a_session_is_held_once_and_a_fresh_plan_follows() {
        let glass = |glass: Glass| move |f: &mut Facts| f.policy.glass = glass;
        let steady = ended(Outcome::Succeeded, 60);
        assert_eq!(
            of(steady.clone(), glass(Glass::Wanted)),
            "BreakTheGlass because Request, attempt 1"
        );
        assert_eq!(of(steady.clone(), glass(Glass::Refused)), "GlassRefused");
        assert_eq!(of(steady, glass(Glass::Over)), "GlassOver");
        let mut new = facts();
        new.policy.glass = Glass::Wanted;
        assert_eq!(
            line(&super::super::decide(&new)),
            "BreakTheGlass because Request, attempt 1"
        );
        let held = RunFact {
            action: RunAction::BreakTheGlass,
            ..ended(Outcome::Succeeded, 1)
        };
        assert_eq!(
            of(held.clone(), glass(Glass::Whole)),
            "Plan because Request, attempt 1"
        );
        let failed = RunFact {
            outcome: Outcome::Failed,
            finished: at(NOW - 1),
            ..held
        };
        assert_eq!(of(failed.clone(), glass(Glass::Wanted)), "RetryAt +14s");
        let later = RunFact {
            finished: at(NOW - 15),
            ..failed
        };
        assert_eq!(
            of(later, glass(Glass::Wanted)),
            "BreakTheGlass because Request, attempt 2"
        );
    }

    #[test]
    fn lost_outputs_are_written_at_once_unless_something_waits_or_failed() {
        let gone = |f: &mut Facts| f.history.outputs_gone = true;
        assert_eq!(
            of(ended(Outcome::Succeeded, 60), gone),
            "Plan because Repair, attempt 1"
        );
        assert_eq!(of(ended(Outcome::Failed, 1), gone), "RetryAt +14s");
    }
}
