//! The inputs of a run: its bundle, and the stored plan that it applies. Both have to match the spec of the run.

use k8s_openapi::api::core::v1::Secret;
use sluice_api::run::{Action, TerraformRun};
use sluice_api::terraform::plan_id::PlanId;
use sluice_tf_core::bundle::{self, Bundle};
use sluice_tf_core::plan::store::{PlanName, StoredPlan};

use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;
use crate::run::plan::plan_store;

/// Loads the plan that the run applies, and verifies that its effect is the approved one.
pub(crate) async fn approved_plan(
    context: &Context,
    run: &TerraformRun,
    bundle: &Bundle,
) -> Result<Option<StoredPlan>, RunError> {
    match (run.spec.action, &run.spec.plan) {
        (Action::Apply, Some(plan)) => {
            let name = PlanName {
                stack: bundle.stack.clone(),
                workspace: bundle.workspace.clone(),
                id: plan.id.clone(),
                run: plan.run.clone(),
            };
            let loaded = plan_store::load(context, &name, &plan.digest, &bundle.plan_keys).await?;
            let approved: Result<PlanId, _> = plan.id.parse();
            if approved.map_or(true, |id| id.effect().as_str() != loaded.context.effect) {
                return Err(RunError::PlanMismatch(
                    "the stored plan has another effect than the approved".to_owned(),
                ));
            }
            if loaded.context.destroy != run.spec.destroy {
                let text = "of the run and the stored plan one is to destroy, and the other is not";
                return Err(RunError::PlanMismatch(text.to_owned()));
            }
            Ok(Some(loaded))
        }
        (Action::Apply, None) => Err(RunError::IncompleteSpec {
            action: run.spec.action.as_str(),
            what: "a stored plan",
        }),
        (Action::Plan | Action::PlanAndApply | Action::Unlock | Action::BreakTheGlass, _) => Ok(None),
    }
}

/// Loads the bundle of the run, and verifies that it matches the spec.
pub(crate) async fn load_bundle(context: &Context, run: &TerraformRun) -> Result<Bundle, RunError> {
    let bundle = if run.spec.bundle_secrets == 0 {
        Bundle::from_input(context.bundle.as_deref(), run)?
    } else {
        stored_bundle(context, run).await?
    };
    let spec = &run.spec;
    let checks = [
        (bundle.stack.uid == spec.terraform.uid, "Terraform object"),
        (bundle.stack.name == spec.terraform.name, "Terraform object"),
        (bundle.stack.namespace == context.settings.namespace, "namespace"),
        (bundle.inputs_digest == spec.inputs_digest, "inputs"),
        (bundle.artifact.digest == spec.source.digest, "artifact"),
    ];
    match checks.iter().find(|(same, _)| !same) {
        None => Ok(bundle),
        Some((_, what)) => Err(RunError::Superseded(format!(
            "the bundle is about another {what} than the run: it changed in between"
        ))),
    }
}

/// Loads the bundle from the run's Secrets.
async fn stored_bundle(context: &Context, run: &TerraformRun) -> Result<Bundle, RunError> {
    let api = context.api::<Secret>();
    let mut secrets = Vec::new();
    for name in bundle::secret_names(run) {
        let secret = context.retry(|| api.get(&name)).await;
        secrets.push(secret.map_err(RunError::api("read the run's bundle"))?);
    }
    Ok(Bundle::from_secrets(&secrets, run)?)
}
