//! Correlates the parts of an updated object with those of the old object, as far as the schema identifies them.

use serde_json::{Map, Value};

use super::node::{ListType, Node};

/// The part of the old object that corresponds to the current part of the new object.
#[derive(Clone, Copy)]
pub(super) struct Correlation<'a> {
    pub(super) old: &'a Value,
    node: &'a Node,
}

impl<'a> Correlation<'a> {
    pub(super) fn new(old: &'a Value, node: &'a Node) -> Self {
        Self { old, node }
    }

    /// Returns the old field of this name, if there is one and the schema declares it.
    pub(super) fn field(self, name: &str) -> Option<Self> {
        let old = self.old.as_object()?.get(name)?;
        Some(Self::new(old, self.node.field(name)?))
    }

    /// Returns the old entry with the keys of `entry`; only lists of type map have keys.
    pub(super) fn entry(self, entry: &Value) -> Option<Self> {
        let old = old_entry(self.node, self.old, entry)?;
        Some(Self::new(old, self.node.items.as_deref()?))
    }

    /// Whether `new` equals the old part in everything that can be correlated.
    pub(super) fn is_unchanged(self, new: &Value) -> bool {
        match (new, self.old) {
            (Value::Array(entries), Value::Array(old)) => {
                if entries.len() != old.len() {
                    return false;
                }
                if self.node.extensions.list_type != Some(ListType::Map) {
                    return entries == old;
                }
                entries
                    .iter()
                    .all(|entry| self.entry(entry).is_some_and(|old| old.is_unchanged(entry)))
            }
            (Value::Object(fields), Value::Object(old)) => {
                fields.len() == old.len()
                    && fields
                        .iter()
                        .all(|(name, field)| self.field(name).is_some_and(|old| old.is_unchanged(field)))
            }
            (new, old) => new == old,
        }
    }
}

/// Returns the entry of the old list that has the keys of `entry`.
pub(super) fn old_entry<'a>(node: &Node, old: &'a Value, entry: &Value) -> Option<&'a Value> {
    if node.extensions.list_type != Some(ListType::Map) || node.extensions.list_map_keys.is_empty() {
        return None;
    }
    let new_entry = entry.as_object()?;
    old.as_array()?.iter().find(|candidate| {
        candidate
            .as_object()
            .is_some_and(|candidate| has_keys_of(candidate, new_entry, &node.extensions.list_map_keys))
    })
}

fn has_keys_of(candidate: &Map<String, Value>, new_entry: &Map<String, Value>, keys: &[String]) -> bool {
    keys.iter().all(|key| candidate.get(key) == new_entry.get(key))
}

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
