//! Does the approval that a run applies a stored plan by still stand? The rules are `sluice_api::run::gate`'s; here the
//! object is read afresh for them, since the controller that decided may have seen an older one.

use kube::api::Api;
use sluice_api::run::{TerraformRun, gate};
use sluice_api::terraform::Terraform;

use super::context::Context;
use super::error::RunError;
use super::patience::patiently;

/// Ends the run as superseded where the object no longer asks for it.
pub(super) async fn prove(context: &Context, run: &TerraformRun) -> Result<(), RunError> {
    let api: Api<Terraform> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let name = &run.spec.terraform.name;
    let read = patiently(context.settings.patience, || api.get_opt(name)).await;
    let terraform = read.map_err(|source| RunError::Api {
        doing: "read the Terraform object",
        source,
    })?;
    let plan = match &run.spec.plan {
        Some(plan) => made_by(context, &plan.run).await?,
        None => None,
    };
    let said = plan.as_ref().and_then(|run| run.status.as_ref());
    gate::stands(&run.spec, terraform.as_ref(), said)
        .map_err(|hold| RunError::Superseded(format!("not applied: {hold}")))
}

/// The run that made the plan: its record says what the plan does.
async fn made_by(context: &Context, name: &str) -> Result<Option<TerraformRun>, RunError> {
    let api: Api<TerraformRun> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let read = patiently(context.settings.patience, || api.get_opt(name)).await;
    read.map_err(|source| RunError::Api {
        doing: "read the run that made the plan",
        source,
    })
}
