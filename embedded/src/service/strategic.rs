//! Strategic merge patch for the built-in kinds: a merge patch in which some lists are merged by key and directives say
//! what goes. Pure.
//!
//! Only the lists that these kinds merge are known here; every other list is replaced, as in their Go types. Directives:
//! `$patch: delete|replace|merge`, `$deleteFromPrimitiveList/<field>`, `$retainKeys`; `$setElementOrder/<field>` sorts.

use serde_json::{Map, Value};

use crate::resource::Family;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// How a list is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merge {
    /// Entries with the same value of this field are merged.
    ByKey(&'static str),
    /// A set of plain values.
    Set,
}

/// A patch that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StrategicError {
    /// A directive with a value that it does not have.
    #[error("invalid value for the directive {directive} at {path}")]
    Directive { directive: String, path: String },
    /// An entry of a list without the field that identifies it.
    #[error("map: does not contain declared merge key: {key}")]
    NoKey { key: &'static str },
}

/// The lists that are merged, from `patchStrategy` and `patchMergeKey` of the Go types.
fn merge_of(family: Family, path: &str) -> Option<Merge> {
    match (family, path) {
        (_, "metadata.ownerReferences") => Some(Merge::ByKey("uid")),
        (_, "metadata.finalizers") => Some(Merge::Set),
        (Family::ServiceAccount, "secrets") => Some(Merge::ByKey("name")),
        (Family::Namespace, "status.conditions") => Some(Merge::ByKey("type")),
        _ => None,
    }
}

/// Applies a patch to an object of a built-in kind.
pub(super) fn apply(family: Family, object: &mut Value, patch: &Value) -> Result<(), StrategicError> {
    merge_value(family, "", object, patch)
}

fn merge_value(family: Family, at: &str, target: &mut Value, patch: &Value) -> Result<(), StrategicError> {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    match directive(fields, at)? {
        Some("replace") => {
            *target = without_directives(fields);
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        _ => {}
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(held) = target.as_object_mut() else {
        return Ok(());
    };
    if let Some(kept) = fields.get(RETAIN_KEYS) {
        let kept = crate::meta::strings(kept);
        held.retain(|field, _| kept.contains(&field.as_str()));
    }
    for (field, value) in fields.iter().filter(|(field, _)| !field.starts_with('$')) {
        let inner = if at.is_empty() {
            field.clone()
        } else {
            format!("{at}.{field}")
        };
        merge_field(family, &inner, held, field, value)?;
    }
    for (field, value) in fields {
        if let Some(field) = field.strip_prefix(DELETE_FROM) {
            delete_from(held, field, value);
        } else if let Some(field) = field.strip_prefix(ORDER) {
            let inner = if at.is_empty() {
                field.to_owned()
            } else {
                format!("{at}.{field}")
            };
            sort(held, field, value, merge_of(family, &inner));
        }
    }
    Ok(())
}

fn merge_field(
    family: Family,
    path: &str,
    held: &mut Map<String, Value>,
    field: &str,
    value: &Value,
) -> Result<(), StrategicError> {
    match (value, merge_of(family, path)) {
        (Value::Null, _) => {
            held.remove(field);
        }
        (Value::Array(entries), Some(merge)) => {
            let target = held.entry(field).or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(list) = target {
                merge_list(family, path, list, entries, merge)?;
            }
        }
        (Value::Object(_), _) => {
            let is_deleted = value[PATCH] == "delete";
            merge_value(family, path, held.entry(field).or_insert(Value::Null), value)?;
            if is_deleted {
                held.remove(field);
            }
        }
        _ => {
            held.insert(field.into(), value.clone());
        }
    }
    Ok(())
}

fn merge_list(
    family: Family,
    path: &str,
    list: &mut Vec<Value>,
    entries: &[Value],
    merge: Merge,
) -> Result<(), StrategicError> {
    if entries.iter().any(|entry| entry[PATCH] == "replace") {
        list.clear();
    }
    for entry in entries.iter().filter(|entry| entry[PATCH] != "replace") {
        let Merge::ByKey(key) = merge else {
            if !list.contains(entry) {
                list.push(entry.clone());
            }
            continue;
        };
        if entry.get(key).is_none() {
            return Err(StrategicError::NoKey { key });
        }
        let at = list.iter().position(|held| held[key] == entry[key]);
        match at {
            _ if entry[PATCH] == "delete" => list.retain(|held| held[key] != entry[key]),
            Some(at) => merge_value(family, &format!("{path}[]"), &mut list[at], entry)?,
            None => {
                let mut added = Value::Null;
                merge_value(family, &format!("{path}[]"), &mut added, entry)?;
                list.push(added);
            }
        }
    }
    Ok(())
}

fn directive<'a>(fields: &'a Map<String, Value>, path: &str) -> Result<Option<&'a str>, StrategicError> {
    match fields.get(PATCH) {
        None => Ok(None),
        Some(Value::String(word)) if ["delete", "replace", "merge"].contains(&word.as_str()) => {
            Ok(Some(word))
        }
        Some(_) => Err(StrategicError::Directive {
            directive: PATCH.into(),
            path: path.into(),
        }),
    }
}

fn without_directives(fields: &Map<String, Value>) -> Value {
    fields
        .iter()
        .filter(|(field, _)| !field.starts_with('$'))
        .map(|(f, v)| (f.clone(), v.clone()))
        .collect()
}

fn delete_from(held: &mut Map<String, Value>, field: &str, gone: &Value) {
    if let Some(list) = held.get_mut(field).and_then(Value::as_array_mut) {
        let gone = gone.as_array().map_or(&[][..], Vec::as_slice);
        list.retain(|entry| !gone.contains(entry));
    }
}

/// Entries that are named come in that order; others keep their place after them.
fn sort(held: &mut Map<String, Value>, field: &str, order: &Value, merge: Option<Merge>) {
    let (Some(list), Some(order)) = (
        held.get_mut(field).and_then(Value::as_array_mut),
        order.as_array(),
    ) else {
        return;
    };
    let same = |entry: &Value, named: &Value| match merge {
        Some(Merge::ByKey(key)) => entry[key] == named[key],
        _ => entry == named,
    };
    list.sort_by_key(|entry| {
        order
            .iter()
            .position(|named| same(entry, named))
            .unwrap_or(usize::MAX)
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(object: Value, patch: &Value) -> Value {
        let mut object = object;
        apply(Family::ServiceAccount, &mut object, patch).unwrap();
        object
    }

    #[test]
    fn maps_merge_and_nulls_remove() {
        assert_eq!(
            patched(
                json!({"data": {"a": "1", "b": "2"}}),
                &json!({"data": {"a": null, "c": "3"}})
            ),
            json!({"data": {"b": "2", "c": "3"}})
        );
        assert_eq!(
            patched(json!({}), &json!({"metadata": {"labels": {"a": "b"}}})),
            json!({"metadata": {"labels": {"a": "b"}}})
        );
    }

    #[test]
    fn known_lists_merge_and_others_are_replaced() {
        let object = json!({"secrets": [{"name": "a", "x": 1}], "other": [1]});
        assert_eq!(
            patched(
                object.clone(),
                &json!({"secrets": [{"name": "b"}, {"name": "a", "y": 2}], "other": [2]})
            ),
            json!({"secrets": [{"name": "a", "x": 1, "y": 2}, {"name": "b"}], "other": [2]})
        );
        assert_eq!(
            patched(object, &json!({"secrets": [{"$patch": "delete", "name": "a"}]})),
            json!({"secrets": [], "other": [1]})
        );
    }

    #[test]
    fn directives_delete_replace_retain_and_sort() {
        assert_eq!(
            patched(
                json!({"a": {"b": 1}}),
                &json!({"a": {"$patch": "replace", "c": 2}})
            ),
            json!({"a": {"c": 2}})
        );
        assert_eq!(
            patched(json!({"a": {"b": 1}}), &json!({"a": {"$patch": "delete"}})),
            json!({})
        );
        assert_eq!(
            patched(json!({"a": 1, "b": 2}), &json!({"$retainKeys": ["a"]})),
            json!({"a": 1})
        );
        let object = json!({"metadata": {"finalizers": ["x", "y"]}});
        let patch = json!({"metadata": {
            "$deleteFromPrimitiveList/finalizers": ["x"], "finalizers": ["z"], "$setElementOrder/finalizers": ["z", "y"],
        }});
        assert_eq!(
            patched(object, &patch),
            json!({"metadata": {"finalizers": ["z", "y"]}})
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for patch in [json!({"$patch": "destroy"}), json!({"secrets": [{"x": 1}]})] {
            assert!(
                apply(Family::ServiceAccount, &mut json!({}), &patch).is_err(),
                "{patch}"
            );
        }
    }
}
