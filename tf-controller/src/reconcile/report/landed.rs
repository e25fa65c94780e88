//! What was applied last, also where the apply's own end is not on record: its runner was killed, or failed on the way, and a
//! later plan found nothing left to do.

use super::{Report, has_applied, phase, succeeded};
use crate::reconcile::history::sequence;
use sluice_api::run::TerraformRun;

/// The reason of a run whose outputs did not reach their Secret.
const OUTPUTS_FAILED: &str = "OutputsWritingFailed";

/// An apply whose work is done.
pub(super) struct Landed<'a> {
    /// The run that applied.
    pub(super) apply: &'a TerraformRun,
    /// The run that tells what came of it: the same, or the plan that found nothing left to do.
    pub(super) proof: &'a TerraformRun,
}

impl<'a> Report<'a> {
    /// The newest ended run whose apply was begun.
    pub(super) fn last_apply(&self) -> Option<&'a TerraformRun> {
        self.ended()
            .find(|run| run.status.as_ref().is_some_and(|s| s.attempted_apply))
    }

    /// The newest apply whose work is done.
    pub(super) fn landed(&self) -> Option<Landed<'a>> {
        self.ended().find_map(|apply| {
            let proof = self.proof(apply)?;
            Some(Landed { apply, proof })
        })
    }

    /// The run that tells that this one's apply is done, if it is.
    pub(super) fn proof(&self, apply: &'a TerraformRun) -> Option<&'a TerraformRun> {
        let told = apply
            .status
            .as_ref()
            .is_some_and(|status| !status.outputs.is_empty());
        if has_applied(apply) && (succeeded(apply) || told) {
            return Some(apply);
        }
        if !apply.status.as_ref().is_some_and(|status| status.attempted_apply) {
            return None;
        }
        let nothing_left = |run: &&TerraformRun| {
            let status = run.status.as_ref();
            phase(run).is_final()
                && succeeded(run)
                && run.spec.destroy == apply.spec.destroy
                && status.is_some_and(|status| status.has_changes == Some(false))
        };
        let later = self.ended().take_while(|run| sequence(run) > sequence(apply));
        let found = later.filter(nothing_left).last();
        // One that applied and did not get to its outputs: the plan knows them.
        found.or_else(|| has_applied(apply).then_some(apply))
    }

    /// Whether the Secret holds the outputs of this run's apply: it wrote them itself, or a run after it that found nothing
    /// else to do.
    pub(super) fn has_written(&self, apply: &TerraformRun) -> bool {
        let own = apply.status.as_ref().is_some_and(|s| s.reason != OUTPUTS_FAILED);
        let later = self.ended().take_while(|run| sequence(run) > sequence(apply));
        let unchanged = |run: &TerraformRun| {
            succeeded(run) && run.status.as_ref().is_some_and(|s| s.has_changes == Some(false))
        };
        own || later.into_iter().any(unchanged)
    }
}
