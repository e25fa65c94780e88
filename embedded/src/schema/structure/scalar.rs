//! Checks of single values: type, enumeration, string, format, number.

use serde_json::{Number, Value};

use super::{Finding, Outcome, Site};
use crate::schema::error::{ErrorKind, FieldError};
use crate::schema::format::Format;
use crate::schema::text;

/// The JSON type of a value and the format that its machine representation implies.
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

/// The largest integer that a float holds exactly.
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;

/// Whether a float stands for an integer, within a rounding error.
fn is_integral(value: f64) -> bool {
    if !value.is_finite() || value.abs() > MAX_EXACT {
        return false;
    }
    value.fract() == 0.0 || (value - value.trunc()).abs() < 1e-9 * value.abs().max(f64::MIN_POSITIVE)
}

pub(super) fn check_type(site: &Site<'_>) -> Outcome {
    let (node, value) = (site.node, site.value);
    let expected = || {
        if node.types.is_empty() {
            String::new()
        } else {
            node.types.join(",")
        }
    };
    if value.is_null() {
        if node.types.is_empty() || node.nullable {
            return Outcome::passed();
        }
        return Outcome::failed(site.wrong_type(&expected(), "null"));
    }
    let (actual, implied) = type_of(value);
    let is_whole = value.as_f64().is_some_and(is_integral);
    let fits = node.allows(actual)
        || (actual == "number" && is_whole && node.allows("integer"))
        || (actual == "integer" && node.allows("number"));
    let is_text = matches!(value, Value::String(_) | Value::Array(_));
    if let Some(format) = &node.format {
        if !is_text && !fits {
            return Outcome::failed(site.wrong_type(&format.name, implied));
        }
        // A known format on a node that is no number takes strings (and lists) as they are: the format decides.
        if is_text && !node.allows("number") && !node.allows("integer") {
            return Outcome::passed();
        }
    }
    if fits {
        Outcome::passed()
    } else {
        Outcome::failed(site.wrong_type(&expected(), actual))
    }
}

pub(super) fn check_enumeration(site: &Site<'_>) -> Outcome {
    let allowed = &site.node.enumeration;
    if allowed.is_empty()
        || allowed
            .iter()
            .any(|entry| !entry.is_null() && same(entry, site.value))
    {
        return Outcome::default();
    }
    let shown: Vec<String> = allowed
        .iter()
        .map(|entry| entry.as_str().map_or_else(|| text::json(entry), str::to_owned))
        .collect();
    let message = format!("{} in body should be one of [{}]", site.at, shown.join(" "));
    let error = FieldError::not_supported(site.field(), site.value.clone(), &shown);
    Outcome::failed(Finding { message, error })
}

/// Equal, numbers by value.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        (left, right) => left == right,
    }
}

pub(super) fn check_string(site: &Site<'_>, string: &str) -> Outcome {
    let sizes = &site.node.sizes;
    let length = i64::try_from(string.chars().count()).unwrap_or(i64::MAX);
    if let Some(limit) = sizes.max_length.filter(|limit| length > *limit) {
        let message = format!("{} in body should be at most {limit} chars long", site.at);
        return Outcome::failed(Finding {
            message,
            error: FieldError::too_long(site.field(), limit),
        });
    }
    if let Some(limit) = sizes.min_length.filter(|limit| length < *limit) {
        let expectation = format!("should be at least {limit} chars long");
        return Outcome::failed(site.invalid(string.into(), &expectation));
    }
    if let Some(pattern) = site
        .node
        .pattern
        .as_ref()
        .filter(|pattern| !pattern.is_match(string))
    {
        let expectation = format!("should match '{}'", pattern.source);
        return Outcome::failed(site.invalid(string.into(), &expectation));
    }
    Outcome::default()
}

pub(super) fn check_format(site: &Site<'_>, string: &str, format: &Format) -> Outcome {
    if format.is_valid(string) {
        return Outcome::default();
    }
    let message = format!(
        "{} in body must be of type {}: {}",
        site.at,
        format.name,
        text::quote(string)
    );
    let error = FieldError::new(
        site.field(),
        ErrorKind::TypeInvalid,
        string.into(),
        message.clone(),
    );
    Outcome::failed(Finding { message, error })
}

pub(super) fn check_number(site: &Site<'_>, number: &Number) -> Outcome {
    let bounds = &site.node.bounds;
    let value = Comparable::of(number);
    let mut outcome = Outcome::passed();
    let multiple = bounds
        .multiple_of
        .and_then(|factor| check_multiple(site, &value, factor));
    if let Some(finding) = multiple {
        outcome.add(finding);
    }
    if let Some(limit) = bounds.minimum {
        let (below, equal, shown) = value.compare(limit, f64::lt);
        if below || (bounds.exclusive_minimum && equal) {
            let relation = if bounds.exclusive_minimum {
                "greater than"
            } else {
                "greater than or equal to"
            };
            outcome.add(site.invalid(site.value.clone(), &format!("should be {relation} {shown}")));
        }
    }
    if let Some(limit) = bounds.maximum {
        let (above, equal, shown) = value.compare(limit, f64::gt);
        if above || (bounds.exclusive_maximum && equal) {
            let relation = if bounds.exclusive_maximum {
                "less than"
            } else {
                "less than or equal to"
            };
            outcome.add(site.invalid(site.value.clone(), &format!("should be {relation} {shown}")));
        }
    }
    outcome
}

/// A number as Go's JSON decoder holds it: bounds are cut to integers where the value is one.
enum Comparable {
    Integer(i64),
    Float(f64),
}

impl Comparable {
    fn of(number: &Number) -> Self {
        number
            .as_i64()
            .map_or_else(|| Self::Float(number.as_f64().unwrap_or_default()), Self::Integer)
    }

    /// Whether the value lies beyond the limit, equals it, and how the limit is shown.
    fn compare(&self, limit: f64, beyond: fn(&f64, &f64) -> bool) -> (bool, bool, String) {
        match self {
            Self::Integer(value) => {
                let limit = truncate(limit);
                // The order of integers, asked through the order of their signs: exact beyond 2^53.
                let side = match value.cmp(&limit) {
                    std::cmp::Ordering::Less => -1.0,
                    std::cmp::Ordering::Equal => 0.0,
                    std::cmp::Ordering::Greater => 1.0,
                };
                (beyond(&side, &0.0), *value == limit, limit.to_string())
            }
            Self::Float(value) => {
                let equal = value.partial_cmp(&limit).is_some_and(std::cmp::Ordering::is_eq);
                (beyond(value, &limit), equal, text::float(limit))
            }
        }
    }
}

/// A float cut to an integer, saturating.
#[expect(
    clippy::cast_possible_truncation,
    reason = "cutting is what the API server does with bounds of integers"
)]
fn truncate(value: f64) -> i64 {
    value as i64
}

fn check_multiple(site: &Site<'_>, value: &Comparable, factor: f64) -> Option<Finding> {
    let (is_multiple, shown, is_positive) = match value {
        Comparable::Integer(value) => {
            let factor = truncate(factor);
            (factor > 0 && value % factor == 0, factor.to_string(), factor > 0)
        }
        Comparable::Float(value) => {
            let quotient = if factor < 1.0 {
                1.0 / factor * value
            } else {
                value / factor
            };
            (
                factor > 0.0 && is_integral(quotient),
                text::float(factor),
                factor > 0.0,
            )
        }
    };
    if is_multiple {
        return None;
    }
    if !is_positive {
        let message = format!(
            "factor MultipleOf declared for {} must be positive: {shown}",
            site.at
        );
        let error = FieldError::invalid(site.field(), truncate(factor), message.clone());
        return Some(Finding { message, error });
    }
    Some(site.invalid(site.value.clone(), &format!("should be a multiple of {shown}")))
}
