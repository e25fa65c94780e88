//! Comparison of two objects: which fields were removed, modified and added (structured-merge-diff's `typed/compare.go`). Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use serde_json::{Map, Value};

use super::field_set::{FieldSet, Path};
use super::list::{elements, entries};
use super::path::Element;
use super::shape::{Kind, ListShape, MapShape, Shape};

/// The changes between two objects. No path is in two of the sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) removed: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) added: FieldSet,
}

impl Comparison {
    /// Compares two objects, except for `metadata.managedFields`.
    ///
    /// # Errors
    /// If an entry of a list has no identity.
    pub(super) fn of(shape: &Shape, old: &Value, new: &Value) -> Result<Self, String> {
        let mut walker = Walker::default();
        walker.compare(shape, Some(old), Some(new))?;
        Ok(walker.found)
    }

    /// Returns the changes of top-level fields that pass the filter.
    pub(super) fn filter_top(&self, keeps: impl Fn(&str) -> bool) -> Self {
        Self {
            removed: self.removed.filter_top(&keeps),
            modified: self.modified.filter_top(&keeps),
            added: self.added.filter_top(&keeps),
        }
    }
}

#[derive(Default)]
struct Walker {
    path: Path,
    found: Comparison,
}

/// One side of a comparison; `None` if the value is absent.
type Side<'a> = Option<&'a Value>;

impl Walker {
    /// Compares two values, of which at least one is present.
    fn compare(&mut self, shape: &Shape, old: Side<'_>, new: Side<'_>) -> Result<(), String> {
        let absent = Value::Null;
        let kinds = (
            shape.kind_of(old.or(new).unwrap_or(&absent)),
            shape.kind_of(new.or(old).unwrap_or(&absent)),
        );
        if discriminant(&kinds.0) != discriminant(&kinds.1) {
            // The type of an undeclared value changed: compare it as both.
            self.compare_as(kinds.0, old, new)?;
        }
        let is_leaf = self.compare_as(kinds.1, old, new)?;
        if !is_leaf {
            match (old, new) {
                (None, _) => self.found.added.insert(&self.path),
                (_, None) => self.found.removed.insert(&self.path),
                _ => {}
            }
        }
        Ok(())
    }

    /// Compares two values of a kind. Returns whether they were compared as a whole.
    fn compare_as(&mut self, kind: Kind<'_>, old: Side<'_>, new: Side<'_>) -> Result<bool, String> {
        match kind {
            Kind::List(list) if !(entries(old).is_empty() && entries(new).is_empty()) => {
                self.compare_lists(list, entries(old), entries(new))?;
            }
            Kind::Map(map) if !(is_empty_map(old) && is_empty_map(new)) => {
                self.compare_maps(map, old, new)?;
            }
            // Also empty ones, which keeps an empty list apart from an absent one.
            _ => {
                self.compare_leaves(old, new);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn compare_leaves(&mut self, old: Side<'_>, new: Side<'_>) {
        match (old, new) {
            (None, _) => self.found.added.insert(&self.path),
            (_, None) => self.found.removed.insert(&self.path),
            (Some(old), Some(new)) if !is_equal(old, new) => self.found.modified.insert(&self.path),
            _ => {}
        }
    }

    fn compare_maps(&mut self, map: &MapShape, old: Side<'_>, new: Side<'_>) -> Result<(), String> {
        let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
        let names: BTreeSet<&String> = [old, new].into_iter().flatten().flat_map(Map::keys).collect();
        for name in names {
            if self.is_managed_fields(name) {
                continue;
            }
            let shape = map.field(name).unwrap_or(&Shape::Deduced);
            let before = old.and_then(|fields| fields.get(name));
            let after = new.and_then(|fields| fields.get(name));
            self.descend(Element::field(name), shape, before, after)?;
        }
        Ok(())
    }

    /// Whether a field is `metadata.managedFields`. It has no manager, and only one of the objects may have it.
    fn is_managed_fields(&self, name: &str) -> bool {
        name == "managedFields"
            && matches!(self.path.as_slice(), [parent] if *parent == Element::field("metadata"))
    }

    fn compare_lists(&mut self, list: &ListShape, old: &[Value], new: &[Value]) -> Result<(), String> {
        let (before, after) = (group(list, old)?, group(list, new)?);
        let all: BTreeSet<&Element> = before.keys().chain(after.keys()).collect();
        for element in all {
            let old = before.get(element).map_or(&[][..], Vec::as_slice);
            let new = after.get(element).map_or(&[][..], Vec::as_slice);
            self.compare_entries(list, element, old, new)?;
        }
        Ok(())
    }

    /// Compares the entries with one identity. Duplicates, which only older clients wrote, are one field together.
    fn compare_entries(
        &mut self,
        list: &ListShape,
        element: &Element,
        old: &[&Value],
        new: &[&Value],
    ) -> Result<(), String> {
        let mut path = self.path.clone();
        path.push(element.clone());
        let (first_old, first_new) = (old.first().copied(), new.first().copied());
        match (old.len(), new.len()) {
            (0 | 1, 0 | 1) => self.descend(element.clone(), &list.items, first_old, first_new)?,
            (0 | 1, _) => {
                if first_old.is_some() {
                    self.descend(element.clone(), &list.items, first_old, None)?;
                }
                self.found.added.insert(&path);
            }
            (_, 0 | 1) => {
                if first_new.is_some() {
                    self.descend(element.clone(), &list.items, None, first_new)?;
                }
                self.found.removed.insert(&path);
            }
            _ if old != new => self.found.modified.insert(&path),
            _ => {}
        }
        Ok(())
    }

    fn descend(
        &mut self,
        element: Element,
        shape: &Shape,
        old: Side<'_>,
        new: Side<'_>,
    ) -> Result<(), String> {
        self.path.push(element);
        let outcome = self.compare(shape, old, new);
        self.path.pop();
        outcome
    }
}

fn is_empty_map(value: Side<'_>) -> bool {
    value.and_then(Value::as_object).is_none_or(Map::is_empty)
}

/// Whether two values are equal; 1 equals 1.0.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || (a.as_f64() == b.as_f64() && a.is_f64() != b.is_f64())
        }
        _ => one == other,
    }
}

fn group<'a>(list: &ListShape, entries: &'a [Value]) -> Result<BTreeMap<Element, Vec<&'a Value>>, String> {
    let mut groups: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
    for (element, entry) in elements(list, entries)?.into_iter().zip(entries) {
        groups.entry(element).or_default().push(entry);
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn managed_fields_do_not_count_as_a_change() {
        let old = json!({"metadata": {"name": "a", "managedFields": [{"manager": "b"}]}});
        let new = json!({"metadata": {"name": "a"}});
        let compare = |old, new| Comparison::of(&Shape::Deduced, old, new).unwrap();
        assert_eq!(compare(&old, &new), Comparison::default());
        assert_eq!(compare(&new, &old), Comparison::default());
        let (old, new) = (json!({"spec": {"managedFields": 1}}), json!({"spec": {}}));
        assert_ne!(compare(&old, &new), Comparison::default(), "only in the metadata");
    }
}
