//! `x-kubernetes-list-type`: sets without repetitions, maps without repeated keys.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::error::FieldError;
use super::node::{ListType, Node};
use super::{path, text};

/// The repetitions in all lists below `value`.
pub(super) fn check(value: &Value, node: &Node, at: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Array(entries) => {
            match node.extensions.list_type {
                Some(ListType::Set) => {
                    let repeated = repeated(entries.iter().map(text::json));
                    errors.extend(
                        repeated
                            .into_iter()
                            .map(|i| FieldError::duplicate(path::index(at, i), entries[i].clone())),
                    );
                }
                Some(ListType::Map) => check_map(entries, &node.extensions.list_map_keys, at, errors),
                Some(ListType::Atomic) | None => {}
            }
            let Some(below) = &node.items else { return };
            for (i, entry) in entries.iter().enumerate() {
                check(entry, below, &path::index(at, i), errors);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                if let Some(below) = node.properties.get(name) {
                    check(field, below, &path::child(at, name), errors);
                } else if let Some(below) = node.additional_schema() {
                    check(field, below, &path::key(at, name), errors);
                }
            }
        }
        _ => {}
    }
}

fn check_map(entries: &[Value], keys: &[String], at: &str, errors: &mut Vec<FieldError>) {
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
    let identities: Vec<Value> = entries.iter().map(|entry| identity(entry, keys)).collect();
    for i in repeated(identities.iter().map(text::json)) {
        errors.push(FieldError::duplicate(path::index(at, i), identities[i].clone()));
    }
}

/// The keys of an entry with their values, where it has them.
fn identity(entry: &Value, keys: &[String]) -> Value {
    let present = keys
        .iter()
        .filter_map(|key| Some((key.clone(), entry.get(key)?.clone())));
    Value::Object(present.collect::<Map<_, _>>())
}

/// The second appearance of each repeated item.
fn repeated(items: impl Iterator<Item = String>) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut found = Vec::new();
    for (i, item) in items.enumerate() {
        let times = seen.entry(item).or_default();
        *times += 1;
        if *times == 2 {
            found.push(i);
        }
    }
    found
}
