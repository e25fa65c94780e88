//! Checks of lists and objects, and the walk into them.

use serde_json::{Map, Value};

use super::{Finding, Outcome, Site, validate};
use crate::schema::error::FieldError;
use crate::schema::node::Additional;
use crate::schema::path;

pub(super) fn check_list(site: &Site<'_>, entries: &[Value]) -> Outcome {
    let mut outcome = Outcome::passed();
    let sizes = &site.node.sizes;
    if let Some(below) = &site.node.items {
        for (i, entry) in entries.iter().enumerate() {
            let old = site.old.and_then(|old| old.entry(entry));
            outcome.merge(validate(entry, below, &path::index(site.at, i), old));
        }
    }
    let count = size(entries.len());
    if let Some(limit) = sizes.min_items.filter(|limit| count < *limit) {
        outcome.add(site.invalid(count.into(), &format!("should have at least {limit} items")));
    }
    if let Some(limit) = sizes.max_items.filter(|limit| count > *limit) {
        let message = format!("{} in body should have at most {limit} items", site.at);
        outcome.add(Finding {
            message,
            error: FieldError::too_many(site.field(), entries.len(), limit),
        });
    }
    if sizes.unique_items && has_duplicates(entries) {
        outcome.add(site.invalid("".into(), "shouldn't contain duplicates"));
    }
    outcome
}

fn size(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

fn has_duplicates(entries: &[Value]) -> bool {
    let mut seen = std::collections::HashSet::new();
    !entries
        .iter()
        .all(|entry| seen.insert(crate::schema::text::json(entry)))
}

pub(super) fn check_object(site: &Site<'_>, fields: &Map<String, Value>) -> Outcome {
    let node = site.node;
    let mut outcome = check_field_count(site, fields.len());
    for (name, field) in fields {
        if node.properties.contains_key(name) {
            continue;
        }
        match &node.additional {
            Additional::Nothing => {
                let message = format!("{}.{name} in body is a forbidden property", site.at);
                let error = FieldError::invalid(site.field(), name.as_str(), message.clone());
                outcome.add(Finding { message, error });
            }
            Additional::Schema(below) => {
                let at = format!("{}.{name}", site.at);
                outcome.merge(validate(
                    field,
                    below,
                    &at,
                    site.old.and_then(|old| old.field(name)),
                ));
            }
            Additional::Unsaid | Additional::Anything => {}
        }
    }
    for (name, below) in &node.properties {
        let Some(field) = fields.get(name) else { continue };
        // The type fields of the whole object are the request's, never an old error.
        let is_type_meta = site.at.is_empty() && (name == "kind" || name == "apiVersion");
        let old = site.old.filter(|_| !is_type_meta).and_then(|old| old.field(name));
        outcome.merge(validate(field, below, &path::child(site.at, name), old));
    }
    for name in node.required.iter().filter(|name| !fields.contains_key(*name)) {
        let at = format!("{}.{name}", site.at);
        let message = format!("{at} in body is required");
        outcome.add(Finding {
            message,
            error: FieldError::required(at.trim_start_matches('.'), ""),
        });
    }
    outcome
}

fn check_field_count(site: &Site<'_>, len: usize) -> Outcome {
    let mut outcome = Outcome::default();
    let (sizes, count) = (&site.node.sizes, size(len));
    if let Some(limit) = sizes.min_properties.filter(|limit| count < *limit) {
        outcome.add(site.invalid(count.into(), &format!("should have at least {limit} properties")));
    }
    if let Some(limit) = sizes.max_properties.filter(|limit| count > *limit) {
        let message = format!("{} in body should have at most {limit} properties", site.at);
        outcome.add(Finding {
            message,
            error: FieldError::too_many(site.field(), len, limit),
        });
    }
    outcome
}
