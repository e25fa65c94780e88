//! What must never be, and what must come to be.

use super::{
    Sluice, Turn,
    controller::{self, Wait},
    world::{Approve, Intent, Place, Run, Stage, World},
};
use sluice_api::run::Trigger;
use stateright::{Model as _, Property};

pub(super) fn all() -> Vec<Property<Sluice>> {
    vec![
        Property::always("nothing wrong is done", |_, world: &World| {
            world.past.wrong.is_none()
        }),
        Property::always("never two runs at once", |_, world: &World| {
            let works = |place: Place| place > Place::Started;
            world.processes.iter().filter(|p| works(p.place)).count() <= 1
                && world.runs.iter().filter(|run| !run.stage.is_final()).count() <= 1
        }),
        Property::always("a name is one run", |_, world: &World| {
            let mut numbers: Vec<_> = world.runs.iter().map(|run| run.number).collect();
            numbers.sort_unstable();
            numbers.windows(2).all(|pair| pair[0] != pair[1])
        }),
        Property::always("a run that works has not ended", |_, world: &World| {
            world.processes.iter().all(|process| {
                process.place == Place::Started
                    || world.run(process.run).is_none_or(|run| !run.stage.is_final())
            })
        }),
        Property::always("a run has the cause that it says", |_, world: &World| {
            let mut last: Option<&Run> = None;
            world.runs.iter().all(|run| {
                let holds = last.is_none_or(|last| has_cause(run, last));
                if run.stage != Stage::Superseded {
                    last = Some(run);
                }
                holds
            })
        }),
        Property::always("never a run when nothing changed", |_, world: &World| {
            world.runs.len() <= usize::from(world.past.reasons)
        }),
        Property::always(
            "once faults stop, it becomes stable at the wanted state",
            |model, world: &World| !is_quiet(model, world) || is_wanted(world),
        ),
        Property::always("all of it lies within the boundary", |_, world: &World| {
            world.runs.len() < super::MOST_RUNS
        }),
        Property::sometimes("something is applied", |_, world: &World| {
            !world.past.applied.is_empty()
        }),
    ]
}

/// Whether this run follows from that one, which came before it and counts.
fn has_cause(run: &Run, last: &Run) -> bool {
    let failed = matches!(last.stage, Stage::Failed | Stage::Stale | Stage::Lost);
    let others = run.inputs != last.inputs || run.destroy != last.destroy;
    match run.trigger {
        Trigger::Retry => failed && !others,
        Trigger::Revision | Trigger::Spec => failed || others,
        _ => true,
    }
}

/// Nothing goes on by itself.
fn is_quiet(model: &Sluice, world: &World) -> bool {
    let caught_up = world.controllers[0].cache == world.stack
        && world.controllers.iter().all(|c| c.intent == Intent::Nothing);
    if !caught_up || !world.processes.is_empty() {
        return false;
    }
    let mut turns = Vec::new();
    model.actions(world, &mut turns);
    !turns
        .into_iter()
        .any(|turn| turn.goes_by_itself(world) && model.next_state(world, turn).is_some())
}

/// What the spec asks for is in place, or waits for the person whom the spec asks.
pub(super) fn is_wanted(world: &World) -> bool {
    let Some(stack) = world.stack else {
        return world.processes.is_empty();
    };
    let idle = world.processes.is_empty() && world.runs.iter().all(|run| run.stage.is_final());
    if !idle || world.controllers.iter().any(|c| c.intent != Intent::Nothing) {
        return false;
    }
    if stack.suspend {
        return true;
    }
    if stack.deleting || stack.request > stack.handled {
        return false;
    }
    let wanted = (!stack.destroy).then(|| world.inputs(&stack));
    let in_place = world.reality.made == wanted && !world.reality.drifted;
    let counts = |stage| !matches!(stage, Stage::Superseded);
    let Some(last) = world.runs.iter().rev().find(|run| counts(run.stage)) else {
        return false;
    };
    let of_now = last.inputs == world.inputs(&stack) && last.destroy == stack.destroy;
    if controller::decided(world, &stack).wait == Wait::Limit {
        return last.stage != Stage::Succeeded && stack.retries.is_some();
    }
    let waits = last
        .stored
        .filter(|_| of_now && last.stage == Stage::Succeeded && !last.attempted);
    match stack.approve {
        _ if stack.plan_only => waits.is_some() || in_place && of_now,
        Approve::Auto => in_place,
        Approve::Nothing => waits.is_some() || in_place && of_now,
        Approve::Plan(effect) => waits.is_some_and(|plan| plan.effect != effect) || in_place && of_now,
    }
}

impl Turn {
    /// Whether it needs nobody from outside, and no fault.
    pub(super) fn goes_by_itself(&self, world: &World) -> bool {
        match self {
            Self::Deliver(_) | Self::Look(_) | Self::Act(_) | Self::Run(_, super::runner::Luck::Good) => true,
            Self::Tick => super::around::tick(world).is_some_and(|next| next.left == world.left),
            Self::Run(..)
            | Self::Kill(_)
            | Self::Crash(_)
            | Self::Person(_)
            | Self::Commit { .. }
            | Self::Drift => false,
        }
    }
}
