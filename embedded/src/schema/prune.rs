//! Pruning: removes fields that the schema does not declare, and records their paths.

use serde_json::{Map, Value};

use super::node::{AdditionalProperties, Node};
use super::path;

/// Fields of every object, whether its schema declares them or not.
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Prunes unknown fields below `value`; with `is_resource` the type and metadata fields of this level remain.
pub(super) fn prune(
    value: &mut Value,
    node: Option<&Node>,
    is_resource: bool,
    at: &str,
    pruned: &mut Vec<String>,
) {
    if let Some(node) = node.filter(|node| node.extensions.preserve_unknown) {
        return prune_declared(value, node, is_resource, at, pruned);
    }
    match value {
        Value::Object(fields) => prune_fields(fields, node, is_resource, at, pruned),
        Value::Array(entries) => {
            let child = node.and_then(|node| node.items.as_deref());
            for (i, entry) in entries.iter_mut().enumerate() {
                prune_child(entry, child, &path::index(at, i), pruned);
            }
        }
        _ => {}
    }
}

fn prune_child(value: &mut Value, node: Option<&Node>, at: &str, pruned: &mut Vec<String>) {
    let is_resource = node.is_some_and(|node| node.extensions.embedded_resource);
    prune(value, node, is_resource, at, pruned);
}

fn prune_fields(
    fields: &mut Map<String, Value>,
    node: Option<&Node>,
    is_resource: bool,
    at: &str,
    pruned: &mut Vec<String>,
) {
    fields.retain(|name, field| {
        let is_meta = META_FIELDS.contains(&name.as_str());
        if is_resource && is_meta {
            return true;
        }
        let child = match node.map(|node| (node.properties.get(name), &node.additional_properties)) {
            Some((Some(property), _)) => Some(property),
            Some((None, AdditionalProperties::Schema(schema))) => Some(&**schema),
            Some((None, AdditionalProperties::Allowed | AdditionalProperties::Forbidden)) => None,
            Some((None, AdditionalProperties::Unspecified)) | None => {
                if node.is_none() || !is_meta || !at.is_empty() {
                    pruned.push(path::child(at, name));
                }
                return false;
            }
        };
        prune_child(field, child, &path::child(at, name), pruned);
        true
    });
}

/// Prunes inside the declared fields of a node that preserves unknown fields.
fn prune_declared(value: &mut Value, node: &Node, is_resource: bool, at: &str, pruned: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if is_resource && META_FIELDS.contains(&name.as_str()) {
                    continue;
                }
                if let Some(child) = node.properties.get(name) {
                    prune_child(field, Some(child), &path::child(at, name), pruned);
                } else if !matches!(node.additional_properties, AdditionalProperties::Unspecified) {
                    prune_child(field, node.additional_schema(), &path::child(at, name), pruned);
                }
            }
        }
        Value::Array(entries) => {
            let Some(child) = &node.items else { return };
            for (i, entry) in entries.iter_mut().enumerate() {
                let is_resource = child.extensions.embedded_resource;
                prune_declared(entry, child, is_resource, &path::index(at, i), pruned);
            }
        }
        _ => {}
    }
}
