//! Reading and writing an object's metadata where it lies in JSON.

use serde_json::{Map, Value};

/// A string field of the metadata, empty when absent.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or("")
}

/// `metadata.name`.
pub(crate) fn name(object: &Value) -> &str {
    text(object, "name")
}

/// `metadata.namespace`, empty for cluster-scoped objects.
pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// `metadata.uid`.
pub(crate) fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// `metadata.resourceVersion`.
pub(crate) fn resource_version(object: &Value) -> &str {
    text(object, "resourceVersion")
}

/// Whether deletion was asked for.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// `metadata.finalizers`.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    strings(&object["metadata"]["finalizers"])
}

/// The strings of an array; nothing when it is none.
pub(crate) fn strings(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .map_or_else(Vec::new, |list| list.iter().filter_map(Value::as_str).collect())
}

/// `metadata.ownerReferences`.
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

/// The metadata map, made when absent. `None` for what is no object.
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

/// The time in the form of meta/v1 `Time`: RFC 3339, whole seconds, UTC.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
