//! Structural validation: types, numeric limits, enumerations, patterns, formats and the combinators.
//!
//! The order and the match counts are those of kube-apiserver's validator, which reports the failed alternative with the most
//! passed checks. On an update, errors inside unchanged parts are ignored.

mod combinators;
mod container;
mod scalar;

use serde_json::Value;

use super::correlation::Correlation;
use super::error::{ErrorKind, FieldError};
use super::go_format;
use super::node::Node;

/// The result of validating a value.
#[derive(Default)]
pub(super) struct ValidationResult {
    violations: Vec<Violation>,
    /// Number of passed checks; selects the alternative whose errors are reported.
    matches: usize,
}

/// An error with the message that identifies duplicates.
struct Violation {
    message: String,
    error: FieldError,
}

/// A value with its schema, its path and the correlated old value.
#[derive(Clone, Copy)]
struct Location<'a> {
    value: &'a Value,
    node: &'a Node,
    path: &'a str,
    old: Option<Correlation<'a>>,
}

impl ValidationResult {
    fn is_valid(&self) -> bool {
        self.violations.is_empty()
    }

    fn valid() -> Self {
        Self {
            violations: Vec::new(),
            matches: 1,
        }
    }

    fn invalid_with(violation: Violation) -> Self {
        Self {
            violations: vec![violation],
            matches: 0,
        }
    }

    fn add(&mut self, violation: Violation) {
        let is_equal = |existing: &Violation| existing.message == violation.message;
        if !self.violations.iter().any(is_equal) {
            self.violations.push(violation);
        }
    }

    fn merge(&mut self, other: Self) {
        self.matches += other.matches;
        for violation in other.violations {
            self.add(violation);
        }
    }

    /// Returns the errors, with `prefix` before their paths.
    pub(super) fn into_errors(self, prefix: &str) -> Vec<FieldError> {
        let placed = self.violations.into_iter().map(|violation| {
            let mut error = violation.error;
            error.path = match (prefix, error.path.as_str()) {
                ("", _) => error.path,
                (prefix, super::error::WHOLE_OBJECT) => prefix.to_owned(),
                (prefix, path) => super::path::child(prefix, path),
            };
            error
        });
        placed.collect()
    }
}

impl Location<'_> {
    /// Returns the path for errors. Additional properties of the root have a leading dot, which is removed.
    fn field(&self) -> &str {
        self.path.strip_prefix('.').unwrap_or(self.path)
    }

    fn invalid(&self, bad_value: Value, expectation: &str) -> Violation {
        let message = format!("{} in body {expectation}", self.path);
        let error = FieldError::invalid(self.field(), bad_value, message.clone());
        Violation { message, error }
    }

    fn wrong_type(&self, expected: &str, actual: &str) -> Violation {
        let actual_text = go_format::quote(actual);
        let message = format!("{} in body must be of type {expected}: {actual_text}", self.path);
        let kind = ErrorKind::TypeInvalid;
        let error = FieldError::new(self.field(), kind, actual.into(), message.clone());
        Violation { message, error }
    }

    /// Creates an error of the whole object: the combinators report no path.
    fn whole(&self, expectation: &str) -> Violation {
        let message = format!("{} {expectation}", go_format::quote(self.path));
        let error = FieldError::invalid("", "", message.clone());
        Violation { message, error }
    }
}

/// Validates `value` and its descendants.
pub(super) fn validate(
    value: &Value,
    node: &Node,
    at: &str,
    old: Option<Correlation<'_>>,
) -> ValidationResult {
    let path = at;
    let mut result = validate_value(Location {
        value,
        node,
        path,
        old,
    });
    // Ratcheting: an object that was stored with this error can still be updated.
    if !result.is_valid() && old.is_some_and(|old| old.is_unchanged(value)) {
        result.violations.clear();
    }
    result
}

fn validate_value(location: Location<'_>) -> ValidationResult {
    let mut result = ValidationResult::default();
    if location.value.is_null() {
        result.merge(scalar::validate_type(&location));
        result.merge(scalar::validate_enumeration(&location));
        return result;
    }
    let mut step = |part: ValidationResult| {
        result.merge(part);
        result.matches += 1;
    };
    if !location.node.types.is_empty() || location.node.format.is_some() {
        step(scalar::validate_type(&location));
    }
    step(combinators::validate(&location));
    match location.value {
        Value::String(string) => {
            step(scalar::validate_string(&location, string));
            if let Some(format) = &location.node.format {
                step(scalar::validate_format(&location, string, format));
            }
        }
        Value::Number(number) => step(scalar::validate_number(&location, number)),
        Value::Array(entries) => step(container::validate_list(&location, entries)),
        _ => {}
    }
    step(scalar::validate_enumeration(&location));
    if let Value::Object(fields) = location.value {
        step(container::validate_object(&location, fields));
    }
    result.matches += 1;
    result
}
