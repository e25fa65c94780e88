//! Validation of single values: type, enumeration, string, format, number.

use serde_json::{Number, Value};

use super::{Location, ValidationResult, Violation};
use crate::schema::error::FieldError;
use crate::schema::format::Format;
use crate::schema::go_format;

/// Returns the JSON type of a value, and the format of its type in Go.
fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

/// The largest integer that a float represents exactly.
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;

/// Whether a float is an integer, within a rounding error.
fn is_integral(value: f64) -> bool {
    if !value.is_finite() || value.abs() > MAX_EXACT {
        return false;
    }
    value.fract() == 0.0 || (value - value.trunc()).abs() < 1e-9 * value.abs().max(f64::MIN_POSITIVE)
}

pub(super) fn validate_type(location: &Location<'_>) -> ValidationResult {
    let (node, value) = (location.node, location.value);
    let expected = || node.types.join(",");
    if value.is_null() {
        if node.types.is_empty() || node.nullable {
            return ValidationResult::valid();
        }
        return ValidationResult::invalid_with(location.wrong_type(&expected(), "null"));
    }
    let (actual, implied) = type_of(value);
    let is_whole = value.as_f64().is_some_and(is_integral);
    let fits = node.allows_type(actual)
        || (actual == "number" && is_whole && node.allows_type("integer"))
        || (actual == "integer" && node.allows_type("number"));
    let is_text = matches!(value, Value::String(_) | Value::Array(_));
    if let Some(format) = &node.format {
        if !is_text && !fits {
            return ValidationResult::invalid_with(location.wrong_type(&format.name, implied));
        }
        // A format on a node that is not numeric accepts strings and lists of any type: the format check decides.
        if is_text && !node.allows_type("number") && !node.allows_type("integer") {
            return ValidationResult::valid();
        }
    }
    if fits {
        ValidationResult::valid()
    } else {
        ValidationResult::invalid_with(location.wrong_type(&expected(), actual))
    }
}

pub(super) fn validate_enumeration(location: &Location<'_>) -> ValidationResult {
    let allowed = &location.node.enumeration;
    let is_allowed = |entry: &Value| !entry.is_null() && is_equal(entry, location.value);
    if allowed.is_empty() || allowed.iter().any(is_allowed) {
        return ValidationResult::default();
    }
    let text = |entry: &Value| {
        entry
            .as_str()
            .map_or_else(|| go_format::json(entry), str::to_owned)
    };
    let supported: Vec<String> = allowed.iter().map(text).collect();
    let list = supported.join(" ");
    let message = format!("{} in body should be one of [{list}]", location.path);
    let error = FieldError::not_supported(location.field(), location.value.clone(), &supported);
    ValidationResult::invalid_with(Violation { message, error })
}

/// Whether values are equal; numbers are compared by value.
fn is_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        (left, right) => left == right,
    }
}

pub(super) fn validate_string(location: &Location<'_>, string: &str) -> ValidationResult {
    let size_limits = &location.node.size_limits;
    let length = i64::try_from(string.chars().count()).unwrap_or(i64::MAX);
    if let Some(limit) = size_limits.max_length.filter(|limit| length > *limit) {
        let message = format!("{} in body should be at most {limit} chars long", location.path);
        let error = FieldError::too_long(location.field(), limit);
        return ValidationResult::invalid_with(Violation { message, error });
    }
    if let Some(limit) = size_limits.min_length.filter(|limit| length < *limit) {
        let expectation = format!("should be at least {limit} chars long");
        return ValidationResult::invalid_with(location.invalid(string.into(), &expectation));
    }
    if let Some(pattern) = &location.node.pattern
        && !pattern.is_match(string)
    {
        let expectation = format!("should match '{}'", pattern.source);
        return ValidationResult::invalid_with(location.invalid(string.into(), &expectation));
    }
    ValidationResult::default()
}

pub(super) fn validate_format(location: &Location<'_>, string: &str, format: &Format) -> ValidationResult {
    if format.is_valid(string) {
        return ValidationResult::default();
    }
    ValidationResult::invalid_with(location.wrong_type(&format.name, string))
}

pub(super) fn validate_number(location: &Location<'_>, number: &Number) -> ValidationResult {
    let number_limits = &location.node.number_limits;
    let value = GoNumber::of(number);
    let mut result = ValidationResult::valid();
    if let Some(factor) = number_limits.multiple_of
        && let Some(violation) = validate_multiple(location, &value, factor)
    {
        result.add(violation);
    }
    let minimum = (number_limits.minimum, number_limits.exclusive_minimum, "greater");
    let maximum = (number_limits.maximum, number_limits.exclusive_maximum, "less");
    for ((limit, is_exclusive, relation), beyond) in [(minimum, f64::lt as Beyond), (maximum, f64::gt)] {
        let Some(limit) = limit else { continue };
        let (exceeds, equal, limit) = value.compare(limit, beyond);
        if exceeds || (is_exclusive && equal) {
            let or_equal = if is_exclusive { "" } else { " or equal to" };
            let expectation = format!("should be {relation} than{or_equal} {limit}");
            result.add(location.invalid(location.value.clone(), &expectation));
        }
    }
    result
}

/// Whether a number is beyond a limit.
type Beyond = fn(&f64, &f64) -> bool;

/// A number as Go's JSON decoder represents it. Limits are truncated where the value is an integer.
enum GoNumber {
    Integer(i64),
    Float(f64),
}

impl GoNumber {
    fn of(number: &Number) -> Self {
        number
            .as_i64()
            .map_or_else(|| Self::Float(number.as_f64().unwrap_or_default()), Self::Integer)
    }

    /// Returns whether the value is beyond the limit, whether it equals the limit, and the limit as text.
    fn compare(&self, limit: f64, beyond: Beyond) -> (bool, bool, String) {
        match self {
            Self::Integer(value) => {
                let limit = truncate(limit);
                // Integers are compared through the sign of their order, which is exact beyond 2^53.
                let side = match value.cmp(&limit) {
                    std::cmp::Ordering::Less => -1.0,
                    std::cmp::Ordering::Equal => 0.0,
                    std::cmp::Ordering::Greater => 1.0,
                };
                (beyond(&side, &0.0), *value == limit, limit.to_string())
            }
            Self::Float(value) => {
                let equal = value.partial_cmp(&limit).is_some_and(std::cmp::Ordering::is_eq);
                (beyond(value, &limit), equal, go_format::float(limit))
            }
        }
    }
}

/// Truncates a float to an integer, saturating.
#[expect(
    clippy::cast_possible_truncation,
    reason = "kube-apiserver truncates the limits of integers"
)]
fn truncate(value: f64) -> i64 {
    value as i64
}

fn validate_multiple(location: &Location<'_>, value: &GoNumber, factor: f64) -> Option<Violation> {
    let (is_multiple, factor_text, is_positive) = match value {
        GoNumber::Integer(value) => {
            let factor = truncate(factor);
            (factor > 0 && value % factor == 0, factor.to_string(), factor > 0)
        }
        GoNumber::Float(value) => {
            let quotient = if factor < 1.0 {
                1.0 / factor * value
            } else {
                value / factor
            };
            let is_positive = factor > 0.0;
            (
                is_positive && is_integral(quotient),
                go_format::float(factor),
                is_positive,
            )
        }
    };
    if is_multiple {
        return None;
    }
    if !is_positive {
        let message = format!(
            "factor MultipleOf declared for {} must be positive: {factor_text}",
            location.path
        );
        let error = FieldError::invalid(location.field(), truncate(factor), message.clone());
        return Some(Violation { message, error });
    }
    let expectation = format!("should be a multiple of {factor_text}");
    Some(location.invalid(location.value.clone(), &expectation))
}
