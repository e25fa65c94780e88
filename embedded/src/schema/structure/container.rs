//! Validation of lists and objects and of their entries.

use serde_json::{Map, Value};

use super::{Location, ValidationResult, Violation, validate};
use crate::schema::error::FieldError;
use crate::schema::node::AdditionalProperties;
use crate::schema::path;

pub(super) fn validate_list(location: &Location<'_>, entries: &[Value]) -> ValidationResult {
    let mut result = ValidationResult::valid();
    let size_limits = &location.node.size_limits;
    if let Some(child) = &location.node.items {
        for (i, entry) in entries.iter().enumerate() {
            let old = location.old.and_then(|old| old.entry(entry));
            result.merge(validate(entry, child, &path::index(location.path, i), old));
        }
    }
    let bounds = (size_limits.min_items, size_limits.max_items);
    result.merge(validate_count(location, entries.len(), bounds, "items"));
    if size_limits.unique_items && has_duplicates(entries) {
        result.add(location.invalid("".into(), "shouldn't contain duplicates"));
    }
    result
}

fn has_duplicates(entries: &[Value]) -> bool {
    let mut unique = std::collections::HashSet::new();
    !entries
        .iter()
        .all(|entry| unique.insert(crate::schema::go_format::json(entry)))
}

pub(super) fn validate_object(location: &Location<'_>, fields: &Map<String, Value>) -> ValidationResult {
    let node = location.node;
    let bounds = (node.size_limits.min_properties, node.size_limits.max_properties);
    let mut result = validate_count(location, fields.len(), bounds, "properties");
    for (name, field) in fields {
        if node.properties.contains_key(name) {
            continue;
        }
        match &node.additional_properties {
            AdditionalProperties::Forbidden => {
                let message = format!("{}.{name} in body is a forbidden property", location.path);
                let error = FieldError::invalid(location.field(), name.as_str(), message.clone());
                result.add(Violation { message, error });
            }
            AdditionalProperties::Schema(child) => {
                let at = format!("{}.{name}", location.path);
                let old = location.old.and_then(|old| old.field(name));
                result.merge(validate(field, child, &at, old));
            }
            AdditionalProperties::Unspecified | AdditionalProperties::Allowed => {}
        }
    }
    for (name, child) in &node.properties {
        let Some(field) = fields.get(name) else { continue };
        // The type fields of the root come from the request, so their errors are never old.
        let is_type_meta = location.path.is_empty() && (name == "kind" || name == "apiVersion");
        let old = location
            .old
            .filter(|_| !is_type_meta)
            .and_then(|old| old.field(name));
        result.merge(validate(field, child, &path::child(location.path, name), old));
    }
    for name in node.required.iter().filter(|name| !fields.contains_key(*name)) {
        let at = format!("{}.{name}", location.path);
        let message = format!("{at} in body is required");
        let error = FieldError::required(at.trim_start_matches('.'), "");
        result.add(Violation { message, error });
    }
    result
}

/// Validates a number of entries against its minimum and maximum.
fn validate_count(
    location: &Location<'_>,
    len: usize,
    (min, max): (Option<i64>, Option<i64>),
    noun: &str,
) -> ValidationResult {
    let mut result = ValidationResult::default();
    let count = i64::try_from(len).unwrap_or(i64::MAX);
    if let Some(limit) = min.filter(|limit| count < *limit) {
        result.add(location.invalid(count.into(), &format!("should have at least {limit} {noun}")));
    }
    if let Some(limit) = max.filter(|limit| count > *limit) {
        let message = format!("{} in body should have at most {limit} {noun}", location.path);
        let error = FieldError::too_many(location.field(), len, limit);
        result.add(Violation { message, error });
    }
    result
}
