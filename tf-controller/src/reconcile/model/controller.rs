//! The actions of a controller: a reconciliation with the controller's own decision, then one write after the other.
//! Others may act in between.

use std::cell::RefCell;
use std::collections::HashMap;

use sluice_runtime::watch::Requeue;

use super::objects::{digest, facts};
use super::state::{Effect, Inputs, Intent, Process, ProcessStage, Run, Stack, Stage, SystemState};
use super::{Flaw, Sluice};
use crate::decide::{Facts, Idle, MutationPoint, NewRun, Step, decide, disabled_point, holds};
use crate::reconcile::supervision::{RunState, RunnerState, SpecState, Supervision, decide_supervision};

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

type DecisionKey = (Stack, Vec<Run>, u8, u8, bool, Option<MutationPoint>);

thread_local! {
    /// Cached, since most states differ elsewhere.
    static DECISIONS: RefCell<HashMap<DecisionKey, Decision>> = RefCell::default();
}

/// Returns the decision of a reconciliation with this cached stack.
pub(super) fn decision(state: &SystemState, stack: &Stack) -> Decision {
    let key = (
        *stack,
        state.runs.clone(),
        state.code,
        state.revision,
        state.timers_expired,
        disabled_point(),
    );
    let cached = DECISIONS.with_borrow(|cached| cached.get(&key).copied());
    cached.unwrap_or_else(|| {
        let decision = decide_now(state, stack);
        DECISIONS.with_borrow_mut(|cached| cached.insert(key, decision));
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
        Step::Idle(idle) => {
            decision.never_requeued = is_never_requeued(idle, &facts);
            decision.wait = match idle {
                Idle::RetryAt(_) => Wait::Retry,
                Idle::RetryLimit => Wait::Limit,
                Idle::InSync(_) => Wait::Check,
                _ => Wait::Other,
            };
            if stack.request > stack.handled {
                decision.intent = Intent::Handle { token: stack.request };
            }
        }
        Step::WaitForSlot(_) | Step::CreateFailed(_) => {}
    }
    decision
}

/// Reconciles up to the first write.
pub(super) fn reconcile(model: &Sluice, state: &SystemState, controller: usize) -> Option<SystemState> {
    let decision = decision(state, &state.controllers[controller].cache?);
    let mut intent = decision.intent;
    if let Intent::Inspect { observed, .. } = intent
        && decision.follows
        && holds(MutationPoint::ProcessAlive, state.is_alive(observed.number))
        && model.flaw != Some(Flaw::LivenessBeforeRead)
    {
        intent = Intent::Nothing; // a run with a live runner needs nothing
    }
    if model.flaw == Some(Flaw::LivenessBeforeRead)
        && matches!(intent, Intent::Inspect { observed, .. } if state.is_alive(observed.number))
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
fn is_never_requeued(idle: &Idle, facts: &Facts) -> bool {
    let later = Facts {
        now: jiff::Timestamp::MAX,
        ..facts.clone()
    };
    let starts = matches!(decide(&later, &[]), Step::Start(_) | Step::Release);
    let is_unscheduled = matches!(
        crate::reconcile::execute::next_after(idle, facts),
        Requeue::OnChange
    );
    starts && is_unscheduled
}

fn new_run(state: &SystemState, stack: &Stack, facts: &Facts, new: &NewRun) -> Run {
    let to_u8 = |n: u64| u8::try_from(n).unwrap_or(u8::MAX);
    Run {
        number: to_u8(facts.history.next_sequence),
        action: new.action,
        trigger: new.trigger,
        destroy: new.destroy,
        generation: stack.generation,
        inputs: state.inputs(stack),
        plan: new.plan.as_ref().and_then(|(_, from)| {
            let effect = state.run(number(from))?.stored?.effect;
            Some((effect, number(from)))
        }),
        attempt: to_u8(new.attempt.into()),
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
    let has_inputs = matches!(facts.inputs, crate::decide::Inputs::Known(_));
    match state.run(active) {
        None => Intent::Nothing,
        Some(observed) => Intent::Inspect {
            observed: *observed,
            now: has_inputs.then(|| state.inputs(stack)),
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
            observed,
            now,
            last_apply,
        } => {
            let intent = inspect(model, state, observed, now, last_apply);
            let launches = matches!(intent, Intent::Launch { .. });
            if launches && observed.stage != Stage::Pending {
                next.violation("a claimed run is not started again");
            }
            if launches && now != Some(observed.inputs) {
                next.violation("a run whose inputs changed before its start does not start");
            }
            intent
        }
        Intent::End { observed, stage } => {
            // Compare-and-swap on the resource version.
            if next.run(observed.number) == Some(&observed) {
                next.end(observed.number, stage);
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
        return Intent::Nothing; // the API rejects it, or the garbage collector deletes it
    }
    match state.run(run.number) {
        None => state.runs.push(run),
        Some(existing) if existing.stage.is_final() => return Intent::Nothing,
        Some(existing) if existing.inputs != run.inputs => return Intent::Nothing,
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

fn inspect(
    model: &Sluice,
    state: &SystemState,
    observed: Run,
    now: Option<Inputs>,
    last_apply: u8,
) -> Intent {
    let is_stale = model.flaw == Some(Flaw::LivenessBeforeRead);
    let fresh = if is_stale {
        state.run(observed.number).copied()
    } else {
        Some(observed)
    };
    let Some(fresh) = fresh else {
        return Intent::Nothing;
    };
    let (created_for, current) = (digest(fresh.inputs), now.map(digest));
    let step = decide_supervision(RunState {
        runner: if !is_stale && state.is_alive(observed.number) {
            RunnerState::Alive
        } else {
            RunnerState::Gone
        },
        ended: fresh.stage.is_final(),
        claimed: fresh.stage != Stage::Pending,
        created_for: &created_for,
        current: current.as_deref(),
        spec: SpecState::Unchanged,
    });
    let end = |stage| Intent::End {
        observed: fresh,
        stage,
    };
    match step {
        // Only runners in pods wait or end with a proof.
        Supervision::Wait | Supervision::ReportPending | Supervision::MarkFailed => Intent::Nothing,
        Supervision::MarkLost => end(Stage::Lost),
        Supervision::Launch => Intent::Launch {
            run: observed.number,
            last_apply,
        },
        Supervision::EndOutdated | Supervision::EndWithoutInputs | Supervision::EndWithoutAccount => {
            end(Stage::Superseded)
        }
    }
}

/// Removes the finalizer, and with it everything that the stack owns.
fn release(state: &mut SystemState, observed: Option<Stack>) {
    let Some(stack) = state.stack else { return };
    if observed.is_some_and(|observed| observed.deleting) && stack.deleting {
        let applying = [ProcessStage::Admitted, ProcessStage::Recorded];
        if state.processes.iter().any(|p| applying.contains(&p.stage)) {
            state.violation("a stack is not released during an apply");
        }
        if stack.destroy_on_deletion
            && (state.infrastructure.applied_inputs.is_some() || state.infrastructure.drifted)
        {
            state.violation("a stack that destroys on deletion is destroyed before its release");
        }
        state.stack = None;
        state.runs.clear();
    } else if !stack.deleting {
        state.violation("only a deleted stack is released");
    }
}

/// Returns the effects of all plans in the runs.
pub(super) fn stored_effects(state: &SystemState) -> Vec<Effect> {
    let mut effects: Vec<_> = state
        .runs
        .iter()
        .filter_map(|run| run.stored.map(|stored| stored.effect))
        .collect();
    effects.sort_unstable();
    effects.dedup();
    effects
}
