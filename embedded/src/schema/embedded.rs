//! `x-kubernetes-embedded-resource`: an object within an object says what it is.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::error::FieldError;
use super::node::Node;
use super::path;

/// RFC 1035 label, what a kind is in lower case.
const LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
static KIND: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&format!("^{LABEL}$")).ok());

/// The errors of all embedded resources below `value`. Their metadata is kept as it is.
pub(super) fn check(value: &Value, node: &Node, at: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            if node.extensions.embedded_resource {
                check_type(value, at, errors);
            }
            for (name, field) in fields {
                if let Some(below) = node.properties.get(name) {
                    check(field, below, &path::child(at, name), errors);
                } else if let Some(below) = node.additional_schema() {
                    check(field, below, &path::key(at, name), errors);
                }
            }
        }
        Value::Array(entries) => {
            let Some(below) = &node.items else { return };
            for (i, entry) in entries.iter().enumerate() {
                check(entry, below, &path::index(at, i), errors);
            }
        }
        _ => {}
    }
}

fn check_type(value: &Value, at: &str, errors: &mut Vec<FieldError>) {
    for field in ["apiVersion", "kind"] {
        let place = path::child(at, field);
        match value.get(field) {
            None => errors.push(FieldError::required(place, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(place, "", "must not be empty"));
            }
            Some(Value::String(text)) => {
                let wrong = if field == "kind" {
                    wrong_kind(text)
                } else {
                    wrong_version(text)
                };
                errors.extend(wrong.map(|detail| FieldError::invalid(place, text.as_str(), detail)));
            }
            Some(other) => errors.push(FieldError::invalid(place, other.clone(), "must be a string")),
        }
    }
}

fn wrong_version(text: &str) -> Option<String> {
    (text.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {text}"))
}

fn wrong_kind(text: &str) -> Option<String> {
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
