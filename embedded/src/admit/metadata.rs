//! meta/v1 ObjectMeta: its fields, their types and their rules.

use serde_json::{Map, Value};

use crate::{meta, service::Cause};

/// All annotations of an object together.
const ANNOTATION_BYTES: usize = 256 * 1024;

const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const WHOLE: &str = "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const PREFIX: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Checks the types of the metadata, drops what is empty, unknown or not kept here. Returns the unknown paths.
pub(super) fn form(object: &mut Value) -> Result<Vec<String>, String> {
    if object
        .get("metadata")
        .is_some_and(|metadata| !metadata.is_object() && !metadata.is_null())
    {
        return Err(wrong_type(&object["metadata"], "metadata", "v1.ObjectMeta"));
    }
    let Some(fields) = meta::fields_mut(object) else {
        return Ok(Vec::new());
    };
    let mut dropped = Vec::new();
    for (field, value) in std::mem::take(fields) {
        let kept = match field.as_str() {
            "name" | "generateName" | "namespace" | "uid" | "resourceVersion" | "creationTimestamp"
            | "deletionTimestamp" => text(&field, value)?,
            "generation" | "deletionGracePeriodSeconds" => number(&field, value)?,
            "labels" | "annotations" => texts_by_name(&field, value)?,
            "finalizers" => list(&field, value, Value::is_string, "string")?,
            "ownerReferences" => list(&field, value, Value::is_object, "v1.OwnerReference")?,
            // Not kept: there is no server-side apply that would read them.
            "managedFields" | "selfLink" => Value::Null,
            _ => {
                dropped.push(format!("metadata.{field}"));
                Value::Null
            }
        };
        if !kept.is_null() {
            fields.insert(field, kept);
        }
    }
    Ok(dropped)
}

fn wrong_type(value: &Value, field: &str, wanted: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go struct field ObjectMeta.{field} of type {wanted}")
}

fn text(field: &str, value: Value) -> Result<Value, String> {
    match value {
        Value::String(text) if text.is_empty() => Ok(Value::Null),
        Value::String(_) | Value::Null => Ok(value),
        other => Err(wrong_type(&other, field, "string")),
    }
}

fn number(field: &str, value: Value) -> Result<Value, String> {
    if value.is_i64() || value.is_null() {
        return Ok(value);
    }
    Err(wrong_type(&value, field, "int64"))
}

fn texts_by_name(field: &str, value: Value) -> Result<Value, String> {
    match value {
        Value::Null => Ok(Value::Null),
        Value::Object(map) if map.is_empty() => Ok(Value::Null),
        Value::Object(map) => {
            let entries = map.into_iter().map(|(name, value)| match value {
                Value::Null => Ok((name, Value::String(String::new()))),
                Value::String(_) => Ok((name, value)),
                other => Err(wrong_type(&other, field, "string")),
            });
            entries.collect::<Result<Map<_, _>, _>>().map(Value::Object)
        }
        other => Err(wrong_type(&other, field, "map[string]string")),
    }
}

fn list(field: &str, value: Value, is: fn(&Value) -> bool, of: &str) -> Result<Value, String> {
    match value {
        Value::Null => Ok(Value::Null),
        Value::Array(items) if items.is_empty() => Ok(Value::Null),
        Value::Array(items) => match items.iter().find(|item| !is(item)) {
            Some(odd) => Err(wrong_type(odd, field, of)),
            None => Ok(Value::Array(items)),
        },
        other => Err(wrong_type(&other, field, &format!("[]{of}"))),
    }
}

/// What is wrong with the metadata of an object.
pub(super) fn check(object: &Value) -> Vec<Cause> {
    let mut causes = labels(object);
    causes.extend(annotations(object));
    causes.extend(owner_references(object));
    for finalizer in meta::finalizers(object) {
        causes.extend(qualified("metadata.finalizers", finalizer));
    }
    causes
}

/// What must not change, or not in this way.
pub(super) fn check_update(new: &Value, old: &Value) -> Vec<Cause> {
    if !meta::is_deleting(old) {
        return Vec::new();
    }
    let held = meta::finalizers(old);
    let added: Vec<&str> = meta::finalizers(new)
        .into_iter()
        .filter(|name| !held.contains(name))
        .collect();
    if added.is_empty() {
        return Vec::new();
    }
    let list = added
        .iter()
        .map(|name| format!("{name:?}"))
        .collect::<Vec<_>>()
        .join(", ");
    vec![Cause::forbidden(
        "metadata.finalizers",
        &format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"
        ),
    )]
}

fn labels(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (name, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        causes.extend(qualified("metadata.labels", name));
        let value = value.as_str().unwrap_or("");
        if value.len() > 63 {
            causes.push(Cause::invalid(
                "metadata.labels",
                value,
                "must be no more than 63 characters",
            ));
        }
        if !value.is_empty() && !is_name_part(value) {
            causes.push(Cause::invalid("metadata.labels", value, LABEL_VALUE));
        }
    }
    causes
}

fn annotations(object: &Value) -> Vec<Cause> {
    let (mut causes, mut bytes) = (Vec::new(), 0);
    for (name, value) in object["metadata"]["annotations"]
        .as_object()
        .into_iter()
        .flatten()
    {
        causes.extend(qualified("metadata.annotations", &name.to_lowercase()));
        bytes += name.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATION_BYTES {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            field: "metadata.annotations".into(),
            message: format!("Too long: may not be more than {ANNOTATION_BYTES} bytes"),
        });
    }
    causes
}

fn owner_references(object: &Value) -> Vec<Cause> {
    let (mut causes, mut controller) = (Vec::new(), None);
    for owner in meta::owners(object) {
        let text = |field: &str| owner[field].as_str().unwrap_or("");
        let nothing = [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ];
        for (field, why) in nothing {
            if text(field).is_empty() {
                causes.push(Cause::invalid(
                    format!("metadata.ownerReferences.{field}"),
                    "",
                    why,
                ));
            }
        }
        if (text("apiVersion"), text("kind")) == ("v1", "Event") {
            causes.push(Cause {
                reason: "FieldValueInvalid",
                field: "metadata.ownerReferences".into(),
                message: format!("Invalid value: {owner}: /v1, Kind=Event is disallowed from being an owner"),
            });
        }
        if owner["controller"] == true
            && let Some(first) = controller.replace(text("name"))
        {
            let why = format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {}",
                text("name")
            );
            causes.push(Cause {
                reason: "FieldValueInvalid",
                field: "metadata.ownerReferences".into(),
                message: format!("Invalid value: {}: {why}", Value::from(meta::owners(object))),
            });
        }
    }
    causes
}

/// A name with an optional DNS prefix, as labels, annotations and finalizers have.
fn qualified(field: &str, text: &str) -> Vec<Cause> {
    let (prefix, name) = text.split_once('/').unwrap_or(("", text));
    if name.contains('/') {
        let why =
            format!("{WHOLE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')");
        return vec![Cause::invalid(field, text, &why)];
    }
    let mut causes = Vec::new();
    if text.contains('/') && (prefix.is_empty() || !is_subdomain(prefix)) {
        causes.push(Cause::invalid(
            field,
            text,
            if prefix.is_empty() {
                "prefix part must be non-empty"
            } else {
                PREFIX
            },
        ));
    }
    if name.is_empty() {
        causes.push(Cause::invalid(field, text, "name part must be non-empty"));
    } else if name.len() > 63 {
        causes.push(Cause::invalid(
            field,
            text,
            "name part must be no more than 63 characters",
        ));
    }
    if !is_name_part(name) {
        causes.push(Cause::invalid(field, text, QUALIFIED));
    }
    causes
}

fn is_name_part(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
        && text.chars().all(|c| alphanumeric(c) || "-_.".contains(c))
}

fn is_subdomain(text: &str) -> bool {
    let part = |part: &str| is_name_part(part) && !part.contains('_');
    text.len() <= 253 && text.split('.').all(part) && !text.contains(|c: char| c.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_and_foreign_fields_are_dropped() {
        let mut object = json!({"metadata": {
            "name": "a", "labels": {}, "annotations": {"a": null}, "creationTimestamp": null,
            "managedFields": [{}], "selfLink": "/x", "clusterName": "y", "finalizers": [],
        }});
        assert_eq!(form(&mut object).unwrap(), ["metadata.clusterName"]);
        assert_eq!(
            object,
            json!({"metadata": {"name": "a", "annotations": {"a": ""}}})
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
            let error = form(&mut json!({ "metadata": metadata })).unwrap_err();
            assert!(error.ends_with(text), "{error}");
        }
    }

    #[test]
    fn rules_name_the_field() {
        let wrong = |metadata: Value| -> Vec<String> {
            check(&json!({ "metadata": metadata }))
                .into_iter()
                .map(|cause| cause.field)
                .collect()
        };
        assert!(wrong(json!({"labels": {"a.b/c": "d", "e": ""}, "finalizers": ["a.b/c"]})).is_empty());
        assert_eq!(wrong(json!({"labels": {"a": "-"}})), ["metadata.labels"]);
        assert_eq!(wrong(json!({"labels": {"/a": ""}})), ["metadata.labels"]);
        assert_eq!(
            wrong(json!({"annotations": {"a": "x".repeat(ANNOTATION_BYTES)}})),
            ["metadata.annotations"]
        );
        assert_eq!(wrong(json!({"finalizers": ["a b"]})), ["metadata.finalizers"]);
        assert_eq!(
            wrong(json!({"ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "b"}]})),
            ["metadata.ownerReferences.uid"]
        );
    }

    #[test]
    fn a_deleting_object_takes_no_new_finalizer() {
        let old = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}});
        let with = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
        assert!(check_update(&with(json!([])), &old).is_empty());
        let causes = check_update(&with(json!(["a/b", "c/d"])), &old);
        assert!(
            causes[0]
                .message
                .ends_with("found new finalizers []string{\"c/d\"}"),
            "{causes:?}"
        );
    }
}
