//! The formats of `-o`.

use serde::Serialize;
use serde_json::{Value, json};

use crate::CliError;

/// The value of `-o`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OutputFormat {
    /// A table.
    #[default]
    Table,
    /// A table with more columns.
    Wide,
    /// The objects as JSON.
    Json,
    /// The objects as YAML.
    Yaml,
    /// Kind and name, one object a line.
    Name,
}

/// The formats of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ReportFormat {
    /// A text for users.
    #[default]
    Table,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

impl ReportFormat {
    /// Returns the report in this format; `None` for the text for users. `fields` builds the fields of the report.
    ///
    /// # Errors
    /// It cannot be serialised.
    pub(crate) fn document(
        self,
        kind: &str,
        fields: impl FnOnce() -> Result<Value, CliError>,
    ) -> Result<Option<String>, CliError> {
        match self {
            Self::Table => Ok(None),
            Self::Json => to_json(&report(kind, fields()?)).map(Some),
            Self::Yaml => to_yaml(&report(kind, fields()?)).map(Some),
        }
    }
}

/// The version of the reports as JSON and YAML. It changes when a field is renamed or removed; see docs/reference/cli.md.
pub(crate) const REPORT_VERSION: &str = "cli.sluice.dev/v1alpha1";

/// Returns a report: its version, its kind, and its fields.
pub(crate) fn report(kind: &str, mut fields: Value) -> Value {
    fields["apiVersion"] = json!(REPORT_VERSION);
    fields["kind"] = json!(kind);
    fields
}

/// Formats one document.
///
/// # Errors
/// It cannot be serialised.
pub fn to_json(document: &impl Serialize) -> Result<String, CliError> {
    serde_json::to_string_pretty(document).map_err(|error| CliError::Format(error.to_string()))
}

/// Formats one document as YAML.
///
/// # Errors
/// As [`to_json`].
pub fn to_yaml(document: &impl Serialize) -> Result<String, CliError> {
    serde_yaml_ng::to_string(document).map_err(|error| CliError::Format(error.to_string()))
}

/// Returns the list of these objects, as `kubectl get -o json` prints it. It is a list for one object too: a script reads `items`,
/// however many there are.
///
/// # Errors
/// An object cannot be serialised.
pub fn list_of(objects: &[impl Serialize]) -> Result<Value, CliError> {
    let items = to_values(objects)?;
    Ok(json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": items }))
}

/// Returns the objects as values, to put objects of several kinds into one list.
///
/// # Errors
/// An object cannot be serialised.
pub fn to_values(objects: &[impl Serialize]) -> Result<Vec<Value>, CliError> {
    let values = objects.iter().map(serde_json::to_value);
    values
        .collect::<Result<_, _>>()
        .map_err(|error| CliError::Format(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_a_list_for_any_number_of_objects() {
        assert_eq!(to_json(&json!({"a": 1})).unwrap(), "{\n  \"a\": 1\n}");
        assert_eq!(to_yaml(&json!({"a": 1})).unwrap(), "a: 1\n");
        for count in 0..3 {
            let objects = vec![json!({"a": 1}); count];
            let list = list_of(&objects).unwrap();
            assert_eq!(list["kind"], "List");
            assert_eq!(list["items"].as_array().map(Vec::len), Some(count));
        }
    }
}
