//! What a runner does, one observable step after the other, and how it dies.

use super::{
    Flaw, Sluice,
    objects::{id, terraform, terraform_run},
    world::{Effect, Place, Process, Reality, Run, Stack, Stage, Stored, World},
};
use sluice_api::run::{
    Action, Trigger,
    gate::{self, Gate, gate},
};
use sluice_api::terraform::approval::Made;

/// How a step of the CLI comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Luck {
    Good,
    /// It fails, and has changed nothing.
    Bad,
    /// It fails halfway.
    Halfway,
}

/// The next step of a process.
pub(super) fn step(model: &Sluice, world: &World, index: usize, luck: Luck) -> Option<World> {
    let mut next = world.clone();
    let process = world.processes[index];
    let Some(run) = world.run(process.run).copied() else {
        next.processes.remove(index); // its run is gone: it ends
        return Some(next);
    };
    if luck != Luck::Good && next.left.faults == 0 {
        return None;
    }
    let place = match (process.place, run.action) {
        (Place::Started, _) if luck == Luck::Good => claim(model, &mut next, &run),
        (Place::Claimed, Action::Apply) if luck == Luck::Good => Some(stands(model, &mut next, &run)),
        (Place::Claimed, _) if luck != Luck::Halfway => plan(&mut next, process, &run, luck),
        (Place::Planned, _) if luck == Luck::Good => Some(admit(model, &mut next, &run)),
        (Place::Admitted, _) if luck == Luck::Good => {
            let run = next.run_mut(run.number)?;
            run.stage = Stage::Applying;
            run.attempted = true;
            Some(Place::Recorded)
        }
        (Place::Recorded, _) => apply(&mut next, &run, luck),
        (Place::Applied, _) if luck == Luck::Good => finish(&mut next, &run, Stage::Succeeded),
        (Place::Failed, _) if luck == Luck::Good => finish(&mut next, &run, Stage::Failed),
        (Place::Stale, _) if luck == Luck::Good => finish(&mut next, &run, Stage::Stale),
        (Place::Outdated, _) if luck == Luck::Good => finish(&mut next, &run, Stage::Superseded),
        _ => return None,
    };
    if luck != Luck::Good {
        next.left.faults -= 1;
        next.past.reasons += 2;
    }
    match place {
        Some(place) => next.processes[index].place = place,
        None => drop(next.processes.remove(index)),
    }
    next.processes.sort_unstable();
    Some(next)
}

/// A runner is killed: nobody hears of it.
pub(super) fn kill(world: &World, index: usize) -> Option<World> {
    let mut next = world.clone();
    next.left.faults = next.left.faults.checked_sub(1)?;
    next.past.reasons += 2;
    next.processes.remove(index);
    Some(next)
}

/// Compare-and-swap on the status: the run is nobody's yet.
fn claim(model: &Sluice, world: &mut World, run: &Run) -> Option<Place> {
    if run.stage != Stage::Pending && model.flaw != Some(Flaw::BlindClaim) {
        return None;
    }
    world.run_mut(run.number)?.stage = Stage::Claimed;
    Some(Place::Claimed)
}

fn plan(world: &mut World, process: Process, run: &Run, luck: Luck) -> Option<Place> {
    if luck == Luck::Bad {
        return Some(Place::Failed);
    }
    let (from, serial) = (world.reality, world.serial);
    let wanted = Reality {
        made: (!run.destroy).then_some(run.inputs),
        drifted: false,
    };
    let changes = from != wanted;
    let effect = Effect {
        inputs: run.inputs,
        from,
        destroy: run.destroy,
        last_apply: process.last_apply,
    };
    let object = world.run_mut(run.number)?;
    object.stage = Stage::Planned;
    object.has_changes = Some(changes);
    object.stored = changes.then_some(Stored { effect, serial });
    Some(Place::Planned)
}

/// The gate, asked of the object as it is now.
fn admit(model: &Sluice, world: &mut World, run: &Run) -> Place {
    let Some(stored) = run.stored else {
        return Place::Applied; // nothing to do
    };
    let object = world.stack.as_ref().map(terraform);
    let planned = id(stored.effect);
    let asked = gate(
        &terraform_run(run).spec,
        object.as_ref(),
        Made {
            id: &planned,
            effects: None,
            entries: &[],
        },
    );
    let opens = model.flaw == Some(Flaw::NoGate) || matches!(asked, Gate::Apply);
    if !opens || run.action == Action::Plan {
        return Place::Applied;
    }
    if !world.stack.as_ref().is_some_and(|stack| agrees(stack, run)) {
        world.wrong("never an apply without an approval of that effect or auto");
    }
    Place::Admitted
}

/// The approval of a stored plan, asked of the object as it is now.
fn stands(model: &Sluice, world: &mut World, run: &Run) -> Place {
    let object = world.stack.as_ref().map(terraform);
    let from = run.plan.as_ref().and_then(|(_, from)| world.run(*from));
    let from = from.map(terraform_run).and_then(|run| run.status);
    let stands = gate::stands(&terraform_run(run).spec, object.as_ref(), from.as_ref()).is_ok();
    if !stands && model.flaw != Some(Flaw::NoStanding) {
        return Place::Outdated;
    }
    if !world.stack.is_some_and(|stack| !stack.deleting && !stack.suspend) {
        world.wrong("nothing is applied for an object that is suspended or being deleted");
    }
    Place::Admitted
}

/// Whether the object lets a run apply what nobody saw, said again in other words than the gate's.
fn agrees(stack: &Stack, run: &Run) -> bool {
    if run.trigger == Trigger::Deletion {
        return stack.deleting && stack.destroy_on_deletion && !stack.suspend && run.destroy;
    }
    let auto = stack.approve == super::world::Approve::Auto && !stack.plan_only;
    auto && !stack.deleting && !stack.suspend && stack.generation == run.generation
}

/// The CLI applies the stored plan, unless the state has moved on.
fn apply(world: &mut World, run: &Run, luck: Luck) -> Option<Place> {
    let stored = match run.plan {
        Some((_, from)) => world.run(from).and_then(|run| run.stored),
        None => run.stored,
    };
    let Some(stored) = stored else {
        return Some(Place::Failed);
    };
    if stored.serial != world.serial {
        return (luck == Luck::Good).then_some(Place::Stale);
    }
    if luck == Luck::Bad {
        return Some(Place::Failed);
    }
    judge(world, run, stored.effect);
    world.serial += 1;
    world.past.applied.push(stored.effect);
    if luck == Luck::Halfway {
        world.reality.drifted = true;
        return Some(Place::Failed);
    }
    world.reality = Reality {
        made: (!stored.effect.destroy).then_some(stored.effect.inputs),
        drifted: false,
    };
    Some(Place::Applied)
}

/// What is applied had leave, and for the first time.
fn judge(world: &mut World, run: &Run, effect: Effect) {
    if world.past.applied.contains(&effect) {
        world.wrong("never an apply twice by one approval");
    }
    if run.action == Action::Apply {
        let approved = world.past.approved.contains(&effect);
        let auto = world.past.auto.contains(&run.generation);
        if run.plan.map(|(named, _)| named) != Some(effect) || !approved && !auto {
            world.wrong("never an apply without an approval of that effect or auto");
        }
        if effect.inputs != run.inputs {
            world.wrong("what is applied was planned with the inputs of the run");
        }
    }
}

fn finish(world: &mut World, run: &Run, stage: Stage) -> Option<Place> {
    if world.run(run.number).is_some_and(|run| run.stage.is_final()) {
        world.wrong("a run that works is never declared ended");
    }
    world.end(run.number, stage);
    None
}
