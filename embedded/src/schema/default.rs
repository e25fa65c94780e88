//! Defaulting, and the removal of nulls that no schema allows.

use serde_json::Value;

use super::node::Node;

fn is_forbidden_null(value: &Value, node: Option<&Node>) -> bool {
    value.is_null() && node.is_some_and(|node| !node.nullable)
}

/// Fills in what is missing, and nulls that the schema does not allow, from the schema's defaults.
pub(super) fn apply(value: &mut Value, node: &Node) {
    match value {
        Value::Object(fields) => {
            for (name, property) in &node.properties {
                let Some(default) = &property.default else {
                    continue;
                };
                let absent = fields
                    .get(name)
                    .is_none_or(|value| is_forbidden_null(value, Some(property)));
                if absent && !default.is_null() {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, field) in fields.iter_mut() {
                let Some(below) = node.field(name) else { continue };
                if !node.properties.contains_key(name) {
                    replace_null(field, below);
                }
                apply(field, below);
            }
        }
        Value::Array(entries) => {
            let Some(below) = &node.items else { return };
            for entry in entries {
                replace_null(entry, below);
                apply(entry, below);
            }
        }
        _ => {}
    }
}

fn replace_null(value: &mut Value, node: &Node) {
    if let Some(default) = node
        .default
        .as_ref()
        .filter(|_| is_forbidden_null(value, Some(node)))
    {
        *value = default.clone();
    }
}

/// Removes fields that are null where the schema neither allows null nor has a default to put there. Entries of lists
/// stay: they are refused by validation.
pub(super) fn drop_nulls(value: &mut Value, node: Option<&Node>) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, field| {
                let below = node.and_then(|node| node.field(name));
                !(is_forbidden_null(field, below) && below.is_some_and(|below| below.default.is_none()))
            });
            for (name, field) in fields.iter_mut() {
                drop_nulls(field, node.and_then(|node| node.field(name)));
            }
        }
        Value::Array(entries) => {
            let below = node.and_then(|node| node.items.as_deref());
            for entry in entries {
                drop_nulls(entry, below);
            }
        }
        _ => {}
    }
}
