//! Approval of a plan, checked just before it is applied. The rules are in `sluice_api::run::gate`; this module reads the object
//! live for them, because the controller may have decided on an older version.

use sluice_api::run::TerraformRun;
use sluice_api::run::gate::{Gate, WaitReason, check_new_plan, check_stored_plan};
use sluice_api::terraform::Terraform;
use sluice_api::terraform::approval::{CandidatePlan, ApprovalDecision, evaluate};

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

/// Fails with `Superseded` if the object no longer approves the stored plan of the run.
pub(crate) async fn recheck_approval(context: &Context, run: &TerraformRun) -> Result<(), RunError> {
    let terraform = read_terraform(context, run).await?;
    let plan = match &run.spec.plan {
        Some(plan) => plan_run(context, &plan.run).await?,
        None => None,
    };
    let recorded = plan.as_ref().and_then(|run| run.status.as_ref());
    check_stored_plan(&run.spec, terraform.as_ref(), recorded)
        .map_err(|hold| RunError::Superseded(format!("not applied: {hold}")))
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
