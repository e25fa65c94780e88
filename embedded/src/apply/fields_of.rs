//! The fields of an applied configuration (structured-merge-diff's `typed/tofieldset.go` and `validate.go`). Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use super::field_set::{FieldSet, Path};
use super::list::{elements, entries};
use super::path::{Element, display};
use super::shape::{Kind, ListShape, MapShape, Shape};

/// Returns the set of fields of a value. Entries without an identity have none.
pub(super) fn field_set(shape: &Shape, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    add(shape, value, &mut Vec::new(), &mut set);
    set
}

fn add(shape: &Shape, value: &Value, path: &mut Path, set: &mut FieldSet) {
    match shape.kind_of(value) {
        Kind::Leaf => set.insert(path),
        Kind::Map(map) => {
            for (name, field) in value.as_object().into_iter().flatten() {
                path.push(Element::field(name));
                add(map.field(name).unwrap_or(&Shape::Deduced), field, path, set);
                let is_empty = field.is_null() || field.as_object().is_some_and(serde_json::Map::is_empty);
                if is_empty || !map.fields.contains_key(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        Kind::List(list) => add_entries(list, entries(Some(value)), path, set),
    }
}

fn add_entries(list: &ListShape, entries: &[Value], path: &mut Path, set: &mut FieldSet) {
    let Ok(elements) = elements(list, entries) else {
        return;
    };
    let mut seen = BTreeSet::new();
    let duplicates: BTreeSet<&Element> = elements.iter().filter(|element| !seen.insert(*element)).collect();
    for (element, entry) in elements.iter().zip(entries) {
        path.push(element.clone());
        // Duplicates are one field together.
        if !duplicates.contains(element) {
            add(&list.items, entry, path, set);
        }
        set.insert(path);
        path.pop();
    }
}

/// Returns what is wrong with an applied configuration: unknown fields, values that are no list or map, entries without an
/// identity and duplicates. Each text begins with a path.
pub(super) fn errors(shape: &Shape, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(shape, value, &mut Vec::new(), &mut found);
    found
}

fn check(shape: &Shape, value: &Value, path: &mut Path, found: &mut Vec<String>) {
    let expected = match shape {
        Shape::List(_) if !value.is_array() => Some("list"),
        Shape::Map(_) if !value.is_object() => Some("map"),
        _ => None,
    };
    if let Some(expected) = expected.filter(|_| !value.is_null()) {
        found.push(format!(
            "{}: expected {expected}, got &{{{value}}}",
            display(path)
        ));
        return;
    }
    match shape.kind_of(value) {
        Kind::Leaf => {}
        Kind::Map(map) => check_fields(map, value, path, found),
        Kind::List(list) => check_entries(list, entries(Some(value)), path, found),
    }
}

fn check_fields(map: &MapShape, value: &Value, path: &mut Path, found: &mut Vec<String>) {
    for (name, field) in value.as_object().into_iter().flatten() {
        path.push(Element::field(name));
        match map.field(name) {
            Some(shape) => check(shape, field, path, found),
            None => found.push(format!("{}: field not declared in schema", display(path))),
        }
        path.pop();
    }
}

fn check_entries(list: &ListShape, entries: &[Value], path: &mut Path, found: &mut Vec<String>) {
    let elements = match elements(list, entries) {
        Ok(elements) => elements,
        Err(error) => {
            found.push(format!("{}: {error}", display(path)));
            return;
        }
    };
    let mut seen = BTreeSet::new();
    for (element, entry) in elements.iter().zip(entries) {
        if !seen.insert(element) {
            found.push(format!("{}: duplicate entries for key {element}", display(path)));
        }
        path.push(element.clone());
        check(&list.items, entry, path, found);
        path.pop();
    }
}
