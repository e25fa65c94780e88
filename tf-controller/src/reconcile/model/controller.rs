//! The actions of a controller: a reconciliation with the controller's own decision, then one write after the other.
//! Others may act in between.

use super::{
    Flaw, Sluice,
    objects::{digest, facts},
    state::{Effect, Inputs, Intent, Process, ProcessStage, Run, Stack, Stage, SystemState},
};
use crate::decide::{
    Facts, Idle, MutationPoint, NewRun, Progress, Step, Upkeep, decide, disabled_point, holds, upkeep,
};
use sluice_runtime::watch::Requeue;
use std::{cell::RefCell, collections::HashMap};

/// Returns the number in a run's name.
fn number(name: &str) -> u8 {
    name.rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// The result of a reconciliation with this cached stack, as far as it depends on the API alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decision {
    intent: Intent,
    /// It supervises the active run.
    follows: bool,
    /// It waits for a time but is not requeued.
    pub(super) never_requeued: bool,
    pub(super) wait: Wait,
}

/// What a reconciliation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Retry,
    Limit,
    Check,
    Other,
}

type Seen = (Stack, Vec<Run>, u8, u8, bool, Option<MutationPoint>);

thread_local! {
    /// Cached, since most states differ elsewhere.
    static DECISIONS: RefCell<HashMap<Seen, Decision>> = RefCell::default();
}

/// Returns the decision of a reconciliation with this cached stack.
pub(super) fn decision(state: &SystemState, stack: &Stack) -> Decision {
    let seen = (
        *stack,
        state.runs.clone(),
        state.code,
        state.revision,
        state.timers_expired,
        disabled_point(),
    );
    let known = DECISIONS.with_borrow(|known| known.get(&seen).copied());
    known.unwrap_or_else(|| {
        let decision = decide_now(state, stack);
        DECISIONS.with_borrow_mut(|known| known.insert(seen, decision));
        decision
    })
}

fn decide_now(state: &SystemState, stack: &Stack) -> Decision {
    let facts = facts(state, stack);
    let step = decide(&facts, &[]);
    let last_apply = facts.history.last_started_apply.as_deref().map_or(0, number);
    let mut decision = Decision {
        intent: Intent::Nothing,
        follows: false,
        never_requeued: false,
        wait: Wait::Other,
    };
    match &step {
        Step::Start(new) => {
            let run = new_run(state, stack, &facts, new);
            decision.intent = Intent::Create { run, last_apply };
        }
        Step::Follow => {
            decision.follows = true;
            decision.intent = inspect_active(state, stack, &facts, last_apply);
        }
        Step::Release => decision.intent = Intent::Release,
        Step::Idle(rest) => {
            decision.never_requeued = is_never_requeued(rest, &facts);
            decision.wait = match rest {
                Idle::RetryAt(_) => Wait::Retry,
                Idle::RetryLimit => Wait::Limit,
                Idle::InSync(_) => Wait::Check,
                _ => Wait::Other,
            };
            if stack.request > stack.handled {
                decision.intent = Intent::Handle { token: stack.request };
            }
        }
        Step::WaitForSlot | Step::CreateFailed(_) => {}
    }
    decision
}

/// Reconciles up to the first write.
pub(super) fn reconcile(model: &Sluice, state: &SystemState, controller: usize) -> Option<SystemState> {
    let decision = decision(state, &state.controllers[controller].cache?);
    let mut intent = decision.intent;
    if let Intent::Inspect { seen, .. } = intent
        && decision.follows
        && holds(MutationPoint::ProcessAlive, state.is_alive(seen.number))
        && model.flaw != Some(Flaw::LivenessBeforeRead)
    {
        intent = Intent::Nothing; // a run with a live runner needs nothing
    }
    if model.flaw == Some(Flaw::LivenessBeforeRead)
        && matches!(intent, Intent::Inspect { seen, .. } if state.is_alive(seen.number))
    {
        intent = Intent::Nothing;
    }
    if intent == Intent::Nothing && !decision.never_requeued {
        return None;
    }
    let mut next = state.clone();
    next.controllers[controller].intent = intent;
    if matches!(intent, Intent::Create { run, .. } if state.run(run.number).is_some()) {
        next.violation("a new run has a new name");
    }
    if decision.never_requeued {
        next.violation("a stack that waits for a time is requeued");
    }
    Some(next)
}

/// Returns whether the passing of time would start something, but no requeue is set.
fn is_never_requeued(rest: &Idle, facts: &Facts) -> bool {
    let later = Facts {
        now: jiff::Timestamp::MAX,
        ..facts.clone()
    };
    let starts = matches!(decide(&later, &[]), Step::Start(_) | Step::Release);
    let sleeps = matches!(
        crate::reconcile::execute::next_after(rest, facts),
        Requeue::OnChange
    );
    starts && sleeps
}

fn new_run(state: &SystemState, stack: &Stack, facts: &Facts, new: &NewRun) -> Run {
    let small = |n: u64| u8::try_from(n).unwrap_or(u8::MAX);
    Run {
        number: small(facts.history.next_sequence),
        action: new.action,
        trigger: new.trigger,
        destroy: new.destroy,
        generation: stack.generation,
        inputs: state.inputs(stack),
        plan: new.plan.as_ref().and_then(|(_, from)| {
            let effect = state.run(number(from))?.stored?.effect;
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

/// Returns the active run as it is now.
fn inspect_active(state: &SystemState, stack: &Stack, facts: &Facts, last_apply: u8) -> Intent {
    let active = facts.history.active.as_ref().map_or(0, |run| number(&run.name));
    let known = matches!(facts.inputs, crate::decide::Inputs::Known(_));
    match state.run(active) {
        None => Intent::Nothing,
        Some(seen) => Intent::Inspect {
            seen: *seen,
            now: known.then(|| state.inputs(stack)),
            last_apply,
        },
    }
}

/// Makes the next write.
pub(super) fn write(model: &Sluice, state: &SystemState, controller: usize) -> Option<SystemState> {
    let mut next = state.clone();
    let stack = state.controllers[controller].cache;
    next.controllers[controller].intent = match state.controllers[controller].intent {
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
            let intent = inspect(model, state, seen, now, last_apply);
            let launches = matches!(intent, Intent::Launch { .. });
            if launches && seen.stage != Stage::Pending {
                next.violation("a run that somebody has claimed is not started again");
            }
            if launches && now != Some(seen.inputs) {
                next.violation("a run whose inputs changed before it began does not begin");
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

/// Creates the run, or adopts the one of that name.
fn create(state: &mut SystemState, run: Run, last_apply: u8) -> Intent {
    if state.stack.is_none() {
        return Intent::Nothing; // the API refuses, or the garbage collector takes it
    }
    match state.run(run.number) {
        None => state.runs.push(run),
        Some(there) if there.stage.is_final() => return Intent::Nothing,
        Some(there) if there.inputs != run.inputs => return Intent::Nothing,
        Some(_) => {}
    }
    Intent::Launch {
        run: run.number,
        last_apply,
    }
}

/// Stores the bundle and starts the process. An existing bundle is kept.
fn launch(state: &mut SystemState, run: u8, last_apply: u8) {
    if state.run(run).is_none() {
        return;
    }
    let process = Process {
        run,
        last_apply,
        stage: ProcessStage::Started,
    };
    if !state.is_alive(run) {
        state.processes.push(process);
        state.processes.sort_unstable();
    }
}

fn inspect(model: &Sluice, state: &SystemState, seen: Run, now: Option<Inputs>, last_apply: u8) -> Intent {
    let early = model.flaw == Some(Flaw::LivenessBeforeRead);
    let fresh = if early {
        state.run(seen.number).copied()
    } else {
        Some(seen)
    };
    let Some(fresh) = fresh else {
        return Intent::Nothing;
    };
    let (made_of, now) = (digest(fresh.inputs), now.map(digest));
    let step = upkeep(Progress {
        alive: !early && state.is_alive(seen.number),
        ended: fresh.stage.is_final(),
        claimed: fresh.stage != Stage::Pending,
        made_of: &made_of,
        now: now.as_deref(),
    });
    let end = |stage| Intent::End { seen: fresh, stage };
    match step {
        Upkeep::Leave => Intent::Nothing,
        Upkeep::MarkLost => end(Stage::Lost),
        Upkeep::Launch => Intent::Launch {
            run: seen.number,
            last_apply,
        },
        Upkeep::EndOutdated | Upkeep::EndWithoutInputs => end(Stage::Superseded),
    }
}

/// Removes the finalizer, and with it everything that the stack owns.
fn release(state: &mut SystemState, seen: Option<Stack>) {
    let Some(stack) = state.stack else { return };
    if seen.is_some_and(|seen| seen.deleting) && stack.deleting {
        let applies = [ProcessStage::Admitted, ProcessStage::Recorded];
        if state.processes.iter().any(|p| applies.contains(&p.stage)) {
            state.violation("a stack is not let go beside an apply");
        }
        if stack.destroy_on_deletion
            && (state.infrastructure.applied_inputs.is_some() || state.infrastructure.drifted)
        {
            state.violation("a stack that destroys on deletion is destroyed before it is let go");
        }
        state.stack = None;
        state.runs.clear();
    } else if !stack.deleting {
        state.violation("only a deleted stack is let go");
    }
}

/// Returns the effects of all plans in the runs.
pub(super) fn shown(state: &SystemState) -> Vec<Effect> {
    let mut effects: Vec<_> = state
        .runs
        .iter()
        .filter_map(|run| run.stored.map(|stored| stored.effect))
        .collect();
    effects.sort_unstable();
    effects.dedup();
    effects
}
