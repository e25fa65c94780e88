//! The safety and convergence properties.

use sluice_api::run::Trigger;
use stateright::{Model as _, Property};

use super::controller::{self, Wait};
use super::state::{Approve, Intent, ProcessStage, Run, Stage, SystemState};
use super::{Sluice, Transition};

pub(super) fn all() -> Vec<Property<Sluice>> {
    vec![
        Property::always("no violation", |_, state: &SystemState| {
            state.trace.violation.is_none()
        }),
        Property::always("never two runs at once", |_, state: &SystemState| {
            let has_claimed = |stage: ProcessStage| stage > ProcessStage::Started;
            state.processes.iter().filter(|p| has_claimed(p.stage)).count() <= 1
                && state.runs.iter().filter(|run| !run.stage.is_final()).count() <= 1
        }),
        Property::always("a name is one run", |_, state: &SystemState| {
            let mut numbers: Vec<_> = state.runs.iter().map(|run| run.number).collect();
            numbers.sort_unstable();
            numbers.windows(2).all(|pair| pair[0] != pair[1])
        }),
        Property::always(
            "a run with a live process has not ended",
            |_, state: &SystemState| {
                state.processes.iter().all(|process| {
                    process.stage == ProcessStage::Started
                        || state.run(process.run).is_none_or(|run| !run.stage.is_final())
                })
            },
        ),
        Property::always("a run has the cause that it states", |_, state: &SystemState| {
            let mut last: Option<&Run> = None;
            state.runs.iter().all(|run| {
                let holds = last.is_none_or(|last| has_cause(run, last));
                if run.stage != Stage::Superseded {
                    last = Some(run);
                }
                holds
            })
        }),
        Property::always("never a run when nothing changed", |_, state: &SystemState| {
            state.runs.len() <= usize::from(state.trace.reasons)
        }),
        Property::always(
            "once faults stop, it reaches the desired state",
            |model, state: &SystemState| !is_quiet(model, state) || is_converged(state),
        ),
        Property::always("all states are within the boundary", |_, state: &SystemState| {
            state.runs.len() < super::MOST_RUNS
        }),
        Property::sometimes("something is applied", |_, state: &SystemState| {
            !state.trace.applied.is_empty()
        }),
    ]
}

/// Returns whether this run follows from that one, which came before it and counts.
fn has_cause(run: &Run, last: &Run) -> bool {
    let failed = matches!(last.stage, Stage::Failed | Stage::Stale | Stage::Lost);
    let changed = run.inputs != last.inputs || run.destroy != last.destroy;
    match run.trigger {
        Trigger::Retry => failed && !changed,
        Trigger::Revision | Trigger::Spec => failed || changed,
        _ => true,
    }
}

/// Returns whether no internal step is possible.
fn is_quiet(model: &Sluice, state: &SystemState) -> bool {
    let caught_up = state.controllers[0].cache == state.stack
        && state.controllers.iter().all(|c| c.intent == Intent::Nothing);
    if !caught_up || !state.processes.is_empty() {
        return false;
    }
    let mut transitions = Vec::new();
    model.actions(state, &mut transitions);
    !transitions
        .into_iter()
        .any(|transition| transition.is_internal(state) && model.next_state(state, transition).is_some())
}

/// Returns whether the desired state is reached, or a plan waits for a user.
pub(super) fn is_converged(state: &SystemState) -> bool {
    let Some(stack) = state.stack else {
        return state.processes.is_empty();
    };
    let idle = state.processes.is_empty() && state.runs.iter().all(|run| run.stage.is_final());
    if !idle || state.controllers.iter().any(|c| c.intent != Intent::Nothing) {
        return false;
    }
    if stack.suspend {
        return true;
    }
    if stack.deleting || stack.request > stack.handled {
        return false;
    }
    let desired = (!stack.destroy).then(|| state.inputs(&stack));
    let is_applied = state.infrastructure.applied_inputs == desired && !state.infrastructure.drifted;
    let counts = |stage| !matches!(stage, Stage::Superseded);
    let Some(last) = state.runs.iter().rev().find(|run| counts(run.stage)) else {
        return false;
    };
    let is_current = last.inputs == state.inputs(&stack) && last.destroy == stack.destroy;
    if controller::decision(state, &stack).wait == Wait::Limit {
        return last.stage != Stage::Succeeded && stack.retries.is_some();
    }
    let waiting = last
        .stored
        .filter(|_| is_current && last.stage == Stage::Succeeded && !last.attempted);
    match stack.approve {
        _ if stack.plan_only => waiting.is_some() || is_applied && is_current,
        Approve::Auto => is_applied,
        Approve::Nothing => waiting.is_some() || is_applied && is_current,
        Approve::Plan(effect) => {
            waiting.is_some_and(|plan| plan.effect != effect) || is_applied && is_current
        }
    }
}

impl Transition {
    /// Returns whether it needs no outside event and no fault.
    pub(super) fn is_internal(&self, state: &SystemState) -> bool {
        match self {
            Self::Deliver(_)
            | Self::Reconcile(_)
            | Self::Write(_)
            | Self::Run(_, super::runner::StepOutcome::Success) => true,
            Self::Tick => {
                super::environment::tick(state).is_some_and(|next| next.remaining == state.remaining)
            }
            Self::Run(..)
            | Self::Kill(_)
            | Self::Crash(_)
            | Self::User(_)
            | Self::Commit { .. }
            | Self::Drift => false,
        }
    }
}
