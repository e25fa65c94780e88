//! Entries of lists of type set and map: each has a path element. Pure.

use serde_json::Value;

use super::path::{Element, Scalar};
use super::shape::{ListKind, ListShape};

/// Returns the element of an entry. The error is structured-merge-diff's text.
pub(super) fn element_of(list: &ListShape, entry: &Value) -> Result<Element, String> {
    match &list.kind {
        ListKind::Map(keys) => keyed(keys, entry),
        ListKind::Set | ListKind::Atomic => match Scalar::from_value(entry) {
            Some(Scalar::Null) => {
                Err("associative list without keys has an element that's an explicit null".into())
            }
            Some(scalar) => Ok(Element::Value(scalar)),
            None if entry.is_object() => {
                Err("associative list without keys has an element that's a map type".into())
            }
            None => Err("not supported: associative list with lists as elements".into()),
        },
    }
}

fn keyed(keys: &[(String, Option<Scalar>)], entry: &Value) -> Result<Element, String> {
    let Some(fields) = entry.as_object() else {
        let kind = if entry.is_null() { "a null" } else { "non-map" };
        let plural = if entry.is_null() { "element" } else { "elements" };
        return Err(format!("associative list with keys may not have {kind} {plural}"));
    };
    let mut found = Vec::new();
    for (name, default) in keys {
        let value = match fields.get(name) {
            Some(value) => {
                let scalar = Scalar::from_value(value);
                Some(scalar.ok_or_else(|| format!("the key {name:?} of a list entry is not a scalar"))?)
            }
            None => default.clone(),
        };
        found.extend(value.map(|value| (name.clone(), value)));
    }
    if found.is_empty() {
        let names: Vec<String> = keys.iter().map(|(name, _)| format!("{name:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values \
             for any key fields)",
            names.join(" ")
        ));
    }
    found.sort();
    Ok(Element::Key(found))
}

/// Returns the entries of a value; none if it is not a list.
pub(super) fn entries(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the elements of all entries, in their order. The error names the index.
pub(super) fn elements(list: &ListShape, entries: &[Value]) -> Result<Vec<Element>, String> {
    let numbered = entries.iter().enumerate();
    numbered
        .map(|(i, entry)| element_of(list, entry).map_err(|error| format!("element {i}: {error}")))
        .collect()
}
