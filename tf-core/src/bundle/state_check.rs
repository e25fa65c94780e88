//! What a run compares the state with that the CLI finds, as the bundle stores it.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use sluice_api::run::state::KnownState;

/// What the state that the CLI finds is compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StateCheck {
    /// The fields of the spec that determine where the state is, as in [`StateIdentity::location`].
    ///
    /// [`StateIdentity::location`]: sluice_api::run::state::StateIdentity::location
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub location: BTreeMap<String, String>,
    /// The state that the last apply left, if it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<KnownState>,
    /// The Secrets with states that commands of the run use, if labels of the spec select them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<StateSecrets>,
    /// An earlier form of `secrets`, which stored plans and last applied records may have. It is not used.
    #[serde(default, skip_serializing, rename = "secret")]
    _secret: Ignored,
}

/// The value of a field that is not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ignored;

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(value).map(|_| Self)
    }
}

/// Secrets with states of the kubernetes backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StateSecrets {
    /// Their names, in the namespace of the stack: the state of the workspace `default`, in which `init` runs, and that of the
    /// stack's workspace.
    pub names: BTreeSet<String>,
    /// `backendConfig.labels`. Terraform finds a state by them.
    pub labels: BTreeMap<String, String>,
}

impl StateCheck {
    pub(super) fn is_unset(&self) -> bool {
        *self == Self::default()
    }
}
