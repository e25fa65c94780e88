//! Merge of an applied configuration into an object, and removal of fields (structured-merge-diff's `typed/merge.go` and
//! `typed/remove.go`). Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::list::{element_of, elements, entries};
use super::path::Element;
use super::shape::{Kind, ListShape, MapShape, Shape};

/// Returns the object with the configuration merged into it: fields of the configuration win, others stay.
///
/// # Errors
/// If an entry of a list has no identity.
pub(super) fn merge(shape: &Shape, live: &Value, config: &Value) -> Result<Value, String> {
    let merged = merge_values(shape, Some(live), Some(config))?;
    Ok(merged.unwrap_or_default())
}

/// Merges two values; `None` if nothing remains.
fn merge_values(
    shape: &Shape,
    live: Option<&Value>,
    config: Option<&Value>,
) -> Result<Option<Value>, String> {
    let Some(decisive) = config.or(live) else {
        return Ok(None);
    };
    let is_empty_map = |side: Option<&Value>| side.and_then(Value::as_object).is_none_or(Map::is_empty);
    match shape.kind_of(decisive) {
        Kind::List(list) if !(entries(live).is_empty() && entries(config).is_empty()) => {
            let merged = merge_lists(list, entries(live), entries(config))?;
            Ok(Some(Value::Array(merged)))
        }
        Kind::Map(map) if !(is_empty_map(live) && is_empty_map(config)) => {
            merge_maps(map, live, config).map(Some)
        }
        _ => Ok(Some(decisive.clone())),
    }
}

fn merge_maps(map: &MapShape, live: Option<&Value>, config: Option<&Value>) -> Result<Value, String> {
    let (live, config) = (live.and_then(Value::as_object), config.and_then(Value::as_object));
    let names: BTreeSet<&String> = [live, config].into_iter().flatten().flat_map(Map::keys).collect();
    let mut merged = Map::new();
    for name in names {
        let shape = map.field(name).unwrap_or(&Shape::Deduced);
        let before = live.and_then(|fields| fields.get(name));
        let applied = config.and_then(|fields| fields.get(name));
        if let Some(value) = merge_values(shape, before, applied)? {
            merged.insert(name.clone(), value);
        }
    }
    Ok(Value::Object(merged))
}

/// The state of a merge of lists: entries of the configuration keep their order, other entries keep their place.
struct ListMerge<'a> {
    list: &'a ListShape,
    /// Entries of the object by identity; `None` for duplicates, which are replaced.
    live: BTreeMap<&'a Element, Option<&'a Value>>,
    config: BTreeMap<&'a Element, &'a Value>,
    merged: BTreeSet<&'a Element>,
    out: Vec<Value>,
}

impl<'a> ListMerge<'a> {
    fn new(
        list: &'a ListShape,
        live: impl Iterator<Item = (&'a Element, &'a Value)>,
        config: impl Iterator<Item = (&'a Element, &'a Value)>,
    ) -> Result<Self, String> {
        let mut merge = Self {
            list,
            live: BTreeMap::new(),
            config: BTreeMap::new(),
            merged: BTreeSet::new(),
            out: Vec::new(),
        };
        for (element, entry) in config {
            if merge.config.insert(element, entry).is_some() {
                return Err(format!("duplicate entries for key {element}"));
            }
        }
        for (element, entry) in live {
            let is_duplicate = merge.live.contains_key(element);
            merge.live.insert(element, (!is_duplicate).then_some(entry));
        }
        Ok(merge)
    }

    /// Adds the entry of the configuration, merged with that of the object.
    fn take(&mut self, element: &'a Element) -> Result<(), String> {
        self.merged.insert(element);
        let live = self.live.get(element).copied().flatten();
        let config = self.config.get(element).copied();
        self.out.extend(merge_values(&self.list.items, live, config)?);
        Ok(())
    }
}

fn merge_lists(list: &ListShape, live: &[Value], config: &[Value]) -> Result<Vec<Value>, String> {
    let (live_elements, config_elements) = (elements(list, live)?, elements(list, config)?);
    let mut merge = ListMerge::new(
        list,
        live_elements.iter().zip(live),
        config_elements.iter().zip(config),
    )?;
    let known: BTreeSet<&Element> = live_elements.iter().collect();
    let mut shared = config_elements.iter().filter(|element| known.contains(*element));
    let mut next_shared = shared.next();
    let (mut l, mut c) = (0, 0);
    while l < live_elements.len() || c < config_elements.len() {
        if let (Some(element), Some(wanted)) = (live_elements.get(l), config_elements.get(c)) {
            if element == wanted {
                merge.take(wanted)?;
                (l, c) = (l + 1, c + 1);
                next_shared = shared.next();
                continue;
            }
            if merge.config.contains_key(element) && next_shared.is_some_and(|next| next != element) {
                // A later entry of the configuration adds it at its position there.
                l += 1;
                continue;
            }
        }
        if let Some(element) = live_elements.get(l) {
            if !merge.config.contains_key(element) {
                merge.out.extend(merge_values(&list.items, live.get(l), None)?);
                l += 1;
                continue;
            }
            if merge.merged.contains(element) {
                l += 1;
            }
        }
        if let Some(wanted) = config_elements.get(c) {
            merge.take(wanted)?;
            c += 1;
            if next_shared == Some(wanted) {
                next_shared = shared.next();
            }
        }
    }
    Ok(merge.out)
}

/// Returns the value without these fields. A map or list that loses all its content becomes null.
pub(super) fn remove(shape: &Shape, value: &Value, fields: &FieldSet) -> Value {
    match (shape.kind_of(value), value) {
        (Kind::List(list), Value::Array(items)) if !items.is_empty() => {
            let mut rest = Vec::new();
            for item in items {
                let Ok(element) = element_of(list, item) else {
                    rest.push(item.clone());
                    continue;
                };
                if !fields.has_member(&element) {
                    rest.push(remove_below(&list.items, item, fields, &element));
                }
            }
            Some(rest)
                .filter(|rest| !rest.is_empty())
                .map_or(Value::Null, Value::Array)
        }
        (Kind::Map(map), Value::Object(entries)) if !entries.is_empty() => {
            let mut rest = Map::new();
            for (name, field) in entries {
                let element = Element::field(name);
                if !fields.has_member(&element) {
                    let shape = map.field(name).unwrap_or(&Shape::Deduced);
                    rest.insert(name.clone(), remove_below(shape, field, fields, &element));
                }
            }
            Some(rest)
                .filter(|rest| !rest.is_empty())
                .map_or(Value::Null, Value::Object)
        }
        _ => value.clone(),
    }
}

fn remove_below(shape: &Shape, value: &Value, fields: &FieldSet, element: &Element) -> Value {
    fields
        .child(element)
        .map_or_else(|| value.clone(), |inner| remove(shape, value, inner))
}
