//! `x-kubernetes-list-type`: sets without duplicates, maps without duplicate keys.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::error::FieldError;
use super::node::{ListType, Node};
use super::{go_format, path};

/// Reports the duplicates in all lists below `value`.
pub(super) fn validate(value: &Value, node: &Node, at: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Array(entries) => {
            match node.extensions.list_type {
                Some(ListType::Set) => {
                    let duplicates = duplicates(entries.iter().map(go_format::json));
                    errors.extend(
                        duplicates
                            .into_iter()
                            .map(|i| FieldError::duplicate(path::index(at, i), entries[i].clone())),
                    );
                }
                Some(ListType::Map) => validate_map(entries, &node.extensions.list_map_keys, at, errors),
                Some(ListType::Atomic) | None => {}
            }
            let Some(child) = &node.items else { return };
            for (i, entry) in entries.iter().enumerate() {
                validate(entry, child, &path::index(at, i), errors);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                if let Some(child) = node.properties.get(name) {
                    validate(field, child, &path::child(at, name), errors);
                } else if let Some(child) = node.additional_schema() {
                    validate(field, child, &path::key(at, name), errors);
                }
            }
        }
        _ => {}
    }
}

fn validate_map(entries: &[Value], keys: &[String], at: &str, errors: &mut Vec<FieldError>) {
    let wrong = entries
        .iter()
        .position(|entry| !entry.is_null() && !entry.is_object());
    if let Some(i) = wrong {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(
            path::index(at, i),
            entries[i].clone(),
            detail,
        ));
        return;
    }
    let identities: Vec<Value> = entries.iter().map(|entry| keys_of(entry, keys)).collect();
    for i in duplicates(identities.iter().map(go_format::json)) {
        errors.push(FieldError::duplicate(path::index(at, i), identities[i].clone()));
    }
}

/// Returns the keys of an entry with their values, as far as it has them.
fn keys_of(entry: &Value, keys: &[String]) -> Value {
    let present = keys
        .iter()
        .filter_map(|key| Some((key.clone(), entry.get(key)?.clone())));
    Value::Object(present.collect::<Map<_, _>>())
}

/// Returns the index of the second occurrence of each duplicate.
fn duplicates(items: impl Iterator<Item = String>) -> Vec<usize> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    let mut found = Vec::new();
    for (i, item) in items.enumerate() {
        let times = counts.entry(item).or_default();
        *times += 1;
        if *times == 2 {
            found.push(i);
        }
    }
    found
}
