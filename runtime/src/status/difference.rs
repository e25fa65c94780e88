//! The difference of two JSON values as an RFC 7396 merge patch.

use serde_json::{Map, Value};

/// Returns the merge patch from `before` to `after`, or `None` if they are equal. Removed keys are `null`; lists are replaced
/// as a whole. `null` members count as absent on both sides.
#[must_use]
pub fn difference(before: &Value, after: &Value) -> Option<Value> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let patch = object_difference(before, after);
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        // The target becomes an object in any case, so its nulls can be omitted.
        (_, Value::Object(after)) => Some(Value::Object(object_difference(&Map::new(), after))),
        _ => (before != after).then(|| after.clone()),
    }
}

fn object_difference(before: &Map<String, Value>, after: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for (key, held) in before {
        if !held.is_null() && after.get(key).is_none_or(Value::is_null) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    for (key, wanted) in after.iter().filter(|(_, wanted)| !wanted.is_null()) {
        if let Some(change) = difference(before.get(key).unwrap_or(&Value::Null), wanted) {
            patch.insert(key.clone(), change);
        }
    }
    patch
}

/// Restores in `after` the conditions of `before` whose type is not in `owned`: they belong to another controller.
pub fn retain_foreign_conditions(before: &Value, after: &mut Value, owned: &[&str]) {
    let foreign: Vec<Value> = conditions(before)
        .filter(|held| !owned.contains(&type_of(held)))
        .cloned()
        .collect();
    if foreign.is_empty() {
        return;
    }
    if after.is_null() {
        *after = Value::Object(Map::new());
    }
    let Value::Object(after) = after else { return };
    let list = after
        .entry("conditions")
        .or_insert_with(|| Value::Array(Vec::new()));
    if list.is_null() {
        *list = Value::Array(Vec::new());
    }
    let Value::Array(list) = list else { return };
    for held in foreign {
        match list.iter_mut().find(|wanted| type_of(wanted) == type_of(&held)) {
            Some(wanted) => *wanted = held,
            None => list.push(held),
        }
    }
}

fn conditions(status: &Value) -> impl Iterator<Item = &Value> {
    status
        .get("conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn type_of(condition: &Value) -> &str {
    condition.get("type").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn removed_keys_are_null_and_equal_keys_are_absent() {
        let before = json!({"a": 1, "b": {"x": 1, "y": 2}, "list": [1, 2], "same": "s"});
        let after = json!({"b": {"x": 1, "y": 3}, "list": [2], "same": "s", "new": {"deep": {"er": null}}});
        assert_eq!(
            difference(&before, &after),
            Some(json!({"a": null, "b": {"y": 3}, "list": [2], "new": {"deep": {}}}))
        );
        assert_eq!(difference(&after, &after), None);
        assert_eq!(difference(&Value::Null, &json!({})), Some(json!({})));
        assert_eq!(difference(&json!({"a": null}), &json!({})), None);
    }

    #[test]
    fn foreign_conditions_are_retained() {
        let before = json!({"conditions": [
            {"type": "Ready", "status": "True"}, {"type": "Theirs", "status": "True"}, {"type": "Gone", "status": "True"},
        ]});
        let mut after = json!({"conditions": [{"type": "Ready", "status": "False"}, {"type": "Theirs", "status": "False"}]});
        retain_foreign_conditions(&before, &mut after, &["Ready", "Gone"]);
        assert_eq!(
            after,
            json!({"conditions": [{"type": "Ready", "status": "False"}, {"type": "Theirs", "status": "True"}]})
        );
        let mut nothing = Value::Null;
        retain_foreign_conditions(&before, &mut nothing, &["Ready", "Gone"]);
        assert_eq!(
            nothing,
            json!({"conditions": [{"type": "Theirs", "status": "True"}]})
        );
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..4).prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    /// RFC 7396, section 2.
    fn merge(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        let target = target.as_object_mut().unwrap();
        for (key, value) in patch {
            if value.is_null() {
                target.remove(key);
            } else {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }

    /// Removes null members of objects; leaves lists unchanged.
    fn without_nulls(value: &Value) -> Value {
        match value {
            Value::Object(map) => Value::Object(
                map.iter()
                    .filter(|(_, v)| !v.is_null())
                    .map(|(k, v)| (k.clone(), without_nulls(v)))
                    .collect(),
            ),
            other => other.clone(),
        }
    }

    proptest! {
        #[test]
        fn the_patch_transforms_before_to_after(before in json_value(), after in json_value()) {
            let mut result = before.clone();
            if let Some(patch) = difference(&before, &after) {
                merge(&mut result, &patch);
            }
            prop_assert_eq!(without_nulls(&result), without_nulls(&after));
        }
    }
}
