//! Defaulting, and pruning of nulls that the schema forbids.

use serde_json::Value;

use super::node::Node;

fn is_forbidden_null(value: &Value, node: Option<&Node>) -> bool {
    value.is_null() && node.is_some_and(|node| !node.nullable)
}

/// Applies the schema's defaults to absent fields and to forbidden nulls.
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
                let Some(child) = node.field(name) else { continue };
                if !node.properties.contains_key(name) {
                    replace_null(field, child);
                }
                apply(field, child);
            }
        }
        Value::Array(entries) => {
            let Some(child) = &node.items else { return };
            for entry in entries {
                replace_null(entry, child);
                apply(entry, child);
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

/// Removes forbidden nulls without a default from objects. Those in lists remain and fail validation.
pub(super) fn drop_nulls(value: &mut Value, node: Option<&Node>) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, field| {
                let child = node.and_then(|node| node.field(name));
                !(is_forbidden_null(field, child) && child.is_some_and(|child| child.default.is_none()))
            });
            for (name, field) in fields.iter_mut() {
                drop_nulls(field, node.and_then(|node| node.field(name)));
            }
        }
        Value::Array(entries) => {
            let child = node.and_then(|node| node.items.as_deref());
            for entry in entries {
                drop_nulls(entry, child);
            }
        }
        _ => {}
    }
}
