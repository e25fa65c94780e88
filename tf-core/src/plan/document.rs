//! The JSON of a plan, reduced to its changes. Other members are skipped or digested while they stream, so that a large prior state
//! needs no memory.

use std::collections::BTreeMap;
use std::io::Read;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::hidden_inputs::{PriorState, has_hidden_inputs};

/// Size limit of the JSON of a plan, in bytes.
pub const LIMIT: u64 = 256 * 1024 * 1024;

/// A plan as `show -json` prints it, without volatile members and members without effect.
#[derive(Clone, Debug, Default, serde::Deserialize)]
pub struct PlanDocument {
    /// Changes of resources.
    #[serde(default)]
    pub resource_changes: Vec<ResourceChange>,
    /// Changes of outputs.
    #[serde(default)]
    pub output_changes: BTreeMap<String, Change>,
    /// Unknown members of newer formats. They count as effects.
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
    prior_state: PriorState,
    #[serde(default)]
    configuration: Value,
    #[serde(default, rename = "relevant_attributes")]
    _relevant_attributes: IgnoredAny,
    #[serde(default, rename = "checks")]
    _checks: IgnoredAny,
    #[serde(default)]
    resource_drift: Option<IgnoredAny>,
    #[serde(default, rename = "applyable")]
    _applyable: IgnoredAny,
    #[serde(default, rename = "complete")]
    _complete: IgnoredAny,
    #[serde(default, rename = "errored")]
    _errored: IgnoredAny,
}

/// The change of a resource instance.
#[derive(Clone, Debug, Default, serde::Deserialize)]
pub struct ResourceChange {
    /// Full address, with module and index.
    #[serde(default)]
    pub address: String,
    /// The address before a move.
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
    /// The reason of the action.
    #[serde(default)]
    pub action_reason: Option<String>,
    /// The change.
    #[serde(default)]
    pub change: Change,
}

/// The values before and after a change, with marks for unknown and sensitive values.
#[derive(Clone, Debug, Default, serde::Deserialize)]
pub struct Change {
    /// For example `["create"]` or `["delete", "create"]`.
    #[serde(default)]
    pub actions: Vec<String>,
    /// The value before.
    #[serde(default)]
    pub before: Value,
    /// The value after, as far as known.
    #[serde(default)]
    pub after: Value,
    /// `true` at values that are known only after the apply.
    #[serde(default)]
    pub after_unknown: Value,
    /// `true` at sensitive values of `before`.
    #[serde(default)]
    pub before_sensitive: Value,
    /// `true` at sensitive values of `after`.
    #[serde(default)]
    pub after_sensitive: Value,
    /// Paths that force a replacement.
    #[serde(default)]
    pub replace_paths: Value,
    /// The import, if the resource is imported.
    #[serde(default)]
    pub importing: Option<Value>,
}

impl PlanDocument {
    /// Returns the values of input variables that are declared as sensitive.
    pub(crate) fn sensitive_variables(&self) -> impl Iterator<Item = &Value> {
        let declared = self.configuration["root_module"]["variables"].as_object();
        let sensitive = declared
            .into_iter()
            .flatten()
            .filter(|(_, declared)| declared["sensitive"] == true);
        sensitive.filter_map(|(name, _)| self.variables.get(name)?.get("value"))
    }

    /// Whether the plan was made from a state without resources and outputs. A resource that has disappeared is drift: the prior state,
    /// which is refreshed, lacks it. The CLI omits an empty list.
    #[must_use]
    pub fn has_empty_state(&self) -> bool {
        let is_new_output = |name: &str| {
            let change = self.output_changes.get(name);
            change.is_some_and(|change| change.actions == ["create"])
        };
        self.resource_drift.is_none() && self.prior_state.is_empty(is_new_output)
    }

    /// Returns the digests of the values in the prior state, by address, if hidden inputs may depend on them: generated files, or
    /// inputs in the configuration.
    pub(super) fn state_digests(&self, has_generated_files: bool) -> Option<BTreeMap<&str, &str>> {
        let is_needed = has_generated_files || has_hidden_inputs(&self.configuration, &self.resource_changes);
        is_needed.then(|| self.prior_state.digests())
    }
}

impl Change {
    /// Whether the actions contain this one.
    #[must_use]
    pub fn acts(&self, action: &str) -> bool {
        self.actions.iter().any(|each| each == action)
    }

    /// Whether nothing changes.
    #[must_use]
    pub(crate) fn is_no_op(&self) -> bool {
        self.actions.is_empty() || self.actions == ["no-op"]
    }
}

impl ResourceChange {
    /// Whether the entry is an effect: anything except the read of a data source, and a no-op without move or import.
    #[must_use]
    pub(crate) fn is_effect(&self) -> bool {
        let read = self.change.actions == ["read"];
        let moved = self.previous_address.is_some() || self.change.importing.is_some();
        !read && (moved || !self.change.is_no_op())
    }
}

/// The JSON of a plan cannot be read. The error of the parser is omitted, since it may quote a value.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It exceeds [`LIMIT`].
    #[error("the plan's JSON is larger than {LIMIT} bytes")]
    TooLarge,
    /// It is malformed.
    #[error("the plan's JSON is invalid (line {line}, column {column})")]
    Malformed {
        /// Line of the error.
        line: usize,
        /// Column of the error.
        column: usize,
    },
}

/// Parses the JSON of a plan while it streams.
///
/// # Errors
/// It exceeds [`LIMIT`], or is malformed.
pub fn parse(source: impl Read) -> Result<PlanDocument, DocumentError> {
    parse_within(source, LIMIT)
}

fn parse_within(source: impl Read, limit: u64) -> Result<PlanDocument, DocumentError> {
    let mut limited = source.take(limit);
    let exact = super::exact_numbers::ExactNumberReader::new(&mut limited);
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn volatile_members_are_skipped_and_unknown_ones_retained() {
        let text = r#"{"timestamp":"t","variables":{"x":{"value":"hunter2"}},"resource_changes":[],"new_member":{"a":1}}"#;
        let plan = parse(text.as_bytes()).unwrap();
        assert_eq!(plan.other.keys().collect::<Vec<_>>(), ["new_member"]);
    }

    #[test]
    fn too_large_and_malformed_documents_are_distinguished() {
        assert!(matches!(
            parse_within(r#"{"variables": 1}"#.as_bytes(), 5),
            Err(DocumentError::TooLarge)
        ));
        let error = parse(r#"{"resource_changes": "hunter2"}"#.as_bytes()).unwrap_err();
        assert!(matches!(error, DocumentError::Malformed { .. }) && !error.to_string().contains("hunter2"));
    }

    #[test]
    fn a_state_is_empty_without_resources_outputs_and_drift() {
        let is_empty = |members: &str| parse(members.as_bytes()).unwrap().has_empty_state();
        let prior =
            |values: &str| format!(r#"{{"prior_state":{{"format_version":"1.0","values":{values}}}}}"#);
        assert!(is_empty("{}") && is_empty(&prior(r#"{"outputs":{},"root_module":{}}"#)));
        let with_output = |action: &str| {
            let state = r#"{"values":{"outputs":{"o":{"value":1,"sensitive":false}},"root_module":{}}}"#;
            format!(r#"{{"output_changes":{{"o":{{"actions":["{action}"]}}}},"prior_state":{state}}}"#)
        };
        // Terraform 1.11 shows a new output whose value it knows.
        assert!(is_empty(&with_output("create")));
        for stored in ["no-op", "update", "delete"] {
            assert!(!is_empty(&with_output(stored)), "{stored}");
        }
        let resource = r#"{"address":"a.b","values":{}}"#;
        for full in [
            prior(r#"{"outputs":{"o":{"value":1,"sensitive":false}}}"#),
            prior(&format!(r#"{{"root_module":{{"resources":[{resource}]}}}}"#)),
            prior(r#"{"root_module":{"child_modules":[{"address":"module.a"}]}}"#),
            r#"{"resource_drift":[{"address":"a.b","change":{"actions":["delete"]}}]}"#.to_owned(),
        ] {
            assert!(!is_empty(&full), "{full}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(bytes.as_slice());
        }
    }
}
