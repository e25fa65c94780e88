//! The part of a plan's JSON that says what will happen. Everything else is skipped or digested while it is read, so that a
//! large prior state costs no memory.

use std::collections::BTreeMap;
use std::io::Read;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::drawn::{self, State};

/// Largest plan JSON that is read.
pub const LIMIT: u64 = 256 * 1024 * 1024;

/// A plan, as `show -json` prints it, less what is volatile or no effect.
#[derive(Clone, Debug, Default, serde::Deserialize)]
pub struct PlanDocument {
    /// What happens to resources.
    #[serde(default)]
    pub resource_changes: Vec<ResourceChange>,
    /// What happens to outputs.
    #[serde(default)]
    pub output_changes: BTreeMap<String, Change>,
    /// Members of formats to come: they count as effects until it is known what they are.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
    #[serde(default, rename = "timestamp")]
    _timestamp: IgnoredAny,
    #[serde(default, rename = "format_version")]
    _format_version: IgnoredAny,
    #[serde(default, rename = "terraform_version")]
    _terraform_version: IgnoredAny,
    #[serde(default)]
    variables: Value,
    #[serde(default, rename = "planned_values")]
    _planned_values: IgnoredAny,
    #[serde(default)]
    prior_state: State,
    #[serde(default)]
    configuration: Value,
    #[serde(default, rename = "relevant_attributes")]
    _relevant_attributes: IgnoredAny,
    #[serde(default, rename = "checks")]
    _checks: IgnoredAny,
    #[serde(default, rename = "resource_drift")]
    _resource_drift: IgnoredAny,
    #[serde(default, rename = "applyable")]
    _applyable: IgnoredAny,
    #[serde(default, rename = "complete")]
    _complete: IgnoredAny,
    #[serde(default, rename = "errored")]
    _errored: IgnoredAny,
}

/// One resource instance and what happens to it.
#[derive(Clone, Debug, Default, serde::Deserialize)]
pub struct ResourceChange {
    /// Full address, with module and index.
    #[serde(default)]
    pub address: String,
    /// Where it was before it moved.
    #[serde(default)]
    pub previous_address: Option<String>,
    /// Key of a deposed object.
    #[serde(default)]
    pub deposed: Option<String>,
    /// `managed` or `data`.
    #[serde(default)]
    pub mode: String,
    /// Resource type.
    #[serde(default, rename = "type")]
    pub type_: String,
    /// Address of the provider.
    #[serde(default)]
    pub provider_name: String,
    /// Why the CLI chose the action.
    #[serde(default)]
    pub action_reason: Option<String>,
    /// The change itself.
    #[serde(default)]
    pub change: Change,
}

/// Before and after, with what is unknown and what is sensitive.
#[derive(Clone, Debug, Default, serde::Deserialize)]
pub struct Change {
    /// For example `["create"]` or `["delete", "create"]`.
    #[serde(default)]
    pub actions: Vec<String>,
    /// Value before.
    #[serde(default)]
    pub before: Value,
    /// Value after, as far as it is known.
    #[serde(default)]
    pub after: Value,
    /// `true` at the places that are known only after the apply.
    #[serde(default)]
    pub after_unknown: Value,
    /// `true` at the places of `before` that are sensitive.
    #[serde(default)]
    pub before_sensitive: Value,
    /// `true` at the places of `after` that are sensitive.
    #[serde(default)]
    pub after_sensitive: Value,
    /// Places that force a replacement.
    #[serde(default)]
    pub replace_paths: Value,
    /// Set when the resource is imported.
    #[serde(default)]
    pub importing: Option<Value>,
}

impl PlanDocument {
    /// The values of variables that the module declares as sensitive.
    pub fn sensitive_variables(&self) -> impl Iterator<Item = &Value> {
        let declared = self.configuration["root_module"]["variables"].as_object();
        let sensitive = declared
            .into_iter()
            .flatten()
            .filter(|(_, declared)| declared["sensitive"] == true);
        sensitive.filter_map(|(name, _)| self.variables.get(name)?.get("value"))
    }

    /// Digests of the values in the state, by address, where what no change shows draws upon them: files that planning made
    /// (`made`), or what the configuration tells of.
    pub(super) fn drawn_upon(&self, made: bool) -> Option<BTreeMap<&str, &str>> {
        let drawn = made || drawn::draws(&self.configuration, &self.resource_changes);
        drawn.then(|| self.prior_state.digests())
    }
}

impl Change {
    /// The actions, without their order.
    #[must_use]
    pub fn acts(&self, action: &str) -> bool {
        self.actions.iter().any(|held| held == action)
    }

    /// True when nothing happens.
    #[must_use]
    pub fn is_no_op(&self) -> bool {
        self.actions.is_empty() || self.actions == ["no-op"]
    }
}

impl ResourceChange {
    /// True when the entry is an effect: no data read, and no no-op that neither moves nor imports.
    #[must_use]
    pub fn is_effect(&self) -> bool {
        let read = self.change.actions == ["read"];
        let moved = self.previous_address.is_some() || self.change.importing.is_some();
        !read && (moved || !self.change.is_no_op())
    }
}

/// Why a plan's JSON cannot be read. The parser's words are left out: they may quote a value.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It is larger than [`LIMIT`].
    #[error("the plan's JSON is larger than {LIMIT} bytes")]
    TooLarge,
    /// It is not the JSON that the CLI promises.
    #[error("the plan's JSON is not understood (line {line}, column {column})")]
    Malformed {
        /// Line of the first surprise.
        line: usize,
        /// Column of the first surprise.
        column: usize,
    },
}

/// Reads a plan's JSON while it streams, at most [`LIMIT`] bytes of it.
///
/// # Errors
/// When it is too large or malformed.
pub fn parse(source: impl Read) -> Result<PlanDocument, DocumentError> {
    parse_within(source, LIMIT)
}

fn parse_within(source: impl Read, limit: u64) -> Result<PlanDocument, DocumentError> {
    let mut limited = source.take(limit);
    let exact = super::exact::Exact::new(&mut limited);
    let parsed = serde_json::from_reader(std::io::BufReader::new(exact));
    match parsed {
        Ok(document) => Ok(document),
        Err(_) if limited.limit() == 0 => Err(DocumentError::TooLarge),
        Err(error) => Err(DocumentError::Malformed {
            line: error.line(),
            column: error.column(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn volatile_members_are_skipped_and_unknown_ones_kept() {
        let text = r#"{"timestamp":"t","variables":{"x":{"value":"hunter2"}},"resource_changes":[],"new_member":{"a":1}}"#;
        let plan = parse(text.as_bytes()).unwrap();
        assert_eq!(plan.other.keys().collect::<Vec<_>>(), ["new_member"]);
    }

    #[test]
    fn too_large_and_malformed_are_told_apart() {
        assert!(matches!(
            parse_within(r#"{"variables": 1}"#.as_bytes(), 5),
            Err(DocumentError::TooLarge)
        ));
        let error = parse(r#"{"resource_changes": "hunter2"}"#.as_bytes()).unwrap_err();
        assert!(matches!(error, DocumentError::Malformed { .. }) && !error.to_string().contains("hunter2"));
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(bytes.as_slice());
        }
    }
}
