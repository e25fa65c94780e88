//! `x-kubernetes-list-type`: sets without duplicates, maps without duplicate keys.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::error::FieldError;
use super::node::{ListType, Node};
use super::{go_format, path};

/// Reports the duplicates in all lists below `value`.
pub(super) fn validate(value: &Value, node: &Node, at: &str, errors: &mut Vec<FieldError>) {
    match (value, node.extensions.list_type) {
        (Value::Array(entries), Some(ListType::Set)) => report_duplicates(entries, at, errors),
        (Value::Array(entries), Some(ListType::Map)) => {
            validate_map(entries, &node.extensions.list_map_keys, at, errors);
        }
        _ => {}
    }
    for (entry, child, path) in node.entries(value, at) {
        validate(entry, child, &path, errors);
    }
}

fn validate_map(entries: &[Value], keys: &[String], at: &str, errors: &mut Vec<FieldError>) {
    let wrong = entries
        .iter()
        .position(|entry| !entry.is_null() && !entry.is_object());
    if let Some(i) = wrong {
        let path = path::index(at, i);
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(path, entries[i].clone(), detail));
        return;
    }
    let identities: Vec<Value> = entries.iter().map(|entry| keys_of(entry, keys)).collect();
    report_duplicates(&identities, at, errors);
}

/// Returns the keys of an entry with their values, as far as it has them.
fn keys_of(entry: &Value, keys: &[String]) -> Value {
    let present = keys
        .iter()
        .filter_map(|key| Some((key.clone(), entry.get(key)?.clone())));
    Value::Object(present.collect::<Map<_, _>>())
}

/// Reports the second occurrence of each duplicate.
fn report_duplicates(items: &[Value], at: &str, errors: &mut Vec<FieldError>) {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for (i, item) in items.iter().enumerate() {
        let times = counts.entry(go_format::json(item)).or_default();
        *times += 1;
        if *times == 2 {
            errors.push(FieldError::duplicate(path::index(at, i), item.clone()));
        }
    }
}
