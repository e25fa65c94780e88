//! Three-way merge of a manifest: sets its fields and removes fields that only the previous manifest had. Same as `kubectl
//! apply` without `--server-side`, whose annotation it shares, so that both can manage the same objects. Pure.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

/// The annotation with the last applied manifest.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns the manifest with itself in the annotation.
#[must_use]
pub fn annotated(manifest: &Value) -> Value {
    let mut plain = manifest.clone();
    if let Some(annotations) = annotations_mut(&mut plain) {
        annotations.remove(LAST_APPLIED);
    }
    let text = format!("{plain}\n");
    let mut annotated = plain;
    if annotations_mut(&mut annotated).is_none() {
        annotated["metadata"]["annotations"] = Value::Object(Map::new());
    }
    annotated["metadata"]["annotations"][LAST_APPLIED] = text.into();
    annotated
}

/// Returns the manifest that was last applied to an object; null if it is absent or invalid.
#[must_use]
pub fn last_applied(object: &Value) -> Value {
    object["metadata"]["annotations"][LAST_APPLIED]
        .as_str()
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// Returns the merge patch (RFC 7396) from `current` to `desired`: sets differing fields, removes fields of `original` that `desired`
/// lacks, and keeps all others. `None` if nothing changes.
#[must_use]
pub fn patch(original: &Value, desired: &Value, current: &Value) -> Option<Value> {
    let (original, desired) = (without_string_data(original), without_string_data(desired));
    let mut patch = changes(&desired, current).unwrap_or_default();
    if let Some(removed) = removals(&original, &desired, current) {
        merge(&mut patch, removed);
    }
    (!patch.is_null()).then_some(patch)
}

fn annotations_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.pointer_mut("/metadata/annotations")?.as_object_mut()
}

/// Moves a Secret's `stringData` to `data`: the API never returns `stringData`.
fn without_string_data(object: &Value) -> Value {
    let mut object = object.clone();
    if object["kind"] == "Secret" && object["apiVersion"] == "v1" {
        let texts = object
            .as_object_mut()
            .and_then(|fields| fields.remove("stringData"));
        for (key, text) in texts.as_ref().and_then(Value::as_object).into_iter().flatten() {
            if !object["data"].is_object() {
                object["data"] = Value::Object(Map::new());
            }
            object["data"][key] = BASE64_STANDARD.encode(text.as_str().unwrap_or_default()).into();
        }
    }
    object
}

/// Returns the fields of `desired` that differ from `current`. Null means no value.
fn changes(desired: &Value, current: &Value) -> Option<Value> {
    match (desired, current) {
        (Value::Null, _) => None,
        (Value::Object(desired), Value::Object(current)) => {
            let changed: Map<String, Value> = desired
                .iter()
                .filter_map(|(key, value)| {
                    let current_value = current.get(key).unwrap_or(&Value::Null);
                    Some((key.clone(), changes(value, current_value)?))
                })
                .collect();
            (!changed.is_empty()).then_some(Value::Object(changed))
        }
        _ => (desired != current).then(|| desired.clone()),
    }
}

/// Returns nulls for fields that `original` and `current` have and `desired` lacks.
fn removals(original: &Value, desired: &Value, current: &Value) -> Option<Value> {
    let (original, current) = (original.as_object()?, current.as_object()?);
    let removed: Map<String, Value> = original
        .iter()
        .filter(|(_, value)| !value.is_null())
        .filter_map(|(key, value)| {
            let current_value = current.get(key)?;
            match desired.get(key).unwrap_or(&Value::Null) {
                Value::Null => Some((key.clone(), Value::Null)),
                desired => Some((key.clone(), removals(value, desired, current_value)?)),
            }
        })
        .collect();
    (!removed.is_empty()).then_some(Value::Object(removed))
}

fn merge(patch: &mut Value, other: Value) {
    match (patch, other) {
        (Value::Object(patch), Value::Object(other)) => {
            for (key, value) in other {
                match patch.get_mut(&key) {
                    Some(existing) => merge(existing, value),
                    None => drop(patch.insert(key, value)),
                }
            }
        }
        (patch, other) => *patch = other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_sets_removes_and_keeps_fields() {
        let original = json!({"spec": {"a": 1, "gone": true, "deep": {"x": 1, "y": 2}}});
        let desired = json!({"spec": {"a": 2, "deep": {"x": 1}, "new": [1]}});
        let current = json!({"spec": {"a": 1, "gone": true, "deep": {"x": 1, "y": 2, "z": 3}, "foreign": 1}});
        assert_eq!(
            patch(&original, &desired, &current),
            Some(json!({"spec": {"a": 2, "gone": null, "deep": {"y": null}, "new": [1]}}))
        );
    }

    #[test]
    fn unchanged_objects_need_no_patch() {
        let desired = json!({"spec": {"a": 1, "b": null}});
        let current = json!({"spec": {"a": 1, "c": 2}});
        assert_eq!(patch(&Value::Null, &desired, &current), None);
        assert_eq!(
            patch(&json!({"spec": {"d": 1}}), &desired, &current),
            None,
            "what is gone already"
        );
    }

    #[test]
    fn a_key_removed_from_string_data_is_removed_from_data() {
        let secret = |texts: Value| json!({"apiVersion": "v1", "kind": "Secret", "stringData": texts});
        let current =
            json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "eA==", "b": "eQ==", "c": "eg=="}});
        assert_eq!(
            patch(
                &secret(json!({"a": "x", "b": "y"})),
                &secret(json!({"a": "x"})),
                &current
            ),
            Some(json!({"data": {"b": null}}))
        );
    }

    #[test]
    fn last_applied_contains_the_manifest_but_not_itself() {
        let manifest = json!({"kind": "X", "metadata": {"name": "a"}});
        let once = annotated(&manifest);
        assert_eq!(last_applied(&once)["metadata"]["name"], "a");
        assert_eq!(
            annotated(&once)["metadata"]["annotations"]
                .as_object()
                .unwrap()
                .len(),
            1
        );
        assert!(!last_applied(&annotated(&once)).to_string().contains(LAST_APPLIED));
    }
}
