//! The plan's JSON without what it marks as sensitive (pure). It goes by the places of the marks: a value that is too short to be
//! looked for in a text goes as well, and so does what stands in no change, such as the state of what is not planned.

use serde_json::{Map, Value};

use crate::secrets::HIDDEN;

/// Members of an object that are marks, and the members that they are about. What is sensitive on one side of a change is
/// treated so on both: it may be the same.
const MARKS: [(&str, &[&str]); 4] = [
    ("sensitive_values", &["values"]),
    ("before_sensitive", &["before", "after"]),
    ("after_sensitive", &["before", "after"]),
    ("config_sensitive", &["config_values"]),
];
/// Members that are no one's to read in an object that says `"sensitive": true`: an output, or the declaration of a variable.
const WHOLE: [&str; 3] = ["value", "default", "constant_value"];

/// Takes out of a plan's JSON what it marks as sensitive.
pub fn mask(plan: &mut Value) {
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
            cover(value);
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
            for (marks, places) in MARKS {
                let Some(marks) = members.get(marks).cloned() else {
                    continue;
                };
                for place in places {
                    if let Some(value) = members.get_mut(*place) {
                        cover_marked(value, &marks);
                    }
                }
            }
            if members.get("sensitive") == Some(&Value::Bool(true)) {
                cover_whole(members);
            }
            members.values_mut().for_each(walk);
        }
        Value::Array(elements) => elements.iter_mut().for_each(walk),
        _ => {}
    }
}

fn cover_whole(members: &mut Map<String, Value>) {
    if let Some(Value::Object(expression)) = members.get_mut("expression") {
        cover_whole(expression);
    }
    for name in WHOLE {
        if let Some(value) = members.get_mut(name) {
            cover(value);
        }
    }
}

/// That there is nothing is no secret: a create still has no `before`.
fn cover(value: &mut Value) {
    if !value.is_null() {
        *value = Value::from(HIDDEN);
    }
}

/// Covers the places of a value that are marked with `true`.
fn cover_marked(value: &mut Value, marks: &Value) {
    match (value, marks) {
        (value, Value::Bool(true)) => cover(value),
        (Value::Array(elements), Value::Array(marks)) => {
            for (element, mark) in elements.iter_mut().zip(marks) {
                cover_marked(element, mark);
            }
        }
        (Value::Object(members), Value::Object(marks)) => {
            for (name, mark) in marks {
                if let Some(member) = members.get_mut(name) {
                    cover_marked(member, mark);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn what_is_marked_goes_wherever_it_stands_and_however_short_it_is() {
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
        mask(&mut plan);
        let masked = json!({ "actions": ["update"],
            "before": { "pin": HIDDEN, "list": ["a", HIDDEN], "open": "x" },
            "after": { "pin": HIDDEN, "list": ["a", HIDDEN], "open": "x" },
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
            json!({ "pin": { "value": HIDDEN }, "open": { "value": "1234" } })
        );
        assert_eq!(plan["output_changes"]["o"]["after"], HIDDEN);
        assert_eq!(plan["output_changes"]["o"]["before"], Value::Null);
        assert_eq!(plan["planned_values"]["outputs"]["o"]["value"], HIDDEN);
        assert_eq!(plan["prior_state"]["values"]["outputs"]["o"]["value"], "shown");
        for place in ["/planned_values/root_module", "/prior_state/values/root_module"] {
            for module in ["", "/child_modules/0"] {
                let values = plan.pointer(&format!("{place}{module}/resources/0/values"));
                assert_eq!(values, Some(&json!({ "k": HIDDEN, "o": 1 })), "{place}{module}");
            }
        }
        let root = &plan["configuration"]["root_module"];
        assert_eq!(root["variables"]["pin"]["default"], HIDDEN);
        assert_eq!(root["variables"]["open"]["default"], "0000");
        assert_eq!(root["outputs"]["o"]["expression"]["constant_value"], HIDDEN);
    }

    proptest! {
        #[test]
        fn any_json_is_taken(text in "(\\{\"(before|after|values|sensitive|before_sensitive|sensitive_values)\":|\\[|true|1|\"a\"|,|\\]|\\}){0,24}") {
            if let Ok(mut value) = serde_json::from_str::<Value>(&text) {
                mask(&mut value);
                let once = value.clone();
                mask(&mut value);
                prop_assert_eq!(value, once);
            }
        }
    }
}
