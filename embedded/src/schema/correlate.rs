//! Pairs parts of an updated object with their former selves, as far as the schema lets them be told apart.

use serde_json::{Map, Value};

use super::node::{ListType, Node};

/// A part of the old object that corresponds to the part of the new one being looked at.
#[derive(Clone, Copy)]
pub(super) struct Correlation<'a> {
    pub(super) old: &'a Value,
    node: &'a Node,
}

impl<'a> Correlation<'a> {
    pub(super) fn new(old: &'a Value, node: &'a Node) -> Self {
        Self { old, node }
    }

    /// The old field of this name, where both have one and the schema knows it.
    pub(super) fn field(self, name: &str) -> Option<Self> {
        let old = self.old.as_object()?.get(name)?;
        Some(Self::new(old, self.node.field(name)?))
    }

    /// The old entry with the same keys as `entry`: only lists of type map can tell.
    pub(super) fn entry(self, entry: &Value) -> Option<Self> {
        let old = old_entry(self.node, self.old, entry)?;
        Some(Self::new(old, self.node.items.as_deref()?))
    }

    /// Whether `new` equals the old part, in all that can be compared.
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

/// The entry of the old list that has the keys of `entry`.
pub(super) fn old_entry<'a>(node: &Node, old: &'a Value, entry: &Value) -> Option<&'a Value> {
    if node.extensions.list_type != Some(ListType::Map) || node.extensions.list_map_keys.is_empty() {
        return None;
    }
    let wanted = entry.as_object()?;
    old.as_array()?.iter().find(|candidate| {
        candidate
            .as_object()
            .is_some_and(|candidate| has_keys_of(candidate, wanted, &node.extensions.list_map_keys))
    })
}

fn has_keys_of(candidate: &Map<String, Value>, wanted: &Map<String, Value>, keys: &[String]) -> bool {
    keys.iter().all(|key| candidate.get(key) == wanted.get(key))
}
