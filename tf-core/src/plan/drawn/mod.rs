//! What of a plan's effect stands in no change of it (pure): the commands of provisioners, the settings of providers, and arguments
//! that are written and never kept. What they take from data or from a resource is no input of the stack either. Where they take
//! something the values of the state count as a whole.

mod reference;
mod state;
mod unseen;

use serde_json::Value;

use super::document::ResourceChange;
use reference::{Place, any};
pub(super) use state::State;

/// Whether something that no change shows takes a value from data, a resource or a module.
pub(super) fn draws(configuration: &Value, changes: &[ResourceChange]) -> bool {
    let root = &configuration["root_module"];
    let deletes = changes.iter().any(|change| change.change.acts("delete"));
    settings_draw(&configuration["provider_config"])
        || commands_draw(root, true, deletes)
        || unseen::draws(root, changes)
}

/// Settings of a provider in a module are told beside those of the root, and take what the module's caller passes.
fn settings_draw(settings: &Value) -> bool {
    let mut providers = settings.as_object().into_iter().flatten();
    providers.any(|(_, provider)| {
        let is_root = provider["module_address"].as_str().unwrap_or_default().is_empty();
        // Only OpenTofu repeats a provider, and lets it take nothing but inputs.
        let place = Place {
            variable: &|_| !is_root,
            each: false,
        };
        place.leads_out(provider)
    })
}

/// Whether a command may be another than the inputs make it. A provisioner whose connection the plan does not tell may always be;
/// one that runs at a delete names values of the resource that goes, which no change tells.
fn commands_draw(module: &Value, is_root: bool, deletes: bool) -> bool {
    let mut resources = module["resources"].as_array().into_iter().flatten();
    let mut calls = module["module_calls"].as_object().into_iter().flatten();
    resources.any(|resource| {
        let place = Place {
            variable: &|_| !is_root,
            each: false,
        };
        let place = place.repeated(&resource["for_each_expression"]);
        let mut all = resource["provisioners"].as_array().into_iter().flatten();
        all.any(|provisioner| {
            let is_of_gone = || any(provisioner, &|reference| reference::first(reference) == "self");
            provisioner["type"] != "local-exec" || place.leads_out(provisioner) || deletes && is_of_gone()
        })
    }) || calls.any(|(_, call)| commands_draw(&call["module"], false, deletes))
}

#[cfg(test)]
mod tests;
