//! The values of the prior state as digests, which suffice to compare them.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::plan::effect::canonical_leaves;

/// The prior state, including data sources, with a digest for each address. Values are dropped while the state streams.
#[derive(Clone, Debug, Default, Deserialize)]
pub(in crate::plan) struct PriorState {
    #[serde(default)]
    values: Option<Values>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Values {
    #[serde(default)]
    root_module: Module,
    #[serde(default)]
    #[expect(
        clippy::zero_sized_map_values,
        reason = "a set does not parse the object of a JSON; its values are dropped while they stream"
    )]
    outputs: BTreeMap<String, IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Module {
    #[serde(default)]
    resources: Vec<DigestedResource>,
    #[serde(default)]
    child_modules: Vec<Self>,
}

/// A resource as its address and the digest of its values.
#[derive(Clone, Debug)]
struct DigestedResource {
    address: String,
    digest: String,
}

impl<'de> Deserialize<'de> for DigestedResource {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Resource {
            #[serde(default)]
            address: String,
            #[serde(default)]
            deposed_key: String,
            #[serde(default)]
            values: Value,
        }
        let resource = Resource::deserialize(from)?;
        Ok(Self {
            address: format!("{} {}", resource.address, resource.deposed_key)
                .trim_end()
                .to_owned(),
            digest: hex::encode(Sha256::digest(canonical_leaves(&resource.values))),
        })
    }
}

impl PriorState {
    /// Whether it has neither resources nor outputs, apart from new outputs, which the CLI shows too if it knows their values. The CLI
    /// omits an empty state.
    pub(in crate::plan) fn is_empty(&self, is_new_output: impl Fn(&str) -> bool) -> bool {
        self.values.as_ref().is_none_or(|values| {
            let module = &values.root_module;
            module.resources.is_empty()
                && module.child_modules.is_empty()
                && values.outputs.keys().all(|name| is_new_output(name))
        })
    }

    /// Returns the digests by address; the address of a deposed object ends with its key.
    pub(in crate::plan) fn digests(&self) -> BTreeMap<&str, &str> {
        let mut found = BTreeMap::new();
        let mut pending: Vec<_> = self.values.iter().map(|values| &values.root_module).collect();
        while let Some(module) = pending.pop() {
            let resources = module.resources.iter();
            found.extend(resources.map(|resource| (resource.address.as_str(), resource.digest.as_str())));
            pending.extend(&module.child_modules);
        }
        found
    }
}
