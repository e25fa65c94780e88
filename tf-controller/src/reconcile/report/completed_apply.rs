//! The last completed apply, also if its own end is not recorded: its runner was killed or failed on the way, and a
//! later plan found no changes.

use sluice_api::run::TerraformRun;
use sluice_api::terraform::Reason;

use super::{Report, has_applied, phase, succeeded};
use crate::reconcile::history::sequence;

/// An apply that is complete.
pub(super) struct CompletedApply<'a> {
    /// The run that applied.
    pub(super) apply: &'a TerraformRun,
    /// The run that shows the result: the same, or a later plan without changes.
    pub(super) proof: &'a TerraformRun,
}

impl<'a> Report<'a> {
    /// Returns the newest ended run that started its apply.
    pub(super) fn last_apply(&self) -> Option<&'a TerraformRun> {
        self.ended()
            .find(|run| run.status.as_ref().is_some_and(|s| s.attempted_apply))
    }

    /// Returns the newest completed apply.
    pub(super) fn completed_apply(&self) -> Option<CompletedApply<'a>> {
        self.ended().find_map(|apply| {
            let proof = self.proof(apply)?;
            Some(CompletedApply { apply, proof })
        })
    }

    /// Returns the run that shows that this apply is complete, if it is.
    pub(super) fn proof(&self, apply: &'a TerraformRun) -> Option<&'a TerraformRun> {
        let has_outputs = apply
            .status
            .as_ref()
            .is_some_and(|status| !status.outputs.is_empty());
        if has_applied(apply) && (succeeded(apply) || has_outputs) {
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
        // It applied but has no outputs: the later plan has them.
        found.or_else(|| has_applied(apply).then_some(apply))
    }

    /// Returns whether the Secret holds the outputs of this apply: the run wrote them itself, or a later run without changes did.
    pub(super) fn has_written(&self, apply: &TerraformRun) -> bool {
        let own = apply
            .status
            .as_ref()
            .is_some_and(|s| s.reason != Reason::OutputsWritingFailed);
        let later = self.ended().take_while(|run| sequence(run) > sequence(apply));
        let unchanged = |run: &TerraformRun| {
            succeeded(run) && run.status.as_ref().is_some_and(|s| s.has_changes == Some(false))
        };
        own || later.into_iter().any(unchanged)
    }
}
