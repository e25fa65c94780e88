//! Renders `spec.values`: its JSON text is a template over `readInputsFromSecrets` whose result is JSON. Pure.

use serde_json::{Map, Value};
use sluice_tf_core::template::{Delimiters, Functions, TemplateError, render};

/// Why `values` cannot be rendered. Contains no value of a Secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValuesError {
    /// A template is invalid.
    #[error("spec.values: {0}; quote texts in a template with backquotes")]
    Template(#[from] TemplateError),
    /// A result makes the JSON invalid.
    #[error(
        "spec.values is not valid JSON after its templates are rendered (column {column}): a result in a text must not \
         contain quotes, backslashes or line breaks"
    )]
    NotJson {
        /// The column of the error.
        column: usize,
    },
}

/// Renders the templates in `values` with the inputs from the Secrets.
///
/// # Errors
/// [`ValuesError`].
pub(crate) fn render_values(values: &Value, inputs: Map<String, Value>) -> Result<Value, ValuesError> {
    let text = values.to_string();
    if !text.contains("${{") {
        return Ok(values.clone());
    }
    let rendered = render(
        &text,
        Delimiters::DollarCurly,
        Functions::BuiltIn,
        &Value::Object(inputs),
    )?;
    serde_json::from_str(&rendered).map_err(|error| ValuesError::NotJson {
        column: error.column(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(values: &Value) -> Result<Value, ValuesError> {
        let inputs = json!({ "net": { "id": "vpc-1", "count": 3.0, "on": true, "zones": ["a", "b"], "bad": "hunter2\"\n" } });
        render_values(values, inputs.as_object().unwrap().clone())
    }

    #[test]
    fn placeholders_become_texts_and_other_values_keep_their_types() {
        let values = json!({ "id": "${{ .net.id }}", "both": "${{ .net.id }}-${{ .net.count }}", "n": 7, "list": [true, "{{ x }}"],
            "zones": "${{ range .net.zones }}<${{ . }}>${{ end }}", "if": "${{ if eq .net.id `vpc-1` }}yes${{ end }}" });
        assert_eq!(
            of(&values).unwrap(),
            json!({ "id": "vpc-1", "both": "vpc-1-3", "n": 7, "list": [true, "{{ x }}"], "zones": "<a><b>", "if": "yes" })
        );
        assert_eq!(of(&json!("plain")).unwrap(), json!("plain"));
    }

    #[test]
    fn a_mismatched_value_is_reported_but_not_quoted() {
        let error = of(&json!({ "a": "${{ .net.bad }}" })).unwrap_err();
        assert!(matches!(error, ValuesError::NotJson { .. }));
        assert!(!format!("{error} {error:?}").contains("hunter2"));
        let error = of(&json!({ "a": "${{ index .net \"id\" }}" }))
            .unwrap_err()
            .to_string();
        assert!(error.contains("backquotes"), "{error}");
        let error = of(&json!("${{ upper .net.id }}")).unwrap_err().to_string();
        assert!(error.contains("\"upper\" is not defined here"), "{error}");
    }
}
