//! What a controller does: a look, whose decision is the controller's own code, then one write after the other. Others may
//! act in between.

use super::{
    Flaw, Sluice,
    objects::{digest, facts},
    world::{Effect, Inputs, Intent, Place, Process, Run, Stack, Stage, World},
};
use crate::decide::{Facts, Guard, NewRun, Progress, Rest, Step, Upkeep, decide, guard, left_out, upkeep};
use sluice_runtime::watch::Next;
use std::{cell::RefCell, collections::HashMap};

/// The number in a run's name.
fn number(name: &str) -> u8 {
    name.rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// What a pass that sees the stack as this comes to, as far as it depends on the API alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    intent: Intent,
    /// It follows the run in progress.
    follows: bool,
    /// It waits for a time, and nobody wakes it then.
    pub(super) unwoken: bool,
    pub(super) wait: Wait,
}

/// What a pass waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Retry,
    Limit,
    Check,
    Other,
}

type Seen = (Stack, Vec<Run>, u8, u8, bool, Option<Guard>);

thread_local! {
    /// Most states differ elsewhere.
    static DECIDED: RefCell<HashMap<Seen, Decided>> = RefCell::default();
}

/// The decision of a pass that sees the stack as this.
pub(super) fn decided(world: &World, stack: &Stack) -> Decided {
    let seen = (
        *stack,
        world.runs.clone(),
        world.code,
        world.revision,
        world.late,
        left_out(),
    );
    let known = DECIDED.with_borrow(|known| known.get(&seen).copied());
    known.unwrap_or_else(|| {
        let decided = decide_now(world, stack);
        DECIDED.with_borrow_mut(|known| known.insert(seen, decided));
        decided
    })
}

fn decide_now(world: &World, stack: &Stack) -> Decided {
    let facts = facts(world, stack);
    let step = decide(&facts);
    let last_apply = facts.history.last_started_apply.as_deref().map_or(0, number);
    let mut decided = Decided {
        intent: Intent::Nothing,
        follows: false,
        unwoken: false,
        wait: Wait::Other,
    };
    match &step {
        Step::Start(new) => {
            let run = made(world, stack, &facts, new);
            decided.intent = Intent::Create { run, last_apply };
        }
        Step::Follow => {
            decided.follows = true;
            decided.intent = inspected(world, stack, &facts, last_apply);
        }
        Step::Release => decided.intent = Intent::Release,
        Step::Rest(rest) => {
            decided.unwoken = is_unwoken(rest, &facts);
            decided.wait = match rest {
                Rest::RetryAt(_) => Wait::Retry,
                Rest::RetryLimit => Wait::Limit,
                Rest::Steady(_) => Wait::Check,
                _ => Wait::Other,
            };
            if stack.request > stack.handled {
                decided.intent = Intent::Handle { token: stack.request };
            }
        }
        Step::Wait | Step::NotMade(_) => {}
    }
    decided
}

/// The pass up to its first write.
pub(super) fn look(model: &Sluice, world: &World, controller: usize) -> Option<World> {
    let decided = decided(world, &world.controllers[controller].cache?);
    let mut intent = decided.intent;
    if let Intent::Inspect { seen, .. } = intent
        && decided.follows
        && guard(Guard::Alive, world.is_alive(seen.number))
        && model.flaw != Some(Flaw::LivenessBeforeRead)
    {
        intent = Intent::Nothing; // a run that somebody carries out concerns no pass
    }
    if model.flaw == Some(Flaw::LivenessBeforeRead)
        && matches!(intent, Intent::Inspect { seen, .. } if world.is_alive(seen.number))
    {
        intent = Intent::Nothing;
    }
    if intent == Intent::Nothing && !decided.unwoken {
        return None;
    }
    let mut next = world.clone();
    next.controllers[controller].intent = intent;
    if matches!(intent, Intent::Create { run, .. } if world.run(run.number).is_some()) {
        next.wrong("a new run has a new name");
    }
    if decided.unwoken {
        next.wrong("who waits for a time is woken");
    }
    Some(next)
}

/// Who waits for the time is woken by it.
fn is_unwoken(rest: &Rest, facts: &Facts) -> bool {
    let later = Facts {
        now: jiff::Timestamp::MAX,
        ..facts.clone()
    };
    let starts = matches!(decide(&later), Step::Start(_) | Step::Release);
    let sleeps = matches!(
        crate::reconcile::carry_out::after_rest(rest, facts),
        Next::OnChange
    );
    starts && sleeps
}

fn made(world: &World, stack: &Stack, facts: &Facts, new: &NewRun) -> Run {
    let small = |n: u64| u8::try_from(n).unwrap_or(u8::MAX);
    Run {
        number: small(facts.history.next_sequence),
        action: new.action,
        trigger: new.trigger,
        destroy: new.destroy,
        generation: stack.generation,
        inputs: world.inputs(stack),
        plan: new.plan.as_ref().and_then(|(_, from)| {
            let effect = world.run(number(from))?.stored?.effect;
            Some((effect, number(from)))
        }),
        attempt: small(new.attempt.into()),
        request: if facts.request.is_some() { stack.request } else { 0 },
        stage: Stage::Pending,
        has_changes: None,
        stored: None,
        attempted: false,
        ended: 0,
    }
}

/// The run in progress, as it is now.
fn inspected(world: &World, stack: &Stack, facts: &Facts, last_apply: u8) -> Intent {
    let active = facts.history.active.as_ref().map_or(0, |run| number(&run.name));
    let known = matches!(facts.inputs, crate::decide::Inputs::Known(_));
    match world.run(active) {
        None => Intent::Nothing,
        Some(seen) => Intent::Inspect {
            seen: *seen,
            now: known.then(|| world.inputs(stack)),
            last_apply,
        },
    }
}

/// The next write.
pub(super) fn act(model: &Sluice, world: &World, controller: usize) -> Option<World> {
    let mut next = world.clone();
    let stack = world.controllers[controller].cache;
    next.controllers[controller].intent = match world.controllers[controller].intent {
        Intent::Nothing => return None,
        Intent::Create { run, last_apply } => create(&mut next, run, last_apply),
        Intent::Launch { run, last_apply } => {
            launch(&mut next, run, last_apply);
            Intent::Nothing
        }
        Intent::Inspect {
            seen,
            now,
            last_apply,
        } => {
            let intent = inspect(model, world, seen, now, last_apply);
            let launches = matches!(intent, Intent::Launch { .. });
            if launches && seen.stage != Stage::Pending {
                next.wrong("a run that somebody has claimed is not started again");
            }
            if launches && now != Some(seen.inputs) {
                next.wrong("a run whose inputs changed before it began does not begin");
            }
            intent
        }
        Intent::End { seen, stage } => {
            // Compare-and-swap on the resource version.
            if next.run(seen.number) == Some(&seen) {
                next.end(seen.number, stage);
            }
            Intent::Nothing
        }
        Intent::Handle { token } => {
            if let Some(stack) = &mut next.stack {
                stack.handled = stack.handled.max(token);
            }
            Intent::Nothing
        }
        Intent::Release => {
            release(&mut next, stack);
            Intent::Nothing
        }
    };
    Some(next)
}

/// A name that is taken is adopted.
fn create(world: &mut World, run: Run, last_apply: u8) -> Intent {
    if world.stack.is_none() {
        return Intent::Nothing; // the API refuses, or the garbage collector takes it
    }
    match world.run(run.number) {
        None => world.runs.push(run),
        Some(there) if there.stage.is_final() => return Intent::Nothing,
        Some(there) if there.inputs != run.inputs => return Intent::Nothing,
        Some(_) => {}
    }
    Intent::Launch {
        run: run.number,
        last_apply,
    }
}

/// Bundle and process. The bundle that is there already stands.
fn launch(world: &mut World, run: u8, last_apply: u8) {
    if world.run(run).is_none() {
        return;
    }
    let process = Process {
        run,
        last_apply,
        place: Place::Started,
    };
    if !world.is_alive(run) {
        world.processes.push(process);
        world.processes.sort_unstable();
    }
}

fn inspect(model: &Sluice, world: &World, seen: Run, now: Option<Inputs>, last_apply: u8) -> Intent {
    let early = model.flaw == Some(Flaw::LivenessBeforeRead);
    let fresh = if early {
        world.run(seen.number).copied()
    } else {
        Some(seen)
    };
    let Some(fresh) = fresh else {
        return Intent::Nothing;
    };
    let (made_of, now) = (digest(fresh.inputs), now.map(digest));
    let step = upkeep(Progress {
        alive: !early && world.is_alive(seen.number),
        ended: fresh.stage.is_final(),
        claimed: fresh.stage != Stage::Pending,
        made_of: &made_of,
        now: now.as_deref(),
    });
    let end = |stage| Intent::End { seen: fresh, stage };
    match step {
        Upkeep::Leave => Intent::Nothing,
        Upkeep::Lose => end(Stage::Lost),
        Upkeep::Launch => Intent::Launch {
            run: seen.number,
            last_apply,
        },
        Upkeep::Outdated | Upkeep::Unknown => end(Stage::Superseded),
    }
}

/// The finalizer goes, and everything that the stack owns with it.
fn release(world: &mut World, seen: Option<Stack>) {
    let Some(stack) = world.stack else { return };
    if seen.is_some_and(|seen| seen.deleting) && stack.deleting {
        let applies = [Place::Admitted, Place::Recorded];
        if world.processes.iter().any(|p| applies.contains(&p.place)) {
            world.wrong("a stack is not let go beside an apply");
        }
        if stack.destroy_on_deletion && (world.reality.made.is_some() || world.reality.drifted) {
            world.wrong("a stack that destroys on deletion is destroyed before it is let go");
        }
        world.stack = None;
        world.runs.clear();
    } else if !stack.deleting {
        world.wrong("only a deleted stack is let go");
    }
}

/// The effects of all plans that stand in the runs.
pub(super) fn shown(world: &World) -> Vec<Effect> {
    let mut effects: Vec<_> = world
        .runs
        .iter()
        .filter_map(|run| run.stored.map(|stored| stored.effect))
        .collect();
    effects.sort_unstable();
    effects.dedup();
    effects
}
