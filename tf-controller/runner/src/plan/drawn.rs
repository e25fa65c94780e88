//! What the commands of provisioners and the settings of providers draw upon (pure): neither stands in a plan's changes, and
//! what they take from data or from a resource is no input of the stack. Where they take something the values of the state
//! count as a whole.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::effect::plain;

/// What a reference may begin with that is known by the inputs, or not before the resource itself.
const KNOWN: [&str; 6] = ["count", "each", "path", "self", "terraform", "tofu"];

/// Whether a provisioner or the settings of a provider take something from data, a resource or a module. A provisioner whose
/// connection the plan does not tell may always.
pub(super) fn draws(configuration: &Value) -> bool {
    let settings = &configuration["provider_config"];
    refers(settings, true) || module_draws(&configuration["root_module"], true)
}

fn module_draws(module: &Value, is_root: bool) -> bool {
    let mut resources = module["resources"].as_array().into_iter().flatten();
    let mut calls = module["module_calls"].as_object().into_iter().flatten();
    let provisioned =
        |provisioner: &Value| provisioner["type"] != "local-exec" || refers(provisioner, is_root);
    resources.any(|resource| {
        let mut all = resource["provisioners"].as_array().into_iter().flatten();
        all.any(provisioned)
    }) || calls.any(|(_, call)| module_draws(&call["module"], false))
}

/// Whether a reference in here leads to more than inputs do. A variable of a module is what its caller makes of it.
fn refers(expressions: &Value, is_root: bool) -> bool {
    match expressions {
        Value::Object(members) => {
            let references = members.get("references").and_then(Value::as_array);
            let mut texts = references.into_iter().flatten().filter_map(Value::as_str);
            texts.any(|text| leads_out(text, is_root)) || members.values().any(|inner| refers(inner, is_root))
        }
        Value::Array(elements) => elements.iter().any(|inner| refers(inner, is_root)),
        _ => false,
    }
}

fn leads_out(reference: &str, is_root: bool) -> bool {
    let first = reference.split(['.', '[']).next().unwrap_or_default();
    !(KNOWN.contains(&first) || is_root && first == "var")
}

/// The values of a state, data among them: a digest for each address. None of them is in memory longer than it is read.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct State {
    #[serde(default)]
    values: Option<Values>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Values {
    #[serde(default)]
    root_module: Module,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Module {
    #[serde(default)]
    resources: Vec<Reduced>,
    #[serde(default)]
    child_modules: Vec<Self>,
}

/// A resource of a state, of which its address and the digest of its values are left.
#[derive(Clone, Debug)]
struct Reduced {
    address: String,
    digest: String,
}

impl<'de> Deserialize<'de> for Reduced {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Whole {
            #[serde(default)]
            address: String,
            #[serde(default)]
            deposed_key: String,
            #[serde(default)]
            values: Value,
        }
        let whole = Whole::deserialize(from)?;
        Ok(Self {
            address: format!("{} {}", whole.address, whole.deposed_key)
                .trim_end()
                .to_owned(),
            digest: hex::encode(Sha256::digest(plain(&whole.values))),
        })
    }
}

impl State {
    /// The digests by address; a deposed object has its key behind the address.
    pub(super) fn digests(&self) -> BTreeMap<&str, &str> {
        let mut found = BTreeMap::new();
        let mut open: Vec<_> = self.values.iter().map(|values| &values.root_module).collect();
        while let Some(module) = open.pop() {
            let resources = module.resources.iter();
            found.extend(resources.map(|resource| (resource.address.as_str(), resource.digest.as_str())));
            open.extend(&module.child_modules);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn provisioner(kind: &str, references: &[&str]) -> Value {
        json!([{ "type": kind, "expressions": { "command": { "references": references } } }])
    }

    #[test]
    fn what_takes_nothing_but_inputs_draws_upon_nothing() {
        let root = |provisioners: &Value| json!({ "root_module": { "resources": [{ "provisioners": provisioners }] } });
        assert!(!draws(&Value::Null) && !draws(&root(&json!([]))));
        for references in [
            &[][..],
            &["self.id", "self"],
            &["var.a.b", "var.a"],
            &["path.module", "each.key", "count.index"],
        ] {
            assert!(
                !draws(&root(&provisioner("local-exec", references))),
                "{references:?}"
            );
        }
        for reference in ["data.a.b", "local.a", "module.m.o", "a_b.c[0].d"] {
            assert!(
                draws(&root(&provisioner("local-exec", &["var.a", reference]))),
                "{reference}"
            );
        }
        assert!(
            draws(&root(&provisioner("remote-exec", &[]))),
            "its connection is not told"
        );
        let called = |references: &[&str]| {
            let module = json!({ "resources": [{ "provisioners": provisioner("local-exec", references) }] });
            json!({ "root_module": { "module_calls": { "m": { "module": { "module_calls": { "n": { "module": module } } } } } } })
        };
        assert!(draws(&called(&["var.a"])) && !draws(&called(&["self.id"])));
        let settings = |references: &[&str]| json!({ "provider_config": { "p": { "expressions": { "block": [{ "host": { "references": references } }] } } } });
        assert!(draws(&settings(&["a_b.c.endpoint"])) && !draws(&settings(&["var.region"])));
    }

    #[test]
    fn each_value_of_a_state_counts() {
        let digests = |value: Value| {
            let module = json!({ "resources": [{ "address": "module.m.data.a.b", "values": value }] });
            let state = json!({ "values": { "root_module": { "resources": [{ "address": "a.b", "values": { "x": 1 } },
                { "address": "a.b", "deposed_key": "k", "values": {} }], "child_modules": [module] } } });
            let state: State = serde_json::from_value(state).unwrap();
            let found = state.digests();
            assert_eq!(
                found.keys().copied().collect::<Vec<_>>(),
                ["a.b", "a.b k", "module.m.data.a.b"]
            );
            found["module.m.data.a.b"].to_owned()
        };
        assert_ne!(digests(json!({ "y": "one" })), digests(json!({ "y": "two" })));
        assert!(State::default().digests().is_empty());
    }
}
