//! Types of the metadata fields. kube-apiserver rejects an object with another type when it decodes it, and its clients cannot decode a
//! list with one.

use serde_json::{Map, Value};

use crate::meta;

/// Checks the types of the metadata fields and drops fields that are empty, unknown or not stored. Returns the unknown paths.
pub(crate) fn normalize(object: &mut Value) -> Result<Vec<String>, String> {
    if !matches!(object["metadata"], Value::Null | Value::Object(_)) {
        return Err(unmarshal_error(&object["metadata"], "metadata", "v1.ObjectMeta"));
    }
    let Some(fields) = meta::fields_mut(object) else {
        return Ok(Vec::new());
    };
    let mut unknown = Vec::new();
    for (field, value) in std::mem::take(fields) {
        let value = match field.as_str() {
            "name" | "generateName" | "namespace" | "uid" | "resourceVersion" => string_field(&field, value)?,
            "creationTimestamp" | "deletionTimestamp" => time_field(&field, value)?,
            "generation" | "deletionGracePeriodSeconds" => integer_field(&field, value)?,
            "labels" | "annotations" => string_map_field(&field, value)?,
            "finalizers" => list_field(&field, value, Value::is_string, "string")?,
            "ownerReferences" => OWNER_REFERENCES.normalize(value, &mut unknown)?,
            // An empty list resets the managers.
            "managedFields" if value.as_array().is_some_and(Vec::is_empty) => value,
            "managedFields" => MANAGED_FIELDS.normalize(value, &mut unknown)?,
            "selfLink" => Value::Null,
            _ => {
                unknown.push(format!("metadata.{field}"));
                Value::Null
            }
        };
        if !value.is_null() {
            fields.insert(field, value);
        }
    }
    Ok(unknown)
}

fn unmarshal_error(value: &Value, field: &str, expected: &str) -> String {
    type_error(value, &format!("ObjectMeta.{field}"), expected)
}

fn type_error(value: &Value, path: &str, expected: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go struct field {path} of type {expected}")
}

fn string_field(field: &str, value: Value) -> Result<Value, String> {
    match value {
        Value::String(text) if text.is_empty() => Ok(Value::Null),
        Value::String(_) | Value::Null => Ok(value),
        other => Err(unmarshal_error(&other, field, "string")),
    }
}

fn time_field(field: &str, value: Value) -> Result<Value, String> {
    let value = string_field(field, value)?;
    value.as_str().map_or(Ok(()), check_time)?;
    Ok(value)
}

fn integer_field(field: &str, value: Value) -> Result<Value, String> {
    if value.is_i64() || value.is_null() {
        return Ok(value);
    }
    Err(unmarshal_error(&value, field, "int64"))
}

fn string_map_field(field: &str, value: Value) -> Result<Value, String> {
    match value {
        Value::Null => Ok(Value::Null),
        Value::Object(map) if map.is_empty() => Ok(Value::Null),
        Value::Object(map) => {
            let entries = map.into_iter().map(|(name, value)| match value {
                Value::Null => Ok((name, Value::String(String::new()))),
                Value::String(_) => Ok((name, value)),
                other => Err(unmarshal_error(&other, field, "string")),
            });
            entries.collect::<Result<Map<_, _>, _>>().map(Value::Object)
        }
        other => Err(unmarshal_error(&other, field, "map[string]string")),
    }
}

fn list_field(field: &str, value: Value, is: fn(&Value) -> bool, of: &str) -> Result<Value, String> {
    match value {
        Value::Null => Ok(Value::Null),
        Value::Array(items) if items.is_empty() => Ok(Value::Null),
        Value::Array(items) => match items.iter().find(|item| !is(item)) {
            Some(invalid) => Err(unmarshal_error(invalid, field, of)),
            None => Ok(Value::Array(items)),
        },
        other => Err(unmarshal_error(&other, field, &format!("[]{of}"))),
    }
}

/// Type of a field in a list item.
#[derive(Clone, Copy)]
enum FieldType {
    /// A string, with the name of its Go type.
    String(&'static str),
    /// `bool`.
    Bool,
    /// meta/v1 `Time`.
    Time,
    /// Any JSON.
    Any,
}

/// A list of structures.
struct StructList {
    /// Name of the field.
    field: &'static str,
    /// Go type of the items, without the package.
    item: &'static str,
    /// Types of the fields of an item.
    types: &'static [(&'static str, FieldType)],
}

/// meta/v1 `OwnerReference`.
const OWNER_REFERENCES: StructList = StructList {
    field: "ownerReferences",
    item: "OwnerReference",
    types: &[
        ("apiVersion", FieldType::String("string")),
        ("kind", FieldType::String("string")),
        ("name", FieldType::String("string")),
        ("uid", FieldType::String("types.UID")),
        ("controller", FieldType::Bool),
        ("blockOwnerDeletion", FieldType::Bool),
    ],
};

/// meta/v1 `ManagedFieldsEntry`. Any JSON is a `FieldsV1`; its decoder ignores what it does not know.
const MANAGED_FIELDS: StructList = StructList {
    field: "managedFields",
    item: "ManagedFieldsEntry",
    types: &[
        ("manager", FieldType::String("string")),
        ("operation", FieldType::String("v1.ManagedFieldsOperationType")),
        ("apiVersion", FieldType::String("string")),
        ("time", FieldType::Time),
        ("fieldsType", FieldType::String("string")),
        ("fieldsV1", FieldType::Any),
        ("subresource", FieldType::String("string")),
    ],
};

impl StructList {
    /// Checks the types of a list, and drops fields of its items that are null or unknown.
    fn normalize(&self, value: Value, unknown: &mut Vec<String>) -> Result<Value, String> {
        let mut list = list_field(self.field, value, Value::is_object, &format!("v1.{}", self.item))?;
        for (number, item) in list.as_array_mut().into_iter().flatten().enumerate() {
            let Some(fields) = item.as_object_mut() else {
                continue;
            };
            for (name, value) in std::mem::take(fields) {
                match self.types.iter().find(|(known, _)| *known == name) {
                    Some(_) if value.is_null() => {}
                    Some((_, type_)) => {
                        self.check(&name, *type_, &value)?;
                        fields.insert(name, value);
                    }
                    None => unknown.push(format!("metadata.{}[{number}].{name}", self.field)),
                }
            }
        }
        Ok(list)
    }

    fn check(&self, name: &str, type_: FieldType, value: &Value) -> Result<(), String> {
        let path = || format!("{}.{}.{name}", self.item, self.field);
        match (type_, value) {
            (FieldType::Any, _)
            | (FieldType::String(_), Value::String(_))
            | (FieldType::Bool, Value::Bool(_)) => Ok(()),
            (FieldType::Time, Value::String(text)) => check_time(text),
            (FieldType::String(expected), _) => Err(type_error(value, &path(), expected)),
            (FieldType::Bool, _) => Err(type_error(value, &path(), "bool")),
            (FieldType::Time, _) => Err(type_error(value, &path(), "string")),
        }
    }
}

/// Checks a meta/v1 `Time`: RFC 3339 in the form of Go's `time.RFC3339`.
fn check_time(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    let has = |at: usize, byte: u8| bytes.get(at) == Some(&byte);
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    let is_shaped = separators.iter().all(|(at, byte)| has(*at, *byte));
    // The offset ends with `:MM`, and the seconds do, too.
    let offset = bytes.len().checked_sub(3).filter(|at| *at > 16);
    let has_offset = text.ends_with('Z') || offset.is_some_and(|at| has(at, b':'));
    if is_shaped && has_offset && text.parse::<jiff::Timestamp>().is_ok() {
        return Ok(());
    }
    Err(format!(
        "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": it is not in this format"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_and_unknown_fields_are_dropped() {
        let mut object = json!({"metadata": {
            "name": "a", "labels": {}, "annotations": {"a": null}, "creationTimestamp": null,
            "managedFields": [{}], "selfLink": "/x", "clusterName": "y", "finalizers": [],
        }});
        assert_eq!(normalize(&mut object).unwrap(), ["metadata.clusterName"]);
        assert_eq!(
            object,
            json!({"metadata": {"name": "a", "annotations": {"a": ""}, "managedFields": [{}]}})
        );
    }

    #[test]
    fn wrong_types_are_named() {
        for (metadata, text) in [
            (
                json!({"labels": {"a": 1}}),
                "cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
            ),
            (
                json!({"name": 1}),
                "cannot unmarshal number into Go struct field ObjectMeta.name of type string",
            ),
            (
                json!({"finalizers": "a"}),
                "cannot unmarshal string into Go struct field ObjectMeta.finalizers of type []string",
            ),
            (
                json!([]),
                "cannot unmarshal array into Go struct field ObjectMeta.metadata of type v1.ObjectMeta",
            ),
        ] {
            let error = normalize(&mut json!({ "metadata": metadata })).unwrap_err();
            assert!(error.ends_with(text), "{error}");
        }
    }

    #[test]
    fn fields_of_list_items_have_types() {
        let owner = |field: &str, value: Value| json!({"ownerReferences": [{"name": "a", field: value}]});
        let manager = |field: &str, value: Value| json!({"managedFields": [{"manager": "a", field: value}]});
        for (metadata, text) in [
            (
                owner("controller", json!("true")),
                "cannot unmarshal string into Go struct field OwnerReference.ownerReferences.controller of type bool",
            ),
            (
                owner("blockOwnerDeletion", json!(1)),
                "cannot unmarshal number into Go struct field OwnerReference.ownerReferences.blockOwnerDeletion of type bool",
            ),
            (
                owner("uid", json!(1)),
                "cannot unmarshal number into Go struct field OwnerReference.ownerReferences.uid of type types.UID",
            ),
            (
                manager("operation", json!({})),
                "cannot unmarshal object into Go struct field ManagedFieldsEntry.managedFields.operation of type v1.ManagedFieldsOperationType",
            ),
            (
                manager("time", json!("yesterday")),
                "parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\": it is not in this format",
            ),
            (
                json!({"finalizers": [1]}),
                "cannot unmarshal number into Go struct field ObjectMeta.finalizers of type string",
            ),
            (
                json!({"deletionTimestamp": "soon"}),
                "parsing time \"soon\" as \"2006-01-02T15:04:05Z07:00\": it is not in this format",
            ),
        ] {
            let error = normalize(&mut json!({ "metadata": metadata })).unwrap_err();
            assert!(error.ends_with(text), "{error}");
        }
    }

    #[test]
    fn items_lose_fields_that_are_null_or_unknown() {
        let mut object = json!({"metadata": {
            "ownerReferences": [{"name": "a", "controller": null, "blockOwnerDeletion": true, "x": 1}],
            "managedFields": [{"fieldsV1": {"f:a": {}}, "time": "2026-01-01T00:00:00Z", "y": 1}],
        }});
        let unknown = normalize(&mut object).unwrap();
        assert!(
            unknown.contains(&"metadata.ownerReferences[0].x".to_owned()),
            "{unknown:?}"
        );
        assert!(
            unknown.contains(&"metadata.managedFields[0].y".to_owned()),
            "{unknown:?}"
        );
        let expected = json!({"metadata": {
            "ownerReferences": [{"name": "a", "blockOwnerDeletion": true}],
            "managedFields": [{"fieldsV1": {"f:a": {}}, "time": "2026-01-01T00:00:00Z"}],
        }});
        assert_eq!(object, expected);
    }

    #[test]
    fn times_have_the_format_of_go() {
        for time in [
            "2026-01-01T00:00:00Z",
            "2026-01-01T00:00:00.5Z",
            "2026-01-01T00:00:00+01:00",
        ] {
            assert_eq!(check_time(time), Ok(()));
        }
        for time in [
            "2026-01-01",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00:00",
            "2026-13-01T00:00:00Z",
            "2026-01-01T00:00Z",
            "x",
        ] {
            check_time(time).unwrap_err();
        }
    }
}
