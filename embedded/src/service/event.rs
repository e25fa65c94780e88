//! Events of `events.k8s.io/v1`: a view of the core group's Events with other field names. Pure.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::negotiation::media_type;

/// The group.
pub(crate) const GROUP: &str = "events.k8s.io";
pub(super) const VERSION: &str = "events.k8s.io/v1";

/// Names of fields in the core group and in [`GROUP`].
const FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// Converts a stored Event to this group.
pub(crate) fn to_events_v1(event: &Value) -> Value {
    let mut converted = rename_fields(event, |name| {
        FIELDS.iter().find(|(core, _)| *core == name).map(|(_, new)| *new)
    });
    converted["apiVersion"] = VERSION.into();
    if let Some(fields) = converted.as_object_mut() {
        // This group omits them where the core group has empty strings.
        for name in ["reportingController", "reportingInstance"] {
            if fields.get(name).is_some_and(|text| text == "") {
                fields.remove(name);
            }
        }
    }
    converted
}

/// Converts a request body to the core group. What is not JSON is left to the decoder, which converts protobuf itself.
pub(super) fn body_to_core(bytes: Bytes, content_type: &str) -> Bytes {
    let Ok(body) = serde_json::from_slice::<Value>(&bytes) else {
        return bytes;
    };
    let converted = match body {
        Value::Array(operations) if media_type(content_type) == "application/json-patch+json" => {
            operations.into_iter().map(operation_to_core).collect()
        }
        object => to_core(&object),
    };
    Bytes::from(converted.to_string())
}

/// Converts a field selector to the core group.
pub(super) fn selector_to_core(text: &str) -> String {
    let term = |term: &str| {
        FIELDS
            .iter()
            .find_map(|(core, new)| {
                let rest = term.strip_prefix(new)?;
                rest.starts_with(['.', '=', '!']).then(|| format!("{core}{rest}"))
            })
            .unwrap_or_else(|| term.to_owned())
    };
    text.split(',').map(term).collect::<Vec<_>>().join(",")
}

fn core_name(name: &str) -> Option<&'static str> {
    FIELDS.iter().find(|(_, new)| *new == name).map(|(core, _)| *core)
}

fn to_core(object: &Value) -> Value {
    let mut converted = rename_fields(object, core_name);
    if converted["apiVersion"] == VERSION {
        converted["apiVersion"] = "v1".into();
    }
    converted
}

fn operation_to_core(mut operation: Value) -> Value {
    for field in ["path", "from"] {
        let Some(path) = operation[field].as_str() else {
            continue;
        };
        let mut parts: Vec<&str> = path.split('/').collect();
        if let Some(first) = parts.get_mut(1)
            && let Some(core) = core_name(first)
        {
            *first = core;
            operation[field] = parts.join("/").into();
        }
    }
    operation
}

/// Renames fields.
fn rename_fields(object: &Value, name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Some(fields) = object.as_object() else {
        return object.clone();
    };
    let fields: Map<String, Value> = fields
        .iter()
        .map(|(key, value)| {
            (
                name(key).map_or_else(|| key.clone(), str::to_owned),
                value.clone(),
            )
        })
        .collect();
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn field_names_are_converted_both_ways() {
        let core = json!({"apiVersion": "v1", "kind": "Event", "message": "m", "involvedObject": {"name": "a"},
            "reportingComponent": "c", "reason": "r", "count": 2});
        let new = to_events_v1(&core);
        assert_eq!(
            new,
            json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "m", "regarding": {"name": "a"},
                "reportingController": "c", "reason": "r", "deprecatedCount": 2})
        );
        assert_eq!(to_core(&new), core);
    }

    #[test]
    fn patches_and_selectors_are_converted() {
        let patch = Bytes::from(
            r#"[{"op":"replace","path":"/note","value":"x"},{"op":"add","path":"/metadata/labels/note","value":"y"}]"#,
        );
        let patch: Value =
            serde_json::from_slice(&body_to_core(patch, "application/json-patch+json")).unwrap();
        assert_eq!(patch[0]["path"], "/message");
        assert_eq!(patch[1]["path"], "/metadata/labels/note");
        assert_eq!(
            selector_to_core("regarding.name=a,type!=Normal,reportingController=x"),
            "involvedObject.name=a,type!=Normal,reportingComponent=x"
        );
    }
}
