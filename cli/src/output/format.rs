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

/// Formats a list of objects as `kubectl -o json` does: `{"apiVersion": "v1", "kind": "List", "items": [...]}`.
///
/// # Errors
/// An object cannot be serialised.
pub fn to_json(objects: &[impl Serialize]) -> Result<String, CliError> {
    let list = list(objects)?;
    serde_json::to_string_pretty(&list).map_err(|error| CliError::Format(error.to_string()))
}

/// Formats a list of objects as [`to_json`], as YAML.
///
/// # Errors
/// An object cannot be serialised.
pub fn to_yaml(objects: &[impl Serialize]) -> Result<String, CliError> {
    let list = list(objects)?;
    serde_yaml_ng::to_string(&list).map_err(|error| CliError::Format(error.to_string()))
}

/// One object stays itself, as in `kubectl get NAME -o json`; any other number becomes a list.
fn list(objects: &[impl Serialize]) -> Result<Value, CliError> {
    let items = objects
        .iter()
        .map(serde_json::to_value)
        .collect::<Result<Vec<_>, _>>();
    let mut items = items.map_err(|error| CliError::Format(error.to_string()))?;
    Ok(match items.len() {
        1 => items.remove(0),
        _ => json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": items }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_stays_itself() {
        assert_eq!(to_json(&[json!({"a": 1})]).unwrap(), "{\n  \"a\": 1\n}");
        let two = to_json(&[json!({"a": 1}), json!({"a": 2})]).unwrap();
        let two: Value = serde_json::from_str(&two).unwrap();
        assert_eq!(two["kind"], "List");
        assert_eq!(two["items"][1]["a"], 2);
        assert_eq!(to_yaml(&[json!({"a": 1})]).unwrap(), "a: 1\n");
    }
}
