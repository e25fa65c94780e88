//! Maintenance before plans and applies: a break-glass session, the release of the state lock that the user names, and the new
//! plan after either.

use super::{
    BreakGlass, Facts, ForceUnlock, Idle, NewRun, Outcome, RunAction, RunFact, Step, Trigger, plan_action,
    repeat_last, start,
};

/// The maintenance that a stack without deletion needs first, if any.
pub(super) fn maintenance_step(facts: &Facts) -> Option<Step> {
    let last = facts.history.last.as_ref();
    match facts.policy.break_glass {
        BreakGlass::Denied => return Some(Step::Idle(Idle::BreakGlassDenied)),
        BreakGlass::Completed => return Some(Step::Idle(Idle::BreakGlassCompleted)),
        BreakGlass::Requested => return Some(session(facts, last)),
        BreakGlass::NotRequested => {}
    }
    let last = last?;
    if is_unlock_due(facts, last) {
        return Some(unlock(facts, last));
    }
    let done = last.outcome == Outcome::Succeeded;
    match last.action {
        // The state may have changed, and the run that failed on the lock is still to be repeated.
        RunAction::Unlock if done => Some(repeat_last(facts, Trigger::Retry, last.attempt)),
        RunAction::BreakTheGlass if done => Some(start(facts, plan_action(facts), Trigger::Request, 1)),
        _ => None,
    }
}

/// Returns the maintenance before the destroy of a deletion, if any.
pub(super) fn maintenance_before_destroy(facts: &Facts) -> Option<Step> {
    let last = facts.history.last.as_ref()?;
    if is_unlock_due(facts, last) {
        return Some(unlock(facts, last));
    }
    let failed = last.action == RunAction::Unlock && last.outcome != Outcome::Succeeded;
    let at = facts.retry_at(last);
    (failed && facts.now < at && facts.request.is_none()).then_some(Step::Idle(Idle::RetryAt(at)))
}

/// Returns whether the last run met the lock that the spec names. After a failed release the run is retried: the lock may be gone.
fn is_unlock_due(facts: &Facts, last: &RunFact) -> bool {
    facts.policy.force_unlock == ForceUnlock::Yes && last.action != RunAction::Unlock
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

/// Starts a session. A session that failed to open is retried after the retry delay.
fn session(facts: &Facts, last: Option<&RunFact>) -> Step {
    let failed =
        last.filter(|run| run.action == RunAction::BreakTheGlass && run.generation == facts.generation);
    let attempt = failed.map_or(0, |run| run.attempt);
    if let Some(run) = failed {
        let at = facts.retry_at(run);
        if facts.now < at {
            return Step::Idle(Idle::RetryAt(at));
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
        line(&super::super::decide(&facts, &[]))
    }

    fn locked(action: RunAction, outcome: Outcome) -> RunFact {
        RunFact {
            action,
            attempt: 3,
            ..ended(outcome, 1)
        }
    }

    #[test]
    fn a_named_lock_is_released_once_before_the_run() {
        let named = |f: &mut Facts| f.policy.force_unlock = ForceUnlock::Yes;
        let failed = locked(RunAction::Plan, Outcome::Failed);
        assert_eq!(of(failed.clone(), named), "Unlock because Retry, attempt 3");
        assert_eq!(
            of(failed.clone(), |_| ()),
            "RetryAt +14s",
            "a lock without a name stays"
        );
        let limit = |f: &mut Facts| {
            f.policy.force_unlock = ForceUnlock::Yes;
            f.retry.retries = Some(1);
        };
        assert_eq!(
            of(failed.clone(), limit),
            "Unlock because Retry, attempt 3",
            "the spec requests it"
        );
        let released = locked(RunAction::Unlock, Outcome::Succeeded);
        assert_eq!(of(released.clone(), |_| ()), "Plan because Retry, attempt 3");
        let auto = |f: &mut Facts| f.approval = super::super::Approval::Auto;
        assert_eq!(
            of(released, auto),
            "PlanAndApply because Retry, attempt 3, approved by auto"
        );
        let refused = locked(RunAction::Unlock, Outcome::Failed);
        assert_eq!(of(refused, named), "RetryAt +14s", "no loop of releases");
        let suspended = |f: &mut Facts| {
            f.policy.force_unlock = ForceUnlock::Yes;
            f.suspended = true;
        };
        assert_eq!(of(failed, suspended), "Suspended");
    }

    #[test]
    fn a_release_before_a_deletion_does_not_count_as_the_destroy() {
        let deleting = |lock: ForceUnlock| {
            move |f: &mut Facts| {
                f.deleting = true;
                f.policy.destroy_on_deletion = true;
                f.policy.force_unlock = lock;
            }
        };
        let destroy = RunFact {
            trigger: Trigger::Deletion,
            ..locked(RunAction::PlanAndApply, Outcome::Failed)
        };
        assert_eq!(
            of(destroy, deleting(ForceUnlock::Yes)),
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
                deleting(ForceUnlock::No)
            ),
            expected
        );
        let refused = RunFact {
            trigger: Trigger::Retry,
            ..locked(RunAction::Unlock, Outcome::Failed)
        };
        assert_eq!(of(refused, deleting(ForceUnlock::Yes)), "RetryAt +14s");
    }

    #[test]
    fn one_session_is_followed_by_a_new_plan() {
        let glass = |glass: BreakGlass| move |f: &mut Facts| f.policy.break_glass = glass;
        let steady = ended(Outcome::Succeeded, 60);
        assert_eq!(
            of(steady.clone(), glass(BreakGlass::Requested)),
            "BreakTheGlass because Request, attempt 1"
        );
        assert_eq!(of(steady.clone(), glass(BreakGlass::Denied)), "BreakGlassDenied");
        assert_eq!(of(steady, glass(BreakGlass::Completed)), "BreakGlassCompleted");
        let mut new = facts();
        new.policy.break_glass = BreakGlass::Requested;
        assert_eq!(
            line(&super::super::decide(&new, &[])),
            "BreakTheGlass because Request, attempt 1"
        );
        let held = RunFact {
            action: RunAction::BreakTheGlass,
            ..ended(Outcome::Succeeded, 1)
        };
        assert_eq!(
            of(held.clone(), glass(BreakGlass::NotRequested)),
            "Plan because Request, attempt 1"
        );
        let failed = RunFact {
            outcome: Outcome::Failed,
            finished: at(NOW - 1),
            ..held
        };
        assert_eq!(of(failed.clone(), glass(BreakGlass::Requested)), "RetryAt +14s");
        let later = RunFact {
            finished: at(NOW - 15),
            ..failed
        };
        assert_eq!(
            of(later, glass(BreakGlass::Requested)),
            "BreakTheGlass because Request, attempt 2"
        );
    }

    #[test]
    fn missing_outputs_are_repaired_unless_a_plan_is_pending_or_a_run_failed() {
        let gone = |f: &mut Facts| f.history.outputs_gone = true;
        assert_eq!(
            of(ended(Outcome::Succeeded, 60), gone),
            "Plan because Repair, attempt 1"
        );
        assert_eq!(of(ended(Outcome::Failed, 1), gone), "RetryAt +14s");
    }
}
