//! Events of `events.k8s.io/v1`: those of the core group, with other names for some fields. Pure.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::negotiate::media_type;

/// The group.
pub(crate) const GROUP: &str = "events.k8s.io";
const VERSION: &str = "events.k8s.io/v1";

/// Names of a field in the core group and in [`GROUP`].
const FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// A stored Event as this group shows it.
pub(crate) fn shown(event: &Value) -> Value {
    let mut shown = renamed(event, |name| {
        FIELDS.iter().find(|(core, _)| *core == name).map(|(_, new)| *new)
    });
    shown["apiVersion"] = VERSION.into();
    if let Some(fields) = shown.as_object_mut() {
        // This group leaves them out where the core group shows them empty.
        for name in ["reportingController", "reportingInstance"] {
            if fields.get(name).is_some_and(|text| text == "") {
                fields.remove(name);
            }
        }
    }
    shown
}

/// A request's body in the names of the core group. What is no JSON is left for the decoder to refuse.
pub(super) fn stored_body(bytes: Bytes, content_type: &str) -> Bytes {
    let Ok(body) = serde_json::from_slice::<Value>(&bytes) else {
        return bytes;
    };
    let converted = match body {
        Value::Array(operations) if media_type(content_type) == "application/json-patch+json" => {
            operations.into_iter().map(stored_operation).collect()
        }
        object => stored(&object),
    };
    Bytes::from(converted.to_string())
}

/// A field selector in the names of the core group.
pub(super) fn stored_selector(text: &str) -> String {
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

fn stored(object: &Value) -> Value {
    let mut stored = renamed(object, core_name);
    if stored["apiVersion"] == VERSION {
        stored["apiVersion"] = "v1".into();
    }
    stored
}

fn stored_operation(mut operation: Value) -> Value {
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

/// The same fields under other names.
fn renamed(object: &Value, name: impl Fn(&str) -> Option<&'static str>) -> Value {
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
    use super::*;
    use serde_json::json;

    #[test]
    fn names_go_both_ways() {
        let core = json!({"apiVersion": "v1", "kind": "Event", "message": "m", "involvedObject": {"name": "a"},
            "reportingComponent": "c", "reason": "r", "count": 2});
        let new = shown(&core);
        assert_eq!(
            new,
            json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "m", "regarding": {"name": "a"},
                "reportingController": "c", "reason": "r", "deprecatedCount": 2})
        );
        assert_eq!(stored(&new), core);
    }

    #[test]
    fn patches_and_selectors_are_renamed() {
        let patch = Bytes::from(
            r#"[{"op":"replace","path":"/note","value":"x"},{"op":"add","path":"/metadata/labels/note","value":"y"}]"#,
        );
        let patch: Value =
            serde_json::from_slice(&stored_body(patch, "application/json-patch+json")).unwrap();
        assert_eq!(patch[0]["path"], "/message");
        assert_eq!(patch[1]["path"], "/metadata/labels/note");
        assert_eq!(
            stored_selector("regarding.name=a,type!=Normal,reportingController=x"),
            "involvedObject.name=a,type!=Normal,reportingComponent=x"
        );
    }
}
