//! Property tests with random schemas and objects: no panics; pruning and defaulting are idempotent.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::Schema;
use super::node::MAX_DEPTH;

const NAMES: [&str; 4] = ["a", "b", "kind", "metadata"];

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
        Just(json!("5m")),
    ]
}

fn named<S: Strategy<Value = Value>>(value: S) -> impl Strategy<Value = Map<String, Value>> {
    proptest::collection::vec((proptest::sample::select(&NAMES[..]), value), 0..4).prop_map(|fields| {
        fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    })
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            named(inner).prop_map(Value::Object),
        ]
    })
}

/// Keywords that any node may have.
fn keywords() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({})),
        Just(json!({"nullable": true})),
        Just(json!({"type": "string", "pattern": "^[a-z]*$", "maxLength": 3})),
        Just(json!({"type": "string", "format": "date-time"})),
        Just(
            json!({"type": "string", "format": "duration", "x-kubernetes-validations": [{"rule": "self > duration('1s')"}]})
        ),
        Just(json!({"type": "integer", "minimum": 2, "multipleOf": 3})),
        Just(json!({"type": "number", "multipleOf": 0.5, "exclusiveMaximum": true, "maximum": 9.5})),
        Just(json!({"type": "boolean"})),
        Just(json!({"x-kubernetes-int-or-string": true})),
        Just(json!({"enum": ["x", 1, null]})),
        Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
        Just(json!({"x-kubernetes-embedded-resource": true})),
        Just(
            json!({"x-kubernetes-validations": [{"rule": "self == oldSelf || has(self.a)", "messageExpression": "string(self)"}]})
        ),
        Just(json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "not": {"required": ["kind"]}})),
        Just(json!({"anyOf": [{"type": "string"}, {"minimum": 5}], "allOf": [{"maxProperties": 2}]})),
        Just(json!({"x-kubernetes-list-type": "set"})),
        Just(json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]})),
    ]
}

fn with(mut schema: Value, key: &str, value: Value) -> Value {
    schema[key] = value;
    schema
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = (keywords(), proptest::option::of(value())).prop_map(|(schema, default)| match default {
        Some(default) => with(schema, "default", default),
        None => schema,
    });
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            (keywords(), named(inner.clone())).prop_map(|(schema, fields)| with(
                schema,
                "properties",
                fields.into()
            )),
            (keywords(), inner.clone()).prop_map(|(schema, child)| with(
                schema,
                "additionalProperties",
                child
            )),
            (keywords(), inner).prop_map(|(schema, child)| with(schema, "items", child)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_panics_and_steps_are_idempotent(schema in schema(), object in value(), old in proptest::option::of(value())) {
        let schema = Schema::compile(&schema).unwrap();
        let mut object = object;
        schema.prune(&mut object);
        let mut again = object.clone();
        prop_assert!(schema.prune(&mut again).is_empty(), "the second pruning drops more");
        prop_assert_eq!(&again, &object);
        schema.apply_defaults(&mut object);
        let errors = schema.validate(&object, old.as_ref(), false);
        prop_assert!(errors.iter().all(|error| !error.to_string().is_empty()));
        let _ = schema.validate_status(&object, old.as_ref().unwrap_or(&Value::Null));
        // A valid object remains valid when it is written again unchanged.
        if errors.is_empty() && old.is_none() {
            let errors = schema.validate(&object, Some(&object), false);
            prop_assert!(errors.iter().all(|error| error.detail.contains("rule")), "{errors:?}");
        }
    }

    #[test]
    fn defaulting_twice_changes_nothing(schema in schema(), object in value()) {
        let schema = Schema::compile(&schema).unwrap();
        let mut once = object;
        schema.apply_defaults(&mut once);
        let mut twice = once.clone();
        schema.apply_defaults(&mut twice);
        prop_assert_eq!(twice, once);
    }

    #[test]
    fn any_json_schema_compiles_or_is_rejected(schema in value()) {
        let _ = Schema::compile(&schema);
    }
}

#[test]
fn excessive_depth_is_rejected_without_recursion() {
    let mut deep = json!(1);
    for _ in 0..3000 {
        deep = Value::Array(vec![deep]);
    }
    let schema = Schema::compile(&json!({"x-kubernetes-preserve-unknown-fields": true})).unwrap();
    let errors = schema.validate(&deep, None, false);
    assert_eq!(errors[0].detail, format!("nested deeper than {MAX_DEPTH} levels"));
    assert!(schema.prune(&mut deep).is_empty());
    schema.apply_defaults(&mut deep);
    assert!(Schema::compile(&deep).is_err());
}
