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
