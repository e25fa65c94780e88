//! Redaction of the JSON of a plan by its own marks. Unlike the redaction of text, it covers short values and values outside of
//! changes, such as the prior state.

use serde_json::{Map, Value};

use crate::redaction::REDACTED;

/// Members with marks, and the members that they mark. A value that is sensitive on one side of a change is redacted on both, since
/// the values may be equal.
const MARKS: [(&str, &[&str]); 4] = [
    ("sensitive_values", &["values"]),
    ("before_sensitive", &["before", "after"]),
    ("after_sensitive", &["before", "after"]),
    ("config_sensitive", &["config_values"]),
];
/// Redacted members of objects with `"sensitive": true`: outputs and declarations of variables.
const VALUE_MEMBERS: [&str; 3] = ["value", "default", "constant_value"];

/// Redacts the values that the plan marks as sensitive.
pub fn redact(plan: &mut Value) {
    let declared = plan.pointer("/configuration/root_module/variables");
    let sensitive: Vec<String> = declared
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(_, variable)| is_sensitive(variable))
        .map(|(name, _)| name.clone())
        .collect();
    for name in sensitive {
        if let Some(value) = plan
            .get_mut("variables")
            .and_then(|all| all.get_mut(name)?.get_mut("value"))
        {
            redact_value(value);
        }
    }
    walk(plan);
}

fn is_sensitive(entry: &Value) -> bool {
    entry.get("sensitive") == Some(&Value::Bool(true))
}

fn walk(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (marks, names) in MARKS {
                let Some(marks) = members.get(marks).cloned() else {
                    continue;
                };
                for name in names {
                    if let Some(value) = members.get_mut(*name) {
                        redact_marked(value, &marks);
                    }
                }
            }
            if members.get("sensitive") == Some(&Value::Bool(true)) {
                redact_members(members);
            }
            members.values_mut().for_each(walk);
        }
        Value::Array(elements) => elements.iter_mut().for_each(walk),
        _ => {}
    }
}

fn redact_members(members: &mut Map<String, Value>) {
    if let Some(Value::Object(expression)) = members.get_mut("expression") {
        redact_members(expression);
    }
    for name in VALUE_MEMBERS {
        if let Some(value) = members.get_mut(name) {
            redact_value(value);
        }
    }
}

/// Redacts a value except `null`, which shows that a value is absent.
fn redact_value(value: &mut Value) {
    if !value.is_null() {
        *value = Value::from(REDACTED);
    }
}

/// Redacts the parts of a value that are marked with `true`.
fn redact_marked(value: &mut Value, marks: &Value) {
    match (value, marks) {
        (value, Value::Bool(true)) => redact_value(value),
        (Value::Array(elements), Value::Array(marks)) => {
            for (element, mark) in elements.iter_mut().zip(marks) {
                redact_marked(element, mark);
            }
        }
        (Value::Object(members), Value::Object(marks)) => {
            for (name, mark) in marks {
                if let Some(member) = members.get_mut(name) {
                    redact_marked(member, mark);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn sensitive_values_are_removed_at_any_depth_and_length() {
        let change = json!({ "actions": ["update"],
            "before": { "pin": 7, "list": ["a", "b"], "open": "x" }, "after": { "pin": true, "list": ["a", "c"], "open": "x" },
            "before_sensitive": { "pin": true }, "after_sensitive": { "list": [false, true] } });
        let resource = json!({ "address": "data.a.b", "values": { "k": "v", "o": 1 }, "sensitive_values": { "k": true } });
        let module = json!({ "resources": [resource], "child_modules": [{ "resources": [resource] }] });
        let mut plan = json!({
            "variables": { "pin": { "value": "1234" }, "open": { "value": "1234" } },
            "resource_changes": [{ "address": "a.b", "change": change }],
            "resource_drift": [{ "address": "a.b", "change": change }],
            "output_changes": { "o": { "actions": ["create"], "before": null, "after": { "x": 1 },
                "before_sensitive": true, "after_sensitive": true } },
            "planned_values": { "outputs": { "o": { "sensitive": true, "value": "short" } }, "root_module": module },
            "prior_state": { "values": { "outputs": { "o": { "sensitive": false, "value": "shown" } }, "root_module": module } },
            "deferred_changes": [{ "reason": "x", "resource_change": { "change": change } }],
            "configuration": { "root_module": {
                "variables": { "pin": { "sensitive": true, "default": "0000" }, "open": { "default": "0000" } },
                "outputs": { "o": { "sensitive": true, "expression": { "constant_value": "lit" } } } } }
        });
        redact(&mut plan);
        let masked = json!({ "actions": ["update"],
            "before": { "pin": REDACTED, "list": ["a", REDACTED], "open": "x" },
            "after": { "pin": REDACTED, "list": ["a", REDACTED], "open": "x" },
            "before_sensitive": { "pin": true }, "after_sensitive": { "list": [false, true] } });
        for pointer in [
            "/resource_changes/0/change",
            "/resource_drift/0/change",
            "/deferred_changes/0/resource_change/change",
        ] {
            assert_eq!(plan.pointer(pointer), Some(&masked), "{pointer}");
        }
        assert_eq!(
            plan["variables"],
            json!({ "pin": { "value": REDACTED }, "open": { "value": "1234" } })
        );
        assert_eq!(plan["output_changes"]["o"]["after"], REDACTED);
        assert_eq!(plan["output_changes"]["o"]["before"], Value::Null);
        assert_eq!(plan["planned_values"]["outputs"]["o"]["value"], REDACTED);
        assert_eq!(plan["prior_state"]["values"]["outputs"]["o"]["value"], "shown");
        for state in ["/planned_values/root_module", "/prior_state/values/root_module"] {
            for module in ["", "/child_modules/0"] {
                let values = plan.pointer(&format!("{state}{module}/resources/0/values"));
                assert_eq!(values, Some(&json!({ "k": REDACTED, "o": 1 })), "{state}{module}");
            }
        }
        let root = &plan["configuration"]["root_module"];
        assert_eq!(root["variables"]["pin"]["default"], REDACTED);
        assert_eq!(root["variables"]["open"]["default"], "0000");
        assert_eq!(root["outputs"]["o"]["expression"]["constant_value"], REDACTED);
    }

    proptest! {
        #[test]
        fn arbitrary_json_does_not_panic(text in "(\\{\"(before|after|values|sensitive|before_sensitive|sensitive_values)\":|\\[|true|1|\"a\"|,|\\]|\\}){0,24}") {
            if let Ok(mut value) = serde_json::from_str::<Value>(&text) {
                redact(&mut value);
                let once = value.clone();
                redact(&mut value);
                prop_assert_eq!(value, once);
            }
        }
    }
}
