//! Structural validation: types, bounds, enumerations, patterns, formats and the combinators.
//!
//! It walks as the API server's validator does, order and match counts included: of several failed alternatives the one
//! with the most passed checks is reported. On an update, errors inside a part that did not change are let pass.

mod combine;
mod container;
mod scalar;

use serde_json::Value;

use super::correlate::Correlation;
use super::error::{ErrorKind, FieldError};
use super::node::Node;
use super::text;

/// What one walk found.
#[derive(Default)]
pub(super) struct Outcome {
    findings: Vec<Finding>,
    /// How many checks passed: picks the alternative whose errors are reported.
    matches: usize,
}

/// One error, with the text by which repetitions are recognised.
struct Finding {
    message: String,
    error: FieldError,
}

/// One value with its place: what every check is given.
#[derive(Clone, Copy)]
struct Site<'a> {
    value: &'a Value,
    node: &'a Node,
    at: &'a str,
    old: Option<Correlation<'a>>,
}

impl Outcome {
    fn is_valid(&self) -> bool {
        self.findings.is_empty()
    }

    fn passed() -> Self {
        Self {
            findings: Vec::new(),
            matches: 1,
        }
    }

    fn failed(finding: Finding) -> Self {
        Self {
            findings: vec![finding],
            matches: 0,
        }
    }

    fn add(&mut self, finding: Finding) {
        if !self.findings.iter().any(|known| known.message == finding.message) {
            self.findings.push(finding);
        }
    }

    fn merge(&mut self, other: Self) {
        self.matches += other.matches;
        for finding in other.findings {
            self.add(finding);
        }
    }

    /// The errors, with `prefix` before their paths.
    pub(super) fn into_errors(self, prefix: &str) -> Vec<FieldError> {
        let placed = self.findings.into_iter().map(|finding| {
            let mut error = finding.error;
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

impl Site<'_> {
    /// Where errors point to: names of free keys at the root begin with a dot that is left out.
    fn field(&self) -> &str {
        self.at.strip_prefix('.').unwrap_or(self.at)
    }

    fn invalid(&self, shown: Value, expectation: &str) -> Finding {
        let message = format!("{} in body {expectation}", self.at);
        Finding {
            error: FieldError::invalid(self.field(), shown, message.clone()),
            message,
        }
    }

    fn wrong_type(&self, expected: &str, actual: &str) -> Finding {
        let message = format!(
            "{} in body must be of type {expected}: {}",
            self.at,
            text::quote(actual)
        );
        let error = FieldError::new(
            self.field(),
            ErrorKind::TypeInvalid,
            Value::from(actual),
            message.clone(),
        );
        Finding { message, error }
    }

    /// An error of the whole object: the combinators do not say where.
    fn whole(message: String) -> Finding {
        Finding {
            error: FieldError::invalid("", "", message.clone()),
            message,
        }
    }
}

/// Checks `value` and everything in it.
pub(super) fn validate(value: &Value, node: &Node, at: &str, old: Option<Correlation<'_>>) -> Outcome {
    let outcome = check(Site { value, node, at, old });
    // Ratcheting: what was stored with this error before stays updatable.
    if !outcome.is_valid() && old.is_some_and(|old| old.is_unchanged(value)) {
        return Outcome {
            findings: Vec::new(),
            matches: outcome.matches,
        };
    }
    outcome
}

fn check(site: Site<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    if site.value.is_null() {
        outcome.merge(scalar::check_type(&site));
        outcome.merge(scalar::check_enumeration(&site));
        return outcome;
    }
    let mut step = |part: Outcome| {
        outcome.merge(part);
        outcome.matches += 1;
    };
    if !site.node.types.is_empty() || site.node.format.is_some() {
        step(scalar::check_type(&site));
    }
    step(combine::check(&site));
    match site.value {
        Value::String(string) => {
            step(scalar::check_string(&site, string));
            if let Some(format) = &site.node.format {
                step(scalar::check_format(&site, string, format));
            }
        }
        Value::Number(number) => step(scalar::check_number(&site, number)),
        Value::Array(entries) => step(container::check_list(&site, entries)),
        _ => {}
    }
    step(scalar::check_enumeration(&site));
    if let Value::Object(fields) = site.value {
        step(container::check_object(&site, fields));
    }
    outcome.matches += 1;
    outcome
}
