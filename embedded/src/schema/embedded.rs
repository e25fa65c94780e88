//! `x-kubernetes-embedded-resource`: an object within an object, with its own apiVersion and kind.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::error::FieldError;
use super::node::Node;
use super::path;

/// RFC 1035 label: the form of a kind in lower case.
const LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
static KIND: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&format!("^{LABEL}$")).ok());

/// Validates all embedded resources below `value`, except their metadata.
pub(super) fn validate(value: &Value, node: &Node, at: &str, errors: &mut Vec<FieldError>) {
    if value.is_object() && node.extensions.embedded_resource {
        validate_type(value, at, errors);
    }
    for (entry, child, path) in node.entries(value, at) {
        validate(entry, child, &path, errors);
    }
}

fn validate_type(value: &Value, at: &str, errors: &mut Vec<FieldError>) {
    for field in ["apiVersion", "kind"] {
        let path = path::child(at, field);
        match value.get(field) {
            None => errors.push(FieldError::required(path, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(path, "", "must not be empty"));
            }
            Some(Value::String(text)) => {
                let wrong = if field == "kind" {
                    kind_error(text)
                } else {
                    version_error(text)
                };
                errors.extend(wrong.map(|detail| FieldError::invalid(path, text.as_str(), detail)));
            }
            Some(other) => errors.push(FieldError::invalid(path, other.clone(), "must be a string")),
        }
    }
}

fn version_error(text: &str) -> Option<String> {
    (text.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {text}"))
}

fn kind_error(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let is_label = lower.len() <= 63 && KIND.as_ref().is_none_or(|kind| kind.is_match(&lower));
    (!is_label).then(|| {
        format!(
            "may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric \
             characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. \
             'my-name',  or 'abc-123', regex used for validation is '{LABEL}')"
        )
    })
}
