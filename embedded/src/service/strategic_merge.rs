//! Strategic merge patch for the built-in kinds: a merge patch with directives that merges some lists by key. Pure.
//!
//! Only the merged lists of these kinds are known here; other lists are replaced, as in their Go types. Directives:
//! `$patch: delete|replace|merge`, `$deleteFromPrimitiveList/<field>`, `$retainKeys`; `$setElementOrder/<field>` sorts.

use serde_json::{Map, Value};

use crate::resource::Strategy;
use crate::schema::path;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList/";
const SET_ELEMENT_ORDER: &str = "$setElementOrder/";

/// The merge of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListMerge {
    /// Merges entries with the same value of this field.
    ByKey(&'static str),
    /// A set of scalars.
    Set,
}

/// The error of a patch that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StrategicError {
    /// A directive has an invalid value.
    #[error("invalid value for the directive {directive} at {path}")]
    Directive { directive: String, path: String },
    /// A list entry lacks the merge key.
    #[error("map: does not contain declared merge key: {key}")]
    MissingKey { key: &'static str },
}

/// Returns the merge of a list, from `patchStrategy` and `patchMergeKey` of the Go types.
fn list_merge(strategy: Strategy, path: &str) -> Option<ListMerge> {
    match (strategy, path) {
        (_, "metadata.ownerReferences") => Some(ListMerge::ByKey("uid")),
        (_, "metadata.finalizers") => Some(ListMerge::Set),
        (Strategy::ServiceAccount, "secrets") => Some(ListMerge::ByKey("name")),
        (Strategy::Namespace, "status.conditions") => Some(ListMerge::ByKey("type")),
        _ => None,
    }
}

/// Applies a patch to an object of a built-in kind.
pub(super) fn apply(strategy: Strategy, object: &mut Value, patch: &Value) -> Result<(), StrategicError> {
    merge_value(strategy, "", object, patch)
}

fn merge_value(
    strategy: Strategy,
    at: &str,
    target: &mut Value,
    patch: &Value,
) -> Result<(), StrategicError> {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    match patch_directive(fields, at)? {
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
    let Some(existing) = target.as_object_mut() else {
        return Ok(());
    };
    if let Some(retained) = fields.get(RETAIN_KEYS) {
        let retained = crate::meta::strings(retained);
        existing.retain(|field, _| retained.contains(&field.as_str()));
    }
    for (field, value) in fields.iter().filter(|(field, _)| !field.starts_with('$')) {
        let inner = path::child(at, field);
        merge_field(strategy, &inner, existing, field, value)?;
    }
    for (field, value) in fields {
        if let Some(field) = field.strip_prefix(DELETE_FROM_LIST) {
            delete_from_list(existing, field, value);
        } else if let Some(field) = field.strip_prefix(SET_ELEMENT_ORDER) {
            let merge = list_merge(strategy, &path::child(at, field));
            sort_list(existing, field, value, merge);
        }
    }
    Ok(())
}

fn merge_field(
    strategy: Strategy,
    path: &str,
    existing: &mut Map<String, Value>,
    field: &str,
    value: &Value,
) -> Result<(), StrategicError> {
    match (value, list_merge(strategy, path)) {
        (Value::Null, _) => {
            existing.remove(field);
        }
        (Value::Array(entries), Some(merge)) => {
            let target = existing.entry(field).or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(list) = target {
                merge_list(strategy, path, list, entries, merge)?;
            }
        }
        (Value::Object(_), _) => {
            let is_deleted = value[PATCH] == "delete";
            merge_value(
                strategy,
                path,
                existing.entry(field).or_insert(Value::Null),
                value,
            )?;
            if is_deleted {
                existing.remove(field);
            }
        }
        _ => {
            existing.insert(field.into(), value.clone());
        }
    }
    Ok(())
}

fn merge_list(
    strategy: Strategy,
    path: &str,
    list: &mut Vec<Value>,
    entries: &[Value],
    merge: ListMerge,
) -> Result<(), StrategicError> {
    if entries.iter().any(|entry| entry[PATCH] == "replace") {
        list.clear();
    }
    for entry in entries.iter().filter(|entry| entry[PATCH] != "replace") {
        let ListMerge::ByKey(key) = merge else {
            if !list.contains(entry) {
                list.push(entry.clone());
            }
            continue;
        };
        if entry.get(key).is_none() {
            return Err(StrategicError::MissingKey { key });
        }
        let at = list.iter().position(|existing| existing[key] == entry[key]);
        match at {
            _ if entry[PATCH] == "delete" => list.retain(|existing| existing[key] != entry[key]),
            Some(at) => merge_value(strategy, &format!("{path}[]"), &mut list[at], entry)?,
            None => {
                let mut added = Value::Null;
                merge_value(strategy, &format!("{path}[]"), &mut added, entry)?;
                list.push(added);
            }
        }
    }
    Ok(())
}

fn patch_directive<'a>(
    fields: &'a Map<String, Value>,
    path: &str,
) -> Result<Option<&'a str>, StrategicError> {
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

fn delete_from_list(existing: &mut Map<String, Value>, field: &str, removed: &Value) {
    if let Some(list) = existing.get_mut(field).and_then(Value::as_array_mut) {
        let removed = removed.as_array().map_or(&[][..], Vec::as_slice);
        list.retain(|entry| !removed.contains(entry));
    }
}

/// Sorts the entries by a given order; other entries follow in their old order.
fn sort_list(existing: &mut Map<String, Value>, field: &str, order: &Value, merge: Option<ListMerge>) {
    let (Some(list), Some(order)) = (
        existing.get_mut(field).and_then(Value::as_array_mut),
        order.as_array(),
    ) else {
        return;
    };
    let is_same = |entry: &Value, named: &Value| match merge {
        Some(ListMerge::ByKey(key)) => entry[key] == named[key],
        _ => entry == named,
    };
    list.sort_by_key(|entry| {
        order
            .iter()
            .position(|named| is_same(entry, named))
            .unwrap_or(usize::MAX)
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(object: Value, patch: &Value) -> Value {
        let mut object = object;
        apply(Strategy::ServiceAccount, &mut object, patch).unwrap();
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
    fn invalid_patches_are_rejected() {
        for patch in [json!({"$patch": "destroy"}), json!({"secrets": [{"x": 1}]})] {
            assert!(
                apply(Strategy::ServiceAccount, &mut json!({}), &patch).is_err(),
                "{patch}"
            );
        }
    }
}
