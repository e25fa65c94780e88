//! The actions of a runner, one observable step after the other, and its failures.

use sluice_api::run::gate::{self, Gate, check_new_plan};
use sluice_api::run::{Action, Trigger};
use sluice_api::terraform::approval::CandidatePlan;
use sluice_api::terraform::required_approvals::ApprovalEvidence;

use super::objects::{id, terraform, terraform_run};
use super::state::{Effect, Infrastructure, Process, ProcessStage, Run, Stack, Stage, Stored, SystemState};
use super::{Flaw, Sluice};

/// The result of a step of the CLI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum StepOutcome {
    Success,
    /// It fails without changes.
    Failure,
    /// It fails halfway.
    PartialFailure,
}

/// Takes the next step of a process.
pub(super) fn step(
    model: &Sluice,
    state: &SystemState,
    index: usize,
    outcome: StepOutcome,
) -> Option<SystemState> {
    let mut next = state.clone();
    let process = state.processes[index];
    let Some(run) = state.run(process.run).copied() else {
        next.processes.remove(index); // the run was deleted
        return Some(next);
    };
    if outcome != StepOutcome::Success && next.remaining.faults == 0 {
        return None;
    }
    let stage = match (process.stage, run.action) {
        (ProcessStage::Started, _) if outcome == StepOutcome::Success => claim(model, &mut next, &run),
        (ProcessStage::Claimed, Action::Apply) if outcome == StepOutcome::Success => {
            Some(check_approval(model, &mut next, &run))
        }
        (ProcessStage::Claimed, _) if outcome != StepOutcome::PartialFailure => {
            plan(&mut next, process, &run, outcome)
        }
        (ProcessStage::Planned, _) if outcome == StepOutcome::Success => Some(admit(model, &mut next, &run)),
        (ProcessStage::Admitted, _) if outcome == StepOutcome::Success => {
            let run = next.run_mut(run.number)?;
            run.stage = Stage::Applying;
            run.attempted = true;
            Some(ProcessStage::Recorded)
        }
        (ProcessStage::Recorded, _) => apply(&mut next, &run, outcome),
        (ProcessStage::Applied, _) if outcome == StepOutcome::Success => {
            finish(&mut next, &run, Stage::Succeeded)
        }
        (ProcessStage::Failed, _) if outcome == StepOutcome::Success => {
            finish(&mut next, &run, Stage::Failed)
        }
        (ProcessStage::Stale, _) if outcome == StepOutcome::Success => finish(&mut next, &run, Stage::Stale),
        (ProcessStage::Outdated, _) if outcome == StepOutcome::Success => {
            finish(&mut next, &run, Stage::Superseded)
        }
        _ => return None,
    };
    if outcome != StepOutcome::Success {
        next.remaining.faults -= 1;
        next.trace.reasons += 2;
    }
    match stage {
        Some(stage) => next.processes[index].stage = stage,
        None => drop(next.processes.remove(index)),
    }
    next.processes.sort_unstable();
    Some(next)
}

/// Kills a runner without a report.
pub(super) fn kill(state: &SystemState, index: usize) -> Option<SystemState> {
    let mut next = state.clone();
    next.remaining.faults = next.remaining.faults.checked_sub(1)?;
    next.trace.reasons += 2;
    next.processes.remove(index);
    Some(next)
}

/// Claims the run by compare-and-swap on its status.
fn claim(model: &Sluice, state: &mut SystemState, run: &Run) -> Option<ProcessStage> {
    if run.stage != Stage::Pending && model.flaw != Some(Flaw::BlindClaim) {
        return None;
    }
    state.run_mut(run.number)?.stage = Stage::Claimed;
    Some(ProcessStage::Claimed)
}

fn plan(state: &mut SystemState, process: Process, run: &Run, outcome: StepOutcome) -> Option<ProcessStage> {
    if outcome == StepOutcome::Failure {
        return Some(ProcessStage::Failed);
    }
    let (from, serial) = (state.infrastructure, state.serial);
    let desired = Infrastructure {
        applied_inputs: (!run.destroy).then_some(run.inputs),
        drifted: false,
    };
    let changes = from != desired;
    let effect = Effect {
        inputs: run.inputs,
        from,
        destroy: run.destroy,
        last_apply: process.last_apply,
    };
    let object = state.run_mut(run.number)?;
    object.stage = Stage::Planned;
    object.has_changes = Some(changes);
    object.stored = changes.then_some(Stored { effect, serial });
    Some(ProcessStage::Planned)
}

/// Checks the new plan against the current object.
fn admit(model: &Sluice, state: &mut SystemState, run: &Run) -> ProcessStage {
    let Some(stored) = run.stored else {
        return ProcessStage::Applied; // no changes
    };
    let object = state.stack.as_ref().map(terraform);
    let planned = id(stored.effect);
    let gate = check_new_plan(
        &terraform_run(run).spec,
        object.as_ref(),
        CandidatePlan {
            id: &planned,
            ..CandidatePlan::default()
        },
    );
    let is_open = model.flaw == Some(Flaw::NoGate) || matches!(gate, Gate::Apply);
    if !is_open || run.action == Action::Plan {
        return ProcessStage::Applied;
    }
    if !state.stack.as_ref().is_some_and(|stack| permits(stack, run)) {
        state.violation("never an apply without an approval of that effect or auto");
    }
    ProcessStage::Admitted
}

/// Checks the approval of a stored plan against the current object.
fn check_approval(model: &Sluice, state: &mut SystemState, run: &Run) -> ProcessStage {
    let object = state.stack.as_ref().map(terraform);
    let from = run.plan.as_ref().and_then(|(_, from)| state.run(*from));
    let from = from.map(terraform_run).and_then(|run| run.status);
    let checked = gate::check_stored_plan(
        &terraform_run(run).spec,
        object.as_ref(),
        from.as_ref(),
        ApprovalEvidence::default(),
    );
    let is_approved = checked.is_ok();
    if !is_approved && model.flaw != Some(Flaw::NoApprovalCheck) {
        return ProcessStage::Outdated;
    }
    if !state.stack.is_some_and(|stack| !stack.deleting && !stack.suspend) {
        state.violation("nothing is applied for an object that is suspended or being deleted");
    }
    ProcessStage::Admitted
}

/// Returns whether the object permits an automatic apply; written independently of the gate.
fn permits(stack: &Stack, run: &Run) -> bool {
    if run.trigger == Trigger::Deletion {
        return stack.deleting && stack.destroy_on_deletion && !stack.suspend && run.destroy;
    }
    let auto = stack.approve == super::state::Approve::Auto && !stack.plan_only;
    auto && !stack.deleting && !stack.suspend && stack.generation == run.generation
}

/// Applies the stored plan, unless the state has changed.
fn apply(state: &mut SystemState, run: &Run, outcome: StepOutcome) -> Option<ProcessStage> {
    let stored = match run.plan {
        Some((_, from)) => state.run(from).and_then(|run| run.stored),
        None => run.stored,
    };
    let Some(stored) = stored else {
        return Some(ProcessStage::Failed);
    };
    if stored.serial != state.serial {
        return (outcome == StepOutcome::Success).then_some(ProcessStage::Stale);
    }
    if outcome == StepOutcome::Failure {
        return Some(ProcessStage::Failed);
    }
    check_apply(state, run, stored.effect);
    state.serial += 1;
    state.trace.applied.push(stored.effect);
    if outcome == StepOutcome::PartialFailure {
        state.infrastructure.drifted = true;
        return Some(ProcessStage::Failed);
    }
    state.infrastructure = Infrastructure {
        applied_inputs: (!stored.effect.destroy).then_some(stored.effect.inputs),
        drifted: false,
    };
    Some(ProcessStage::Applied)
}

/// Checks that the apply is approved and not repeated.
fn check_apply(state: &mut SystemState, run: &Run, effect: Effect) {
    if state.trace.applied.contains(&effect) {
        state.violation("never an apply twice by one approval");
    }
    if run.action == Action::Apply {
        let approved = state.trace.approved.contains(&effect);
        let auto = state.trace.auto.contains(&run.generation);
        if run.plan.map(|(named, _)| named) != Some(effect) || !approved && !auto {
            state.violation("never an apply without an approval of that effect or auto");
        }
        if effect.inputs != run.inputs {
            state.violation("what is applied was planned with the inputs of the run");
        }
    }
}

fn finish(state: &mut SystemState, run: &Run, stage: Stage) -> Option<ProcessStage> {
    if state.run(run.number).is_some_and(|run| run.stage.is_final()) {
        state.violation("a run with a live process is never declared ended");
    }
    state.end(run.number, stage);
    None
}
