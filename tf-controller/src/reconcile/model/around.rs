//! What happens around the controllers: people, commits, changes behind our back, and the time.

use super::{
    controller::{self, Wait},
    world::{Approve, Effect, World},
};

/// What a person does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Deed {
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

impl Deed {
    /// Everything that a person can do now.
    pub(super) fn all(world: &World) -> Vec<Self> {
        let approvals = controller::shown(world).into_iter().map(Self::Approve);
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

pub(super) fn person(world: &World, deed: Deed) -> Option<World> {
    let mut next = world.clone();
    next.left.user = next.left.user.checked_sub(1)?;
    let stack = next.stack.as_mut()?;
    let before = *stack;
    match deed {
        Deed::Approve(effect) => stack.approve = Approve::Plan(effect),
        Deed::Auto => stack.approve = Approve::Auto,
        Deed::Manual => stack.approve = Approve::Nothing,
        Deed::Edit => stack.vars += 1,
        Deed::PlanOnly => stack.plan_only ^= true,
        Deed::Destroy => stack.destroy ^= true,
        Deed::Suspend => stack.suspend ^= true,
        Deed::Delete => stack.deleting = true,
        Deed::Request => stack.request += 1,
    }
    if *stack == before {
        return None;
    }
    if deed != Deed::Request {
        stack.generation += 1;
    }
    next.past.reasons += 2;
    remember(&mut next);
    Some(next)
}

/// What the spec now gives leave for.
pub(super) fn remember(world: &mut World) {
    let Some(stack) = world.stack else { return };
    let past = &mut world.past;
    match stack.approve {
        Approve::Plan(effect) if !past.approved.contains(&effect) => past.approved.push(effect),
        Approve::Auto if !stack.plan_only && !past.auto.contains(&stack.generation) => {
            past.auto.push(stack.generation);
        }
        _ => {}
    }
}

/// A commit that the stack reads, or one that it does not.
pub(super) fn commit(world: &World, relevant: bool) -> Option<World> {
    let mut next = world.clone();
    next.revision += 1;
    if relevant {
        next.left.commits = next.left.commits.checked_sub(1)?;
        next.code += 1;
        next.past.reasons += 2;
    } else {
        next.left.others = next.left.others.checked_sub(1)?;
    }
    Some(next)
}

/// Somebody changes what is in place. The state's serial stays: the CLI does not know of it.
pub(super) fn drift(world: &World) -> Option<World> {
    let mut next = world.clone();
    next.left.drifts = next.left.drifts.checked_sub(1)?;
    if next.reality.drifted || next.reality.made.is_none() {
        return None;
    }
    next.reality.drifted = true;
    next.past.reasons += 2;
    Some(next)
}

/// Every wait is over. That costs nothing where something must still come of it.
pub(super) fn tick(world: &World) -> Option<World> {
    let stack = world.stack.filter(|_| !world.late)?;
    let mut next = world.clone();
    next.late = true;
    if !awaits(world, &stack) {
        next.left.ticks = next.left.ticks.checked_sub(1)?;
        next.past.reasons += 2;
    }
    Some(next)
}

/// Whether something must come of the time that passes.
fn awaits(world: &World, stack: &super::world::Stack) -> bool {
    // A watch catches up before a retry is due.
    let stale = world.controllers[0].cache != world.stack;
    match controller::decided(world, stack).wait {
        Wait::Retry => !stale,
        Wait::Check => world.reality.drifted,
        Wait::Limit | Wait::Other => false,
    }
}
