//! Access to an object's metadata in JSON.

use serde_json::{Map, Value};

/// Returns a string field of the metadata; empty if absent.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or("")
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "name")
}

/// Returns `metadata.namespace`; empty for cluster-scoped objects.
pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "uid")
}

pub(crate) fn resource_version(object: &Value) -> &str {
    text(object, "resourceVersion")
}

/// Whether the object has a deletion timestamp.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    strings(&object["metadata"]["finalizers"])
}

/// Returns the strings of an array; empty for any other value.
pub(crate) fn strings(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .map_or_else(Vec::new, |list| list.iter().filter_map(Value::as_str).collect())
}

pub(crate) fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"]
        .as_array()
        .map_or(&[], Vec::as_slice)
}

/// Sets a metadata field; `Null` removes it.
pub(crate) fn set(object: &mut Value, field: &str, value: Value) {
    let Some(fields) = fields_mut(object) else { return };
    if value.is_null() {
        fields.remove(field);
    } else {
        fields.insert(field.into(), value);
    }
}

/// Returns the metadata map, created if absent; `None` if the value is not an object.
pub(crate) fn fields_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let root = object.as_object_mut()?;
    let metadata = root
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut()
}

/// Returns the current time in the format of meta/v1 `Time`: RFC 3339, whole seconds, UTC.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
