//! Hidden inputs of a plan: commands of provisioners, settings of providers, and write-only arguments. No change of the plan shows
//! them, and they may depend on data sources or resources, which are not inputs of the stack. If they do, the effect covers all values
//! of the prior state.

mod prior_state;
mod write_only;

pub(super) use prior_state::PriorState;
use serde_json::Value;

use super::document::ResourceChange;

/// Roots of references whose values are inputs, are part of the address, or are unknown before the apply of the resource.
const INPUT_ROOTS: [&str; 5] = ["count", "path", "self", "terraform", "tofu"];

/// The scope of an expression. It determines the meaning of `var` and `each`.
#[derive(Clone, Copy)]
struct Scope<'p> {
    /// Whether the value of a variable may depend on more than inputs.
    is_derived_variable: &'p dyn Fn(&str) -> bool,
    /// Whether the values of `each` may depend on more than inputs. Its keys are part of addresses.
    is_derived_each: bool,
}

impl Scope<'_> {
    /// Returns the scope of a block with this `for_each`.
    fn with_for_each(self, for_each: &Value) -> Self {
        Self {
            is_derived_each: self.is_derived(for_each),
            ..self
        }
    }

    /// Whether the expressions may depend on more than inputs.
    fn is_derived(&self, expressions: &Value) -> bool {
        any_reference(expressions, &|reference| self.is_derived_reference(reference))
    }

    fn is_derived_reference(&self, reference: &str) -> bool {
        let mut parts = reference.split(['.', '[']).skip(1);
        let second = parts.next().unwrap_or_default();
        match root_of(reference) {
            "each" => self.is_derived_each && second != "key",
            "var" => (self.is_derived_variable)(second),
            root => !INPUT_ROOTS.contains(&root),
        }
    }
}

/// Returns the first part of a reference.
fn root_of(reference: &str) -> &str {
    reference.split(['.', '[']).next().unwrap_or_default()
}

/// Whether a reference in the expressions satisfies the predicate.
fn any_reference(expressions: &Value, predicate: &dyn Fn(&str) -> bool) -> bool {
    match expressions {
        Value::Object(members) => {
            let references = members.get("references").and_then(Value::as_array);
            let mut texts = references.into_iter().flatten().filter_map(Value::as_str);
            texts.any(predicate) || members.values().any(|inner| any_reference(inner, predicate))
        }
        Value::Array(elements) => elements.iter().any(|inner| any_reference(inner, predicate)),
        _ => false,
    }
}

/// Whether a hidden input may depend on a data source, a resource or a module.
pub(super) fn has_hidden_inputs(configuration: &Value, changes: &[ResourceChange]) -> bool {
    let root = &configuration["root_module"];
    let deletes = changes.iter().any(|change| change.change.acts("delete"));
    in_provider_settings(&configuration["provider_config"])
        || in_provisioners(root, true, deletes)
        || write_only::has_hidden_inputs(root, changes)
}

/// Providers of child modules are listed beside those of the root. Their variables are what the caller of the module passes.
fn in_provider_settings(settings: &Value) -> bool {
    let mut providers = settings.as_object().into_iter().flatten();
    providers.any(|(_, provider)| {
        let is_root = provider["module_address"].as_str().unwrap_or_default().is_empty();
        // Only OpenTofu has `for_each` for providers, and permits only inputs in it.
        let scope = Scope {
            is_derived_variable: &|_| !is_root,
            is_derived_each: false,
        };
        scope.is_derived(provider)
    })
}

/// Whether the command of a provisioner may depend on more than inputs. The plan does not show the connection of a remote provisioner,
/// and no change shows the values of a deleted resource.
fn in_provisioners(module: &Value, is_root: bool, deletes: bool) -> bool {
    let mut resources = module["resources"].as_array().into_iter().flatten();
    let mut calls = module["module_calls"].as_object().into_iter().flatten();
    resources.any(|resource| {
        let scope = Scope {
            is_derived_variable: &|_| !is_root,
            is_derived_each: false,
        };
        let scope = scope.with_for_each(&resource["for_each_expression"]);
        let mut provisioners = resource["provisioners"].as_array().into_iter().flatten();
        provisioners.any(|provisioner| {
            let uses_self = || any_reference(provisioner, &|reference| root_of(reference) == "self");
            provisioner["type"] != "local-exec" || scope.is_derived(provisioner) || deletes && uses_self()
        })
    }) || calls.any(|(_, call)| in_provisioners(&call["module"], false, deletes))
}

#[cfg(test)]
mod tests;
