//! The history of a stack, computed from its runs. Pure; no state is stored between reconciliations.

use jiff::Timestamp;
use sluice_api::run::state::KnownState;
use sluice_api::run::{Phase, PlanApproval, TerraformRun, TerraformRunStatus};
use sluice_api::terraform::Reason;
use sluice_api::terraform::approval::CandidatePlan;
use sluice_tf_core::disruption::INTERRUPTION_LIMIT;

use super::approvals::evidence;
use super::end_reason::may_repeat;
use crate::decide::{
    History, InputRunStreak, MutationPoint, Outcome, Pending, PlannedEffect, RunAction, RunFact, Trigger,
    disruptions_in_row, holds,
};

/// Summarizes the runs in any order.
pub(crate) fn history(runs: &[TerraformRun]) -> History {
    summarize(&by_sequence(runs))
}

/// Summarizes runs, oldest first.
pub(crate) fn summarize(ordered: &[&TerraformRun]) -> History {
    let mut history = History {
        next_sequence: 1,
        ..History::default()
    };
    for run in ordered {
        if holds(MutationPoint::UniqueSequence, true) {
            history.next_sequence = history.next_sequence.max(sequence(run).saturating_add(1));
        }
        let phase = run.status.as_ref().map_or(Phase::Pending, |status| status.phase);
        if holds(MutationPoint::Superseded, phase == Phase::Superseded) {
            let status = run.status.as_ref();
            let is_interrupted = status.is_some_and(|status| status.reason == Reason::Interrupted);
            history.interruptions = interruptions_in_row(history.interruptions, is_interrupted);
            continue;
        }
        if let Some(status) = &run.status {
            history.memory.add(status);
        }
        let reads = run
            .status
            .as_ref()
            .and_then(|status| status.module_reads.as_ref());
        history.reads_artifact = reads.map_or(history.reads_artifact, |reads| reads.whole_artifact);
        let fact = run_fact(run, history.reads_artifact);
        if fact.outcome == Outcome::Active {
            history.active = Some(fact);
        } else {
            history.planned_effect = planned_effect(history.planned_effect.take(), run, &fact);
            add_ended_run(&mut history, run, fact);
        }
    }
    history
}

/// Returns the pending plan as the approval rules see it, with the approvals of its stack.
pub(crate) fn candidate_plan<'a>(
    pending: &'a Pending,
    runs: &'a [TerraformRun],
    approvals: &'a [PlanApproval],
) -> CandidatePlan<'a> {
    let status = find_run(runs, &pending.run).and_then(|run| run.status.as_ref());
    CandidatePlan {
        id: &pending.plan_id,
        effects: status.and_then(|status| status.effects.as_ref()),
        entries: status
            .map(|status| status.change_entries.as_slice())
            .unwrap_or_default(),
        state_mismatch: status.map_or("", |status| status.state_mismatch.as_str()),
        evidence: evidence(runs, &pending.run, approvals),
        rejection: pending.rejection.as_ref(),
    }
}

/// Returns when the newest run ended, if it was claimed for the apply of this plan under this generation, and refused it.
pub(crate) fn refused_apply(
    runs: &[TerraformRun],
    pending: &Pending,
    generation: Option<i64>,
) -> Option<Timestamp> {
    let run = by_sequence(runs).pop()?;
    let (plan, status) = (run.spec.plan.as_ref()?, run.status.as_ref()?);
    let is_interrupted = status.reason == Reason::Interrupted;
    let is_refused = status.phase == Phase::Superseded && status.claim.is_some() && !is_interrupted;
    let is_same = plan.id == pending.plan_id && Some(run.spec.terraform.generation) == generation;
    let ended = status.finished_at.as_ref().map(|time| time.0);
    ended.filter(|_| is_refused && is_same)
}

/// Returns the run of this name.
pub(crate) fn find_run<'a>(runs: &'a [TerraformRun], name: &str) -> Option<&'a TerraformRun> {
    runs.iter().find(|run| run.metadata.name.as_deref() == Some(name))
}

/// Returns the runs by their sequence, oldest first.
pub(crate) fn by_sequence(runs: &[TerraformRun]) -> Vec<&TerraformRun> {
    let mut ordered: Vec<_> = runs.iter().collect();
    ordered.sort_by_key(|run| sequence(run));
    ordered
}

/// Returns the number at the end of a run's name; 0 for a name without one.
pub(crate) fn sequence(run: &TerraformRun) -> u64 {
    let name = run.metadata.name.as_deref().unwrap_or_default();
    name.rsplit('-')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// Returns the effect of the newest stored plan after this run. A plan that is only made again waits since the first one with its
/// effect; a failure shows nothing else, another plan and an apply do.
fn planned_effect(
    before: Option<PlannedEffect>,
    run: &TerraformRun,
    fact: &RunFact,
) -> Option<PlannedEffect> {
    let status = run.status.as_ref()?;
    if status.attempted_apply && !fact.stale {
        return None;
    }
    if fact.outcome != Outcome::Succeeded || fact.action == RunAction::Unlock {
        return before;
    }
    let digest = &status.effect_digest;
    if status.plan_id.is_empty() || digest.is_empty() {
        return None;
    }
    let same = before.filter(|before| before.digest == *digest);
    same.or_else(|| {
        Some(PlannedEffect {
            digest: digest.clone(),
            since: fact.finished,
        })
    })
}

fn add_ended_run(history: &mut History, run: &TerraformRun, fact: RunFact) {
    let status = run.status.as_ref();
    let drift = is_drift_check(history, &fact);
    let tool = status
        .and_then(|s| s.tool.as_ref())
        .filter(|_| status.is_some_and(|s| s.has_changes.is_some()));
    if let Some(tool) = tool {
        history.tool = Some(tool.name.clone());
    }
    let is_interrupted = is_interrupted_apply(run, &fact);
    // A force-unlock, a stale plan and an interrupted apply changed nothing: the work before them is still due.
    let did_nothing = fact.action == RunAction::Unlock || fact.stale || is_interrupted;
    let same_inputs = history
        .last
        .as_ref()
        .is_none_or(|last| last.inputs == fact.inputs);
    history.checked = drift || did_nothing && same_inputs && history.checked;
    history.pending = pending_after(history.pending.take(), run, &fact, drift);
    history.lock = status
        .and_then(|s| s.lock.as_ref())
        .filter(|_| fact.outcome == Outcome::Failed)
        .map(|lock| lock.id.clone());
    if let Some(state) = status.and_then(|s| s.state.clone()) {
        let run = fact.name.clone();
        history.state = Some(KnownState { run, state });
    }
    if let Some(health) = status.and_then(|s| s.health.clone()) {
        history.health = Some(health);
    }
    add_spent_plan(history, status, &fact);
    if is_caused_by_inputs(history, &fact) {
        history.input_runs = Some(InputRunStreak::with(
            history.input_runs,
            created_at(run),
            fact.finished,
        ));
    }
    if fact.outcome == Outcome::Succeeded {
        history.last_success = Some(fact.finished);
    }
    history.disruptions = disruptions_in_row(history.disruptions, &fact);
    // After the last repeat the run is disrupted. The row goes on: the next one is not repeated at once either.
    history.interruptions = if fact.disrupted {
        interruptions_in_row(history.interruptions, is_interrupted)
    } else {
        0
    };
    history.last = Some(fact);
}

/// Returns the plan that waits after this run; `before` waited before it.
fn pending_after(
    before: Option<Pending>,
    run: &TerraformRun,
    fact: &RunFact,
    drift: bool,
) -> Option<Pending> {
    let status = run.status.as_ref();
    let plan_id = status.map(|s| s.plan_id.clone()).unwrap_or_default();
    let applied = status.is_some_and(|s| s.attempted_apply);
    match (fact.action, fact.outcome) {
        (RunAction::Plan | RunAction::PlanAndApply, Outcome::Succeeded)
            if !plan_id.is_empty() && !holds(MutationPoint::PlanApplied, applied) =>
        {
            Some(Pending {
                plan_id,
                run: fact.name.clone(),
                drift,
                held: false,
                rejection: status.and_then(|s| s.rejection.clone()),
                planned: fact.finished,
            })
        }
        (RunAction::Unlock, ..) => before,
        _ => before.filter(|_| is_interrupted_apply(run, fact)),
    }
}

/// Returns whether a node ended the pod of this apply of a stored plan, before the apply began and without time for a report, and the plan
/// is applied again. The runner records the start of the apply before it starts the CLI, so without this record nothing was applied. The
/// run stays lost: which state locks it may have left is not on record.
fn is_interrupted_apply(run: &TerraformRun, fact: &RunFact) -> bool {
    let has_begun = run.status.as_ref().is_some_and(|status| status.attempted_apply);
    let is_lost = fact.action == RunAction::Apply && fact.outcome == Outcome::Lost;
    is_lost && fact.disrupted && !has_begun && may_repeat(run)
}

/// Returns the number of interrupted runs in a row after a run, at most the limit: so old runs can be deleted and it stays the same.
fn interruptions_in_row(before: i64, is_interrupted: bool) -> i64 {
    before
        .saturating_add(i64::from(is_interrupted))
        .min(INTERRUPTION_LIMIT)
}

/// Records the run if it used up the id of a plan: it started its apply, or its plan was rejected.
fn add_spent_plan(history: &mut History, status: Option<&TerraformRunStatus>, fact: &RunFact) {
    let Some(status) = status else { return };
    if status.attempted_apply && !fact.stale {
        history.last_started_apply = Some(fact.name.clone());
        history.last_rejected = None;
    }
    if status.rejection.is_some() {
        history.last_rejected = Some(fact.name.clone());
    }
}

/// Returns whether the run is a drift check: the stack was in sync and nothing changed since. Drift that was found
/// before stays drift, and a failed drift check is repeated as one.
pub(crate) fn is_drift_check(history: &History, fact: &RunFact) -> bool {
    let checks = match fact.trigger {
        // Lost outputs do not change the resources of a stack that is in sync.
        Trigger::Interval | Trigger::Request | Trigger::Repair => true,
        Trigger::Retry | Trigger::Spec => history.checked && fact.action == RunAction::Plan,
        _ => false,
    };
    let in_sync = |last: &RunFact| {
        // A successful session or force-unlock does not show that the stack is in sync.
        let maintenance = matches!(last.action, RunAction::BreakTheGlass | RunAction::Unlock);
        let known = last.outcome == Outcome::Succeeded && !maintenance || history.checked;
        known && last.inputs == fact.inputs && last.destroy == fact.destroy
    };
    let no_change_pending = history.pending.as_ref().is_none_or(|pending| pending.drift);
    // The first known run is a drift check only for a stack that was adopted in sync.
    let first = fact.trigger == Trigger::Interval;
    checks && no_change_pending && history.last.as_ref().map_or(first, in_sync)
}

/// Returns whether only changed inputs caused the run: no commit, no edit, no request.
fn is_caused_by_inputs(history: &History, fact: &RunFact) -> bool {
    let by_inputs = |last: &RunFact| {
        fact.trigger == Trigger::Revision
            && last.inputs != fact.inputs
            && last.generation == fact.generation
            && last.source == fact.source
            && last.destroy == fact.destroy
    };
    history.last.as_ref().is_some_and(by_inputs)
}

/// Returns when the run was created.
pub(crate) fn created_at(run: &TerraformRun) -> Timestamp {
    let created = run.metadata.creation_timestamp.as_ref();
    created.map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// Returns the digest of the inputs for the decision: with the whole artifact if downloaded modules may read it.
pub(crate) fn effective_inputs(inputs: &str, artifact: &str, reads_artifact: bool) -> String {
    if reads_artifact {
        format!("{inputs}+{artifact}")
    } else {
        inputs.to_owned()
    }
}

/// Returns the facts of one run; its downloaded modules may read the whole artifact, or not.
pub(crate) fn run_fact(run: &TerraformRun, reads_artifact: bool) -> RunFact {
    let (spec, status) = (&run.spec, run.status.as_ref());
    let created = created_at(run);
    RunFact {
        name: run.metadata.name.clone().unwrap_or_default(),
        action: spec.action,
        trigger: spec.trigger,
        destroy: spec.destroy,
        generation: spec.terraform.generation,
        inputs: effective_inputs(&spec.inputs_digest, &spec.source.digest, reads_artifact),
        source: spec.source.digest.clone(),
        attempt: u32::try_from(spec.attempt).unwrap_or(1).max(1),
        outcome: status.map_or(Outcome::Active, outcome),
        stale: status.is_some_and(|s| s.reason == Reason::PlanStale),
        needs_change: status.is_some_and(|status| needs_change(spec.trigger, status)),
        disrupted: status.is_some_and(is_disrupted),
        finished: status
            .and_then(|s| s.finished_at.as_ref())
            .map_or(created, |time| time.0),
    }
}

/// Returns whether the run fails again until something else changes.
fn needs_change(trigger: Trigger, status: &TerraformRunStatus) -> bool {
    let is_other_state = trigger == Trigger::Deletion
        && status.reason == Reason::TfExecPlanFailed
        && !status.state_mismatch.is_empty();
    status.reason == Reason::ToolNotInstalled || is_other_state
}

/// Returns whether the run failed or was lost because Kubernetes ended its pod: an eviction, a preemption or a lost node.
fn is_disrupted(status: &TerraformRunStatus) -> bool {
    let has_failed = matches!(status.phase, Phase::Failed | Phase::Lost);
    has_failed && (status.reason == Reason::Evicted || status.reason == Reason::NodeLost)
}

fn outcome(status: &TerraformRunStatus) -> Outcome {
    match status.phase {
        Phase::Succeeded => Outcome::Succeeded,
        Phase::Lost => Outcome::Lost,
        phase if phase.is_final() => Outcome::Failed,
        _ => Outcome::Active,
    }
}

#[cfg(test)]
mod tests;
