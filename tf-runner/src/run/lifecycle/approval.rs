//! Approval of a plan, checked just before it is applied. The rules are in `sluice_api::run::gate`; this module reads the object
//! live for them, because the controller may have decided on an older version.

use kube::api::Api;
use sluice_api::run::TerraformRun;
use sluice_api::run::gate::{Gate, WaitReason, check_new_plan, check_stored_plan};
use sluice_api::terraform::Terraform;
use sluice_api::terraform::approval::{CandidatePlan, PlanApproval, evaluate};

use crate::run::lifecycle::api_retry::patiently;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;
use crate::run::status::writer::Reporter;

/// Returns why the run may not apply the plan that it has just reported; `None` if it may. Records a hold in the status.
pub(crate) async fn wait_reason(
    context: &Context,
    reporter: &Reporter,
    run: &TerraformRun,
) -> Result<Option<WaitReason>, RunError> {
    let api: Api<Terraform> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let name = &run.spec.terraform.name;
    let terraform = if run.spec.action.applies() {
        let read = patiently(context.settings.patience, || api.get_opt(name)).await;
        read.map_err(|source| RunError::Api {
            doing: "read the Terraform object",
            source,
        })?
    } else {
        // Used for the status only: a plan does not fail without it.
        api.get_opt(name).await.ok().flatten()
    };
    let recorded = reporter.said();
    let candidate = CandidatePlan {
        id: &recorded.plan_id,
        effects: recorded.effects.as_ref(),
        entries: &recorded.change_entries,
    };
    let gate = check_new_plan(&run.spec, terraform.as_ref(), candidate);
    let held = match (&gate, &terraform) {
        (Gate::Wait(WaitReason::OnHold(held)), _) => Some(held.to_string()),
        // A run that only plans records a hold too.
        (Gate::Wait(WaitReason::PlanOnlyRun), Some(terraform)) => {
            match evaluate(&terraform.spec, candidate) {
                PlanApproval::OnHold(held) => Some(held.to_string()),
                _ => None,
            }
        }
        _ => None,
    };
    if let Some(held) = held {
        reporter.note(|status| status.auto_apply_hold = held);
    }
    Ok(match gate {
        Gate::Apply => None,
        Gate::Wait(why) => Some(why),
    })
}

/// Fails with `Superseded` if the object no longer approves the stored plan of the run.
pub(crate) async fn recheck_approval(context: &Context, run: &TerraformRun) -> Result<(), RunError> {
    let api: Api<Terraform> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let name = &run.spec.terraform.name;
    let read = patiently(context.settings.patience, || api.get_opt(name)).await;
    let terraform = read.map_err(|source| RunError::Api {
        doing: "read the Terraform object",
        source,
    })?;
    let plan = match &run.spec.plan {
        Some(plan) => plan_run(context, &plan.run).await?,
        None => None,
    };
    let recorded = plan.as_ref().and_then(|run| run.status.as_ref());
    check_stored_plan(&run.spec, terraform.as_ref(), recorded)
        .map_err(|hold| RunError::Superseded(format!("not applied: {hold}")))
}

/// Reads the run that made the plan: its status describes the plan.
async fn plan_run(context: &Context, name: &str) -> Result<Option<TerraformRun>, RunError> {
    let api: Api<TerraformRun> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let read = patiently(context.settings.patience, || api.get_opt(name)).await;
    read.map_err(|source| RunError::Api {
        doing: "read the run that made the plan",
        source,
    })
}
