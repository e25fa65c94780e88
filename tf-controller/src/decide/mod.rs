//! The decision: what one stack needs next, from what is known of it. Pure, so that it is a table in the tests and can be
//! explored exhaustively. `reconcile` gathers the [`Facts`], calls [`decide`] and carries the [`Step`] out.
//!
//! Rules, in order: a refused field, deletion, suspension, the source, an active run, a waiting plan, changed inputs,
//! a failure to retry, a request, the interval. The first that applies decides. What would then be started waits for the
//! stacks that it builds on, and a destroy for those that build on it (`order`).

mod aside;
mod facts;
mod guard;
mod order;
mod pause;
mod phase;
mod retry;
#[cfg(test)]
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod upkeep;

pub use facts::{
    Approval, Dependencies, Facts, Glass, Health, History, Inputs, LockWish, NewRun, Outcome, Pending,
    Policy, Refused, RunAction, RunFact, SourceFact, Trigger,
};
pub(crate) use guard::{Guard, guard};
#[cfg(test)]
pub(crate) use guard::{left_out, without};
pub use pause::InputRuns;
pub use phase::Phase;
pub use retry::{RetryPolicy, Strategy};
#[cfg(test)]
pub(crate) use tests::facts as facts_of_a_new_stack;
pub(crate) use upkeep::{Progress, Upkeep, upkeep};

use jiff::{SignedDuration, Timestamp};

/// How many stale plans in a row are planned again without a wait.
const STALE_AT_ONCE: u32 = 3;

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Start this run.
    Start(NewRun),
    /// Something must be run, and there is no place for it now. Never said by [`decide`], which knows this stack alone.
    Wait,
    /// Something must be run, and the API takes no run, for this reason. Never said by [`decide`] either.
    NotMade(String),
    /// A run is in progress: look after it.
    Follow,
    /// Nothing is left to do for a deleted stack: let it go.
    Release,
    /// No run now.
    Rest(Rest),
}

/// Why there is no run now, and when to look again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rest {
    /// `spec.suspend`; nothing happens until it is lifted.
    Suspended,
    /// Suspended and deleted: the deletion waits for the resume, as upstream, and is told to the user.
    DeletionSuspended,
    /// A field that this version does not carry out is set.
    Refused,
    /// Two fields of the spec say opposite things; the facts name them.
    Contradiction,
    /// A stack that this one builds on is not as far, or cannot be; the facts say which and why.
    Dependencies,
    /// Stacks that build on this one are to go first; the facts name them.
    Dependants,
    /// The source cannot be used; the facts say why.
    Source,
    /// The inputs cannot be resolved; the facts say why.
    InputsUnknown,
    /// A plan waits for its approval.
    AwaitApproval,
    /// A plan is shown and will not be applied (`planOnly`, or `approvePlan: disable`).
    ShowPlan {
        /// When the stack is looked at again; `None`: on a change only.
        again: Option<Timestamp>,
    },
    /// The inputs changed again and again with no commit and no edit; the next run follows then.
    InputPause(Timestamp),
    /// The last run failed; another attempt follows.
    RetryAt(Timestamp),
    /// As many attempts as `remediation.retries` allows have failed.
    RetryLimit,
    /// A session is asked for that the controller does not allow.
    GlassRefused,
    /// A session is over, and its field is still set.
    GlassOver,
    /// All is as wanted; the next drift check is due then.
    Steady(Timestamp),
}

/// Decides the next step of one stack.
#[must_use]
pub fn decide(facts: &Facts) -> Step {
    if facts.deleting {
        return deletion(facts);
    }
    if guard(Guard::Active, facts.history.active.is_some()) {
        return Step::Follow;
    }
    if guard(Guard::Suspended, facts.suspended) {
        return Step::Rest(Rest::Suspended);
    }
    if let Some(rest) = order::forbids(facts) {
        return Step::Rest(rest);
    }
    match usable(facts) {
        Ok(inputs) => order::in_turn(facts, wanted(facts, inputs)),
        Err(rest) => Step::Rest(rest),
    }
}

/// The digest of the inputs, where nothing stands against a run.
fn usable(facts: &Facts) -> Result<&str, Rest> {
    if guard(Guard::Refused, facts.refused.is_some()) {
        return Err(Rest::Refused);
    }
    // A destroy can also be made of what was applied last: then the inputs alone tell.
    let matters = !facts.deleting || facts.inputs == Inputs::Unresolved;
    if guard(
        Guard::SourceMissing,
        matters && !matches!(facts.source, SourceFact::Found { .. }),
    ) {
        return Err(Rest::Source);
    }
    match &facts.inputs {
        Inputs::Known(inputs) => Ok(inputs),
        _ if guard(Guard::InputsUnknown, true) => Err(order::instead_of_inputs(facts)),
        _ => Ok(""),
    }
}

/// The stack is alive, its source and inputs are known and nothing runs.
fn wanted(facts: &Facts, inputs: &str) -> Step {
    if let Some(first) = aside::aside(facts) {
        return first;
    }
    let Some(last) = &facts.history.last else {
        return start(facts, fresh_action(facts), Trigger::Revision, 1);
    };
    if guard(Guard::InputsChanged, last.inputs != inputs)
        || guard(Guard::DestroySwitched, last.destroy != facts.policy.destroy)
    {
        if let Some(until) = paused(facts, last, inputs) {
            return Step::Rest(Rest::InputPause(until));
        }
        let trigger = if last.generation == facts.generation {
            Trigger::Revision
        } else {
            Trigger::Spec
        };
        return start(facts, fresh_action(facts), trigger, 1);
    }
    if let Some(pending) = facts
        .history
        .pending
        .as_ref()
        .filter(|_| guard(Guard::PlanWaits, true))
    {
        return waiting_plan(facts, pending);
    }
    if guard(
        Guard::Failure,
        matches!(last.outcome, Outcome::Failed | Outcome::Lost),
    ) {
        return after_failure(facts, last);
    }
    if facts.history.outputs_gone {
        return start(facts, RunAction::Plan, Trigger::Repair, 1);
    }
    if guard(Guard::Requested, facts.request.is_some()) {
        return start(facts, RunAction::Plan, Trigger::Request, 1);
    }
    let due = facts.due(facts.history.last_success.unwrap_or(last.finished));
    if guard(Guard::NotDue, facts.now < due) {
        return Step::Rest(Rest::Steady(due));
    }
    start(facts, RunAction::Plan, Trigger::Interval, 1)
}

/// Until when a run waits that nothing but changed inputs causes.
fn paused(facts: &Facts, last: &RunFact, inputs: &str) -> Option<Timestamp> {
    let SourceFact::Found { digest, .. } = &facts.source else {
        return None;
    };
    let edited = last.generation != facts.generation || last.destroy != facts.policy.destroy;
    let by_inputs = last.inputs != inputs && !edited && last.source == *digest && facts.request.is_none();
    let until = facts.history.input_runs.filter(|_| by_inputs)?.until();
    guard(Guard::InputPause, facts.now < until).then_some(until)
}

/// A stored plan with changes waits.
fn waiting_plan(facts: &Facts, pending: &Pending) -> Step {
    let due = facts.due(pending.planned);
    let disabled = guard(Guard::DisabledWithholds, facts.approval == Approval::Disabled);
    if guard(Guard::PlanOnlyWithholds, facts.policy.plan_only) || disabled {
        // A disabled stack only reports drift, which may go away by itself: look again at the interval.
        let again = (disabled || pending.drift).then_some(due);
        return match looks_again(facts, again) {
            Some(trigger) => start(facts, RunAction::Plan, trigger, 1),
            None => Step::Rest(Rest::ShowPlan { again }),
        };
    }
    // The guard rails take the word from `auto`, not from a person who names the plan.
    let held = facts.approval == Approval::Auto && guard(Guard::Held, pending.held);
    let look = looks_again(facts, pending.drift.then_some(due));
    match (&facts.approval, look) {
        (Approval::Auto | Approval::Given { .. }, _) if !held => apply(facts, pending),
        (Approval::Auto | Approval::None | Approval::Replan, Some(trigger)) => {
            start(facts, RunAction::Plan, trigger, 1)
        }
        (Approval::Replan, _) if is_before_this_spec(facts) => {
            start(facts, RunAction::Plan, Trigger::Spec, 1)
        }
        _ if held || guard(Guard::Unapproved, true) => Step::Rest(Rest::AwaitApproval),
        _ => apply(facts, pending),
    }
}

/// Why a plan is made anew in place of the one that waits: somebody asks for it; or it was drift, which may have gone by itself,
/// and it is time to look.
fn looks_again(facts: &Facts, due: Option<Timestamp>) -> Option<Trigger> {
    if facts.request.is_some() {
        return Some(Trigger::Request);
    }
    due.filter(|due| facts.now >= *due).map(|_| Trigger::Interval)
}

/// The apply of the plan that waits.
fn apply(facts: &Facts, pending: &Pending) -> Step {
    let (trigger, approved_by) = match &facts.approval {
        Approval::Given { by } => (Trigger::Approval, Some(by.clone())),
        _ if pending.drift => (Trigger::Drift, Some(nobody(facts))),
        _ => (Trigger::Approval, Some(nobody(facts))),
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

/// The newest run knew an older spec: what the spec asks for has not been done yet.
fn is_before_this_spec(facts: &Facts) -> bool {
    facts
        .history
        .last
        .as_ref()
        .is_some_and(|last| last.generation != facts.generation)
}

/// The last run failed or was lost: the same again after a while, or not at all.
fn after_failure(facts: &Facts, last: &RunFact) -> Step {
    if last.generation != facts.generation {
        return again(facts, Trigger::Spec, 1);
    }
    if facts.request.is_some() {
        return again(facts, Trigger::Request, 1);
    }
    if last.stale && !guard(Guard::StaleLimit, last.attempt > STALE_AT_ONCE) {
        // The state moved on under an approved plan: a plan with the same effect is still approved, so make it now.
        return again(facts, Trigger::Retry, last.attempt.saturating_add(1));
    }
    if guard(Guard::RetryLimit, facts.retry.is_exhausted(last.attempt)) {
        return Step::Rest(Rest::RetryLimit);
    }
    let at = after(last.finished, facts.retry.delay(last.attempt));
    if guard(Guard::RetryDelay, facts.now < at) {
        return Step::Rest(Rest::RetryAt(at));
    }
    again(facts, Trigger::Retry, last.attempt.saturating_add(1))
}

/// What failed once more. A check stays a check: what it finds is drift, with what is ignored of it, and is told before it
/// is undone.
fn again(facts: &Facts, trigger: Trigger, attempt: u32) -> Step {
    let action = if facts.history.checked {
        RunAction::Plan
    } else {
        fresh_action(facts)
    };
    start(facts, action, trigger, attempt)
}

/// The object is being deleted.
fn deletion(facts: &Facts) -> Step {
    if guard(Guard::Active, facts.history.active.is_some()) {
        return Step::Follow;
    }
    if guard(Guard::DeletionSuspended, facts.suspended) {
        return Step::Rest(Rest::DeletionSuspended);
    }
    if let Some(rest) = order::keeps(facts) {
        return Step::Rest(rest);
    }
    if !guard(Guard::DestroyFirst, facts.policy.destroy_on_deletion) {
        return Step::Release;
    }
    if let Some(first) = aside::before_destroy(facts).filter(|_| usable(facts).is_ok()) {
        return first;
    }
    let last = facts
        .history
        .last
        .as_ref()
        .filter(|run| !guard(Guard::OtherRun, run.trigger != Trigger::Deletion));
    if let Some(run) = last {
        // One that ended well and left its plan was withheld: the object was suspended meanwhile.
        let withheld = guard(Guard::Withheld, facts.history.pending.is_some());
        if guard(Guard::Destroyed, run.outcome == Outcome::Succeeded && !withheld) {
            return Step::Release;
        }
        let at = after(run.finished, facts.retry.delay(run.attempt));
        if guard(Guard::DestroyDelay, facts.now < at) && facts.request.is_none() {
            return Step::Rest(Rest::RetryAt(at));
        }
    }
    if let Err(rest) = usable(facts) {
        return Step::Rest(rest);
    }
    let attempt = last.map_or(1, |run| run.attempt.saturating_add(1));
    Step::Start(NewRun {
        action: RunAction::PlanAndApply,
        trigger: Trigger::Deletion,
        destroy: true,
        plan: None,
        approved_by: Some("deletion".to_owned()),
        attempt,
    })
}

/// What stands for the approver where no person is asked.
fn nobody(facts: &Facts) -> String {
    let word = if facts.policy.forced { "force" } else { "auto" };
    word.to_owned()
}

/// A plan, and its apply in the same run where no person is asked.
fn fresh_action(facts: &Facts) -> RunAction {
    let asks = guard(Guard::NotAuto, facts.approval != Approval::Auto);
    if asks || guard(Guard::PlanOnlyPlans, facts.policy.plan_only) {
        RunAction::Plan
    } else {
        RunAction::PlanAndApply
    }
}

fn start(facts: &Facts, action: RunAction, trigger: Trigger, attempt: u32) -> Step {
    let approved_by = (action == RunAction::PlanAndApply).then(|| nobody(facts));
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

fn after(since: Timestamp, wait: SignedDuration) -> Timestamp {
    since.saturating_add(wait).unwrap_or(Timestamp::MAX)
}
