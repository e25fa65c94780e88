//! Continues objects of tofu-controller. Pure.
//!
//! Such an object has a status but no runs, so there is no digest of its inputs. Its status shows whether anything
//! changed: the same revision and generation as at the last success, and no pending plan. Then the stack is in sync,
//! and its first run is the drift check at its interval. The same holds for an object of ours whose runs were
//! deleted. A pending plan is never applied: its id names a commit and no effect.

use jiff::Timestamp;
use sluice_api::condition::{TerraformCondition as Kind, find};
use sluice_api::run::TerraformRun;
use sluice_api::terraform::Terraform;
use sluice_api::terraform::plan_id::PlanId;

use super::facts::Outline;
use crate::decide::{Inputs, Outcome, RunAction, RunFact, SourceFact, Trigger};

/// Returns the newest run as the status describes it, if the object has no runs and nothing has changed.
pub(super) fn adopted_run(outline: &Outline<'_>, inputs: &Inputs) -> Option<RunFact> {
    let (stack, observed) = (outline.stack, outline.observed);
    if !observed.runs.is_empty() || outline.deleting {
        return None;
    }
    let (Inputs::Known(inputs), SourceFact::Found { revision, digest }) = (inputs, &observed.source) else {
        return None;
    };
    let generation = stack.metadata.generation.unwrap_or(0);
    Some(RunFact {
        name: String::new(),
        action: RunAction::PlanAndApply,
        trigger: Trigger::Revision,
        destroy: stack.spec.destroy,
        generation,
        inputs: inputs.clone(),
        source: digest.clone(),
        attempt: 1,
        outcome: Outcome::Succeeded,
        stale: false,
        needs_change: false,
        disrupted: false,
        finished: last_unchanged_success(stack, generation, revision)?,
    })
}

/// Returns the time of the last success if the status shows that the stack is still in sync at this revision.
fn last_unchanged_success(stack: &Terraform, generation: i64, revision: &str) -> Option<Timestamp> {
    let status = stack.status.as_ref()?;
    let known = [&*status.last_applied_revision, &*status.last_planned_revision];
    let ready = find(&status.conditions, Kind::Ready)?;
    let unchanged = status.observed_generation == Some(generation)
        && status.last_attempted_revision == revision
        && known.contains(&revision)
        && ready.status == "True"
        && status.plan.as_ref().is_none_or(|plan| plan.pending.is_empty());
    let time = status
        .last_successful_reconcile_at
        .as_ref()
        .or(status.last_plan_at.as_ref());
    time.filter(|_| unchanged).map(|time| time.0)
}

/// Returns the id of a pending plan of another program, which is replaced by a new plan.
pub(super) fn foreign_plan<'s>(stack: &'s Terraform, runs: &[TerraformRun]) -> Option<&'s str> {
    let plan = stack.status.as_ref()?.plan.as_ref()?;
    let foreign = runs.is_empty() && !plan.pending.is_empty() && plan.pending.parse::<PlanId>().is_err();
    foreign.then_some(plan.pending.as_str())
}
