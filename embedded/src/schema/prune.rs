//! Pruning: fields that the schema does not know are removed, and named.

use serde_json::{Map, Value};

use super::node::{Additional, Node};
use super::path;

/// Fields that every object has, whatever its schema says.
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes unknown fields below `value`; `is_resource` keeps the meta fields of this level.
pub(super) fn prune(
    value: &mut Value,
    node: Option<&Node>,
    is_resource: bool,
    at: &str,
    dropped: &mut Vec<String>,
) {
    if let Some(node) = node.filter(|node| node.extensions.preserve_unknown) {
        return prune_declared(value, node, is_resource, at, dropped);
    }
    match value {
        Value::Object(fields) => prune_fields(fields, node, is_resource, at, dropped),
        Value::Array(entries) => {
            let below = node.and_then(|node| node.items.as_deref());
            for (i, entry) in entries.iter_mut().enumerate() {
                prune_below(entry, below, &path::index(at, i), dropped);
            }
        }
        _ => {}
    }
}

fn prune_below(value: &mut Value, node: Option<&Node>, at: &str, dropped: &mut Vec<String>) {
    let is_resource = node.is_some_and(|node| node.extensions.embedded_resource);
    prune(value, node, is_resource, at, dropped);
}

fn prune_fields(
    fields: &mut Map<String, Value>,
    node: Option<&Node>,
    is_resource: bool,
    at: &str,
    dropped: &mut Vec<String>,
) {
    fields.retain(|name, field| {
        let is_meta = META_FIELDS.contains(&name.as_str());
        if is_resource && is_meta {
            return true;
        }
        let below = match node.map(|node| (node.properties.get(name), &node.additional)) {
            Some((Some(property), _)) => Some(property),
            Some((None, Additional::Schema(schema))) => Some(&**schema),
            Some((None, Additional::Anything | Additional::Nothing)) => None,
            Some((None, Additional::Unsaid)) | None => {
                if node.is_none() || !is_meta || !at.is_empty() {
                    dropped.push(path::child(at, name));
                }
                return false;
            }
        };
        prune_below(field, below, &path::child(at, name), dropped);
        true
    });
}

/// A node that keeps unknown fields still prunes inside the fields that it declares.
fn prune_declared(value: &mut Value, node: &Node, is_resource: bool, at: &str, dropped: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if is_resource && META_FIELDS.contains(&name.as_str()) {
                    continue;
                }
                if let Some(below) = node.properties.get(name) {
                    prune_below(field, Some(below), &path::child(at, name), dropped);
                } else if !matches!(node.additional, Additional::Unsaid) {
                    prune_below(field, node.additional_schema(), &path::child(at, name), dropped);
                }
            }
        }
        Value::Array(entries) => {
            let Some(below) = &node.items else { return };
            for (i, entry) in entries.iter_mut().enumerate() {
                let is_resource = below.extensions.embedded_resource;
                prune_declared(entry, below, is_resource, &path::index(at, i), dropped);
            }
        }
        _ => {}
    }
}
