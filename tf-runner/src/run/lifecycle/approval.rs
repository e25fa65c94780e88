//! Approval of a plan, checked just before it is applied. The rules are in `sluice_api::run::gate`; this module reads the object and
//! the PlanApprovals live for them, because the controller may have decided on an older version.

use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use sluice_api::run::gate::{Gate, WaitReason, check_new_plan, check_stored_plan};
use sluice_api::run::{PlanApproval, TerraformRun, approvals_of};
use sluice_api::terraform::Terraform;
use sluice_api::terraform::approval::{ApprovalDecision, CandidatePlan, evaluate};
use sluice_api::terraform::required_approvals::ApprovalEvidence;

use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;
use crate::run::lifecycle::session::RunSession;

/// Returns why the run may not apply the plan that it has just reported; `None` if it may. Records a hold in the status.
pub(crate) async fn wait_reason(session: &RunSession<'_>) -> Result<Option<WaitReason>, RunError> {
    let RunSession {
        context, run, cli, ..
    } = session;
    let terraform = if run.spec.action.applies() {
        read_terraform(context, run).await?
    } else {
        // Used for the status only: a plan does not fail without it.
        let api = context.api();
        api.get_opt(&run.spec.terraform.name).await.ok().flatten()
    };
    let recorded = cli.status.snapshot();
    let candidate = CandidatePlan {
        id: &recorded.plan_id,
        effects: recorded.effects.as_ref(),
        entries: &recorded.change_entries,
        state_mismatch: &recorded.state_mismatch,
        // An approval names a plan that an earlier run stored.
        evidence: ApprovalEvidence::default(),
        // The gate reads it.
        rejection: None,
    };
    let gate = check_new_plan(&run.spec, terraform.as_ref(), candidate);
    let hold = match (&gate, &terraform) {
        (Gate::Wait(WaitReason::OnHold(hold)), _) => Some(hold.to_string()),
        // A run that only plans records a hold too.
        (Gate::Wait(WaitReason::PlanOnlyRun), Some(terraform)) => {
            match evaluate(&terraform.spec, candidate) {
                ApprovalDecision::OnHold(hold) => Some(hold.to_string()),
                _ => None,
            }
        }
        _ => None,
    };
    if let Some(hold) = hold {
        cli.status.buffer(|status| status.auto_apply_hold = hold);
    }
    Ok(match gate {
        Gate::Apply => None,
        Gate::Wait(reason) => Some(reason),
    })
}

/// Fails with `Superseded` if the stored plan of the run is no longer approved. Records the approvals that count in the status.
pub(crate) async fn recheck_approval(session: &RunSession<'_>) -> Result<(), RunError> {
    let RunSession {
        context, run, cli, ..
    } = session;
    let terraform = read_terraform(context, run).await?;
    let plan = match &run.spec.plan {
        Some(plan) => plan_run(context, &plan.run).await?,
        None => None,
    };
    let recorded = plan.as_ref().and_then(|plan| plan.status.as_ref());
    let check =
        |evidence: ApprovalEvidence<'_>| check_stored_plan(&run.spec, terraform.as_ref(), recorded, evidence);
    let checked = match (&terraform, check(ApprovalEvidence::default())) {
        (Some(terraform), Err(reason)) if reason.lacks_approval() => {
            let approvals = read_approvals(context, terraform).await?;
            check(ApprovalEvidence {
                approvals: &approvals,
                author: plan.as_ref().map_or("", |plan| plan.spec.source.author.as_str()),
                since: planned_since(run, plan.as_ref()),
            })
        }
        (_, checked) => checked,
    };
    let counted = checked.map_err(|hold| RunError::Superseded(format!("not applied: {hold}")))?;
    if !counted.is_empty() {
        cli.status.buffer(|status| status.approvals = counted);
    }
    Ok(())
}

/// Returns since when the plan exists: as the controller found it, or as the run that made it.
fn planned_since(run: &TerraformRun, plan: Option<&TerraformRun>) -> Option<Timestamp> {
    let known = run.spec.plan.as_ref().and_then(|plan| plan.since.as_ref());
    let created = plan.and_then(|plan| plan.metadata.creation_timestamp.as_ref());
    known.or(created).map(|time| time.0)
}

/// Reads the approvals that name the Terraform object.
async fn read_approvals(context: &Context, terraform: &Terraform) -> Result<Vec<PlanApproval>, RunError> {
    let api: Api<PlanApproval> = context.api();
    let params = ListParams::default();
    let list = context.retry(|| api.list(&params)).await;
    let list = list.map_err(RunError::api("list the approvals of plans"))?;
    Ok(approvals_of(&terraform.name_any(), list.items))
}

/// Reads the Terraform object of the run.
pub(crate) async fn read_terraform(
    context: &Context,
    run: &TerraformRun,
) -> Result<Option<Terraform>, RunError> {
    let api = context.api();
    let read = context.retry(|| api.get_opt(&run.spec.terraform.name)).await;
    read.map_err(RunError::api("read the Terraform object"))
}

/// Reads the run that made the plan: its status describes the plan.
async fn plan_run(context: &Context, name: &str) -> Result<Option<TerraformRun>, RunError> {
    let api = context.api();
    let read = context.retry(|| api.get_opt(name)).await;
    read.map_err(RunError::api("read the run that made the plan"))
}
