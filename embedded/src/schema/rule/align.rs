//! Lists of type set and map are unordered: before a rule compares them, the old list gets the order of the new one.

use serde_json::{Map, Value};

use crate::schema::correlation::old_entry;
use crate::schema::node::{ListType, Node};

/// Returns the old value with its unordered lists in the order of the new value, where both have the same entries.
pub(super) fn align(old: &Value, new: &Value, node: &Node) -> Value {
    match (old, new) {
        (Value::Object(fields), Value::Object(new_fields)) => {
            let aligned = fields.iter().map(|(name, field)| {
                let field = match (new_fields.get(name), node.field(name)) {
                    (Some(new), Some(child)) => align(field, new, child),
                    _ => field.clone(),
                };
                (name.clone(), field)
            });
            Value::Object(aligned.collect::<Map<_, _>>())
        }
        (Value::Array(entries), Value::Array(new_entries)) if entries.len() == new_entries.len() => {
            align_list(old, entries, new_entries, node)
        }
        (old, _) => old.clone(),
    }
}

fn align_list(old: &Value, entries: &[Value], new_entries: &[Value], node: &Node) -> Value {
    match (node.extensions.list_type, &node.items) {
        (Some(ListType::Set), _) if new_entries.iter().all(|entry| entries.contains(entry)) => {
            Value::Array(new_entries.to_vec())
        }
        (Some(ListType::Map), Some(child)) => {
            let pairs: Option<Vec<Value>> = new_entries
                .iter()
                .map(|entry| Some(align(old_entry(node, old, entry)?, entry, child)))
                .collect();
            pairs.map_or_else(|| old.clone(), Value::Array)
        }
        _ => old.clone(),
    }
}
