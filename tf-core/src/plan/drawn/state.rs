//! The values of a state (pure), as digests: what they are is nobody's, whether they are the same is all that counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::plan::effect::plain;

/// The values of a state, data among them: a digest for each address. None of them is in memory longer than it is read.
#[derive(Clone, Debug, Default, Deserialize)]
pub(in crate::plan) struct State {
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
    pub(in crate::plan) fn digests(&self) -> BTreeMap<&str, &str> {
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
