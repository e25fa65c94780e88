//! The environment of the controllers: users, commits, drift and time.

use super::controller::{self, Wait};
use super::state::{Approve, Effect, SystemState};

/// An action of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum UserAction {
    /// `approvePlan` names this plan.
    Approve(Effect),
    /// `approvePlan: auto`.
    Auto,
    /// `approvePlan: ""`.
    Manual,
    /// A variable changes.
    Edit,
    /// `planOnly` is switched.
    PlanOnly,
    /// `destroy` is switched.
    Destroy,
    /// `suspend` is switched.
    Suspend,
    Delete,
    /// `flux reconcile`.
    Request,
}

impl UserAction {
    /// Returns every possible action.
    pub(super) fn all(state: &SystemState) -> Vec<Self> {
        let approvals = controller::stored_effects(state).into_iter().map(Self::Approve);
        approvals
            .chain([
                Self::Auto,
                Self::Manual,
                Self::Edit,
                Self::PlanOnly,
                Self::Destroy,
                Self::Suspend,
                Self::Delete,
                Self::Request,
            ])
            .collect()
    }
}

pub(super) fn user(state: &SystemState, action: UserAction) -> Option<SystemState> {
    let mut next = state.clone();
    next.remaining.user = next.remaining.user.checked_sub(1)?;
    let stack = next.stack.as_mut()?;
    let before = *stack;
    match action {
        UserAction::Approve(effect) => stack.approve = Approve::Plan(effect),
        UserAction::Auto => stack.approve = Approve::Auto,
        UserAction::Manual => stack.approve = Approve::Nothing,
        UserAction::Edit => stack.vars += 1,
        UserAction::PlanOnly => stack.plan_only ^= true,
        UserAction::Destroy => stack.destroy ^= true,
        UserAction::Suspend => stack.suspend ^= true,
        UserAction::Delete => stack.deleting = true,
        UserAction::Request => stack.request += 1,
    }
    if *stack == before {
        return None;
    }
    if action != UserAction::Request {
        stack.generation += 1;
    }
    next.trace.reasons += 2;
    record_approval(&mut next);
    Some(next)
}

/// Records what the spec now approves.
pub(super) fn record_approval(state: &mut SystemState) {
    let Some(stack) = state.stack else { return };
    let trace = &mut state.trace;
    match stack.approve {
        Approve::Plan(effect) if !trace.approved.contains(&effect) => trace.approved.push(effect),
        Approve::Auto if !stack.plan_only && !trace.auto.contains(&stack.generation) => {
            trace.auto.push(stack.generation);
        }
        _ => {}
    }
}

/// A commit that touches the stack's inputs, or one that does not.
pub(super) fn commit(state: &SystemState, relevant: bool) -> Option<SystemState> {
    let mut next = state.clone();
    next.revision += 1;
    if relevant {
        next.remaining.commits = next.remaining.commits.checked_sub(1)?;
        next.code += 1;
        next.trace.reasons += 2;
    } else {
        next.remaining.others = next.remaining.others.checked_sub(1)?;
    }
    Some(next)
}

/// A change of the resources. The state's serial stays, since the CLI did not make it.
pub(super) fn drift(state: &SystemState) -> Option<SystemState> {
    let mut next = state.clone();
    next.remaining.drifts = next.remaining.drifts.checked_sub(1)?;
    if next.infrastructure.drifted || next.infrastructure.applied_inputs.is_none() {
        return None;
    }
    next.infrastructure.drifted = true;
    next.trace.reasons += 2;
    Some(next)
}

/// All timers expire. This costs no budget if something must follow.
pub(super) fn tick(state: &SystemState) -> Option<SystemState> {
    let stack = state.stack.filter(|_| !state.timers_expired)?;
    let mut next = state.clone();
    next.timers_expired = true;
    if !has_due_timer(state, &stack) {
        next.remaining.ticks = next.remaining.ticks.checked_sub(1)?;
        next.trace.reasons += 2;
    }
    Some(next)
}

/// Returns whether something must follow when timers expire.
fn has_due_timer(state: &SystemState, stack: &super::state::Stack) -> bool {
    // A watch catches up before a retry is due.
    let is_outdated = state.controllers[0].cache != state.stack;
    match controller::decision(state, stack).wait {
        Wait::Retry => !is_outdated,
        Wait::Check => state.infrastructure.drifted,
        Wait::Limit | Wait::Other => false,
    }
}
