//! May a plan that was just made be applied at once? The rules are `sluice_api::run::gate`'s; here the object is read afresh
//! for them, and what holds the plan is put on record.

use kube::api::Api;
use sluice_api::run::TerraformRun;
use sluice_api::run::gate::{Gate, Hold, gate};
use sluice_api::terraform::Terraform;
use sluice_api::terraform::approval::{Approval, Made, judge};

use super::context::Context;
use super::error::RunError;
use super::patience::patiently;
use super::report::Reporter;

/// Why the plan that the run has said it made is not applied by it; nothing where it is.
pub(super) async fn holds(
    context: &Context,
    reporter: &Reporter,
    run: &TerraformRun,
) -> Result<Option<Hold>, RunError> {
    let api: Api<Terraform> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let name = &run.spec.terraform.name;
    let terraform = if run.spec.action.applies() {
        let read = patiently(context.settings.patience, || api.get_opt(name)).await;
        read.map_err(|source| RunError::Api {
            doing: "read the Terraform object",
            source,
        })?
    } else {
        // Only for the record: a plan is none the worse without.
        api.get_opt(name).await.ok().flatten()
    };
    let said = reporter.said();
    let made = Made {
        id: &said.plan_id,
        effects: said.effects.as_ref(),
        entries: &said.change_entries,
    };
    let gate = gate(&run.spec, terraform.as_ref(), made);
    let held = match (&gate, &terraform) {
        (Gate::Hold(Hold::Held(held)), _) => Some(held.to_string()),
        // What this run was not to apply in any case may be held all the same: its record says so.
        (Gate::Hold(Hold::NotAsked), Some(terraform)) => match judge(&terraform.spec, made) {
            Approval::Held(held) => Some(held.to_string()),
            _ => None,
        },
        _ => None,
    };
    if let Some(held) = held {
        reporter.note(|status| status.held = held);
    }
    Ok(match gate {
        Gate::Apply => None,
        Gate::Hold(why) => Some(why),
    })
}
