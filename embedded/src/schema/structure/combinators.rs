//! `anyOf`, `oneOf`, `allOf` and `not`.

use super::{Location, ValidationResult};
use crate::schema::node::Node;

pub(super) fn validate(location: &Location<'_>) -> ValidationResult {
    let mut result = ValidationResult::default();
    let node = location.node;
    if !node.any_of.is_empty() {
        result.merge(validate_any_of(location, &node.any_of));
    }
    if !node.one_of.is_empty() {
        result.merge(validate_one_of(location, &node.one_of));
    }
    if !node.all_of.is_empty() {
        result.merge(validate_all_of(location, &node.all_of));
    }
    if let Some(not) = &node.not
        && validate_alternative(location, not).is_valid()
    {
        result.add(location.whole("must not validate the schema (not)"));
    }
    result.matches += 1;
    result
}

/// Validates one alternative, without ratcheting at this level.
fn validate_alternative(location: &Location<'_>, node: &Node) -> ValidationResult {
    super::validate_value(Location { node, ..*location })
}

/// Keeps the failed alternative with the most passed checks, the first of equals.
fn keep_best(best: &mut Option<ValidationResult>, failed: ValidationResult) {
    if best.as_ref().is_none_or(|best| failed.matches > best.matches) {
        *best = Some(failed);
    }
}

fn validate_any_of(location: &Location<'_>, alternatives: &[Node]) -> ValidationResult {
    let mut best = None;
    for node in alternatives {
        let result = validate_alternative(location, node);
        if result.is_valid() {
            return result;
        }
        keep_best(&mut best, result);
    }
    let mut result = ValidationResult::default();
    result.add(location.whole("must validate at least one schema (anyOf)"));
    result.merge(best.unwrap_or_default());
    result
}

fn validate_one_of(location: &Location<'_>, alternatives: &[Node]) -> ValidationResult {
    let (mut best, mut first, mut valid) = (None, None, 0_usize);
    for node in alternatives {
        let result = validate_alternative(location, node);
        if result.is_valid() {
            valid += 1;
            best = None;
            first.get_or_insert(result);
        } else if valid == 0 {
            keep_best(&mut best, result);
        }
    }
    if valid == 1 {
        return first.unwrap_or_default();
    }
    let found = if valid == 0 {
        "Found none valid".to_owned()
    } else {
        format!("Found {valid} valid alternatives")
    };
    let mut result = ValidationResult::default();
    result.add(location.whole(&format!("must validate one and only one schema (oneOf). {found}")));
    result.merge(best.unwrap_or_default());
    result
}

fn validate_all_of(location: &Location<'_>, parts: &[Node]) -> ValidationResult {
    let mut result = ValidationResult::default();
    let mut valid = 0_usize;
    for node in parts {
        let part = validate_alternative(location, node);
        valid += usize::from(part.is_valid());
        result.merge(part);
    }
    if valid != parts.len() {
        let none = if valid == 0 { ". None validated" } else { "" };
        result.add(location.whole(&format!("must validate all the schemas (allOf){none}")));
    }
    result
}
