//! The policy gate of a run, evaluated after the plan is stored and before anything changes. Pure; the runner passes the
//! current Terraform object.

use super::{
    Action, PlanRejection, RecordedApproval, TerraformRunSpec, TerraformRunStatus, Trigger, rejection_of,
};
use crate::terraform::approval::{ApprovalDecision, CandidatePlan, approves_by_id, evaluate};
use crate::terraform::guard::AutoApplyHold;
use crate::terraform::required_approvals::{ApprovalEvidence, MissingApprovals};
use crate::terraform::{Terraform, TerraformSpec};

/// The next step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Apply the plan.
    Apply,
    /// End the run; the plan stays pending.
    Wait(WaitReason),
}

/// Why a run does not apply the plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitReason {
    /// The run only plans.
    #[error("the run only plans")]
    PlanOnlyRun,
    /// The Terraform object was deleted, or replaced by another one of the same name.
    #[error("the Terraform object is deleted")]
    ObjectGone,
    /// The spec changed after the run was started.
    #[error("the spec changed from generation {planned} to {now} after the run was created")]
    SpecChanged {
        /// Generation that the run was started for.
        planned: i64,
        /// Current generation.
        now: i64,
    },
    /// The Terraform object is suspended.
    #[error("the object is suspended")]
    Suspended,
    /// The Terraform object is being deleted and the run is not its destroy run, or the reverse.
    #[error("the deletion of the object changed the action")]
    Deleting,
    /// The guard rails hold the plan.
    #[error("held: {0}")]
    OnHold(AutoApplyHold),
    /// Approvals that `spec.approval` requires are missing.
    #[error("the plan waits for approval: {0}")]
    ApprovalsMissing(MissingApprovals),
    /// A user rejected the plan.
    #[error("the plan was {0}")]
    Rejected(PlanRejection),
    /// The plan waits for approval.
    #[error("the plan waits for approval")]
    NotApproved(ApprovalDecision),
}

impl WaitReason {
    /// Returns whether approvals by users can end the wait. The other reasons need none to be read.
    #[must_use]
    pub const fn lacks_approval(&self) -> bool {
        matches!(
            self,
            Self::OnHold(_) | Self::ApprovalsMissing(_) | Self::NotApproved(_)
        )
    }
}

/// Decides whether a run that plans and applies may apply its plan, which has changes. The rejection of the plan is read here.
#[must_use]
pub fn check_new_plan(
    run: &TerraformRunSpec,
    terraform: Option<&Terraform>,
    plan: CandidatePlan<'_>,
) -> Gate {
    let rejection = terraform.and_then(|terraform| rejection_of(terraform, plan.id, None));
    let plan = CandidatePlan {
        rejection: plan.rejection.or(rejection.as_ref()),
        ..plan
    };
    match current_spec(run, terraform) {
        Err(hold) => Gate::Wait(hold),
        Ok(spec) if run.trigger == Trigger::Deletion => check_destroy(spec, plan),
        Ok(spec) => match evaluate(spec, plan) {
            approval if approval.applies() => Gate::Apply,
            approval => Gate::Wait(wait_reason(approval)),
        },
    }
}

/// Returns why a decision does not apply the plan.
fn wait_reason(approval: ApprovalDecision) -> WaitReason {
    match approval {
        ApprovalDecision::OnHold(held) => WaitReason::OnHold(held),
        ApprovalDecision::Insufficient(missing) => WaitReason::ApprovalsMissing(missing),
        ApprovalDecision::Rejected(rejection) => WaitReason::Rejected(rejection),
        approval => WaitReason::NotApproved(approval),
    }
}

/// Decides about the destroy of a deleted object. `destroyResourcesOnDeletion` and the deletion are the approval, but not to destroy what
/// another state contains, and not by a plan that a user rejected.
fn check_destroy(spec: &TerraformSpec, plan: CandidatePlan<'_>) -> Gate {
    if let Some(rejection) = plan.rejection {
        return Gate::Wait(WaitReason::Rejected(rejection.clone()));
    }
    match AutoApplyHold::with_state_mismatch(None, plan.state_mismatch) {
        Some(held) if !approves_by_id(spec, plan) => Gate::Wait(WaitReason::OnHold(held)),
        _ => Gate::Apply,
    }
}

/// Returns the current spec if the run still matches the object.
fn current_spec<'a>(
    run: &TerraformRunSpec,
    terraform: Option<&'a Terraform>,
) -> Result<&'a TerraformSpec, WaitReason> {
    if run.action != Action::PlanAndApply {
        return Err(WaitReason::PlanOnlyRun);
    }
    let found = same_object(run, terraform)?;
    let deleting = found.metadata.deletion_timestamp.is_some();
    let destroys_on_deletion = run.destroy && found.spec.destroys_on_deletion();
    match run.trigger {
        _ if found.spec.suspend => Err(WaitReason::Suspended),
        // The API server increments the generation when a deletion starts, so generations are not compared here.
        Trigger::Deletion if deleting && destroys_on_deletion => Ok(&found.spec),
        Trigger::Deletion => Err(WaitReason::Deleting),
        _ if deleting => Err(WaitReason::Deleting),
        // A destroy run requires `destroy` in the current spec, and other runs its absence.
        _ if run.destroy != found.spec.destroy => Err(spec_changed(run, found)),
        _ => check_generation(run, found).map(|()| &found.spec),
    }
}

/// Returns the object if it is the one that the run was started for.
fn same_object<'a>(
    run: &TerraformRunSpec,
    terraform: Option<&'a Terraform>,
) -> Result<&'a Terraform, WaitReason> {
    let is_same = |found: &&Terraform| found.metadata.uid.as_deref() == Some(run.terraform.uid.as_str());
    terraform.filter(is_same).ok_or(WaitReason::ObjectGone)
}

fn spec_changed(run: &TerraformRunSpec, found: &Terraform) -> WaitReason {
    WaitReason::SpecChanged {
        planned: run.terraform.generation,
        now: found.metadata.generation.unwrap_or_default(),
    }
}

/// Checks whether a run may still apply a stored plan: the current object approves the plan, including the guard rails, and
/// the spec has not changed since the run was started. `plan` is the status of the run that created the plan, and `evidence` the
/// approvals as they are now.
///
/// Returns the approvals by users that count; none, if `approvePlan` approves the plan.
///
/// # Errors
/// Why the run may not apply the plan.
pub fn check_stored_plan(
    run: &TerraformRunSpec,
    terraform: Option<&Terraform>,
    plan: Option<&TerraformRunStatus>,
    evidence: ApprovalEvidence<'_>,
) -> Result<Vec<RecordedApproval>, WaitReason> {
    let found = same_object(run, terraform)?;
    if found.metadata.deletion_timestamp.is_some() {
        return Err(WaitReason::Deleting);
    }
    if found.spec.suspend {
        return Err(WaitReason::Suspended);
    }
    if run.destroy != found.spec.destroy {
        return Err(spec_changed(run, found));
    }
    let id = run.plan.as_ref().map_or("", |plan| plan.id.as_str());
    let rejection = rejection_of(found, id, plan);
    let candidate = CandidatePlan {
        id,
        effects: plan.and_then(|plan| plan.effects.as_ref()),
        entries: plan
            .map(|plan| plan.change_entries.as_slice())
            .unwrap_or_default(),
        state_mismatch: plan.map_or("", |plan| plan.state_mismatch.as_str()),
        evidence,
        rejection: rejection.as_ref(),
    };
    match evaluate(&found.spec, candidate) {
        ApprovalDecision::Agreed(approvals) => check_generation(run, found).map(|()| approvals),
        approval if approval.applies() => check_generation(run, found).map(|()| Vec::new()),
        approval => Err(wait_reason(approval)),
    }
}

/// Checks that the generation is the one that the run was started for. Only the controller can tell whether an edit changed the
/// inputs of the plan; if not, the next run applies it.
fn check_generation(run: &TerraformRunSpec, found: &Terraform) -> Result<(), WaitReason> {
    if run.terraform.generation == found.metadata.generation.unwrap_or_default() {
        return Ok(());
    }
    Err(spec_changed(run, found))
}

#[cfg(test)]
mod tests;
