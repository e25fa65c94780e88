//! Properties of ownership for random configurations, and of any JSON.

use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::compare::Comparison;
use super::fields_of::{errors, field_set};
use super::managers::{Identity, Managers, Operation};
use super::merge::{merge, remove};
use super::merge_tests::SHAPE;
use super::update::Rules;

/// A configuration that fits the shape of the merge tests.
fn config() -> impl Strategy<Value = Value> {
    let texts = || btree_map("[a-c]", "[x-z]", 1..3).prop_map(|map| json!(map));
    let set = || btree_set("[a-e]", 1..4).prop_map(|set| json!(set));
    let entries = btree_map("[a-c]", texts(), 1..3).prop_map(|entries| {
        let entries = entries
            .into_iter()
            .map(|(name, value)| json!({"name": name, "value": value}));
        Value::Array(entries.collect())
    });
    let optional = (
        proptest::option::of((0_i64..3).prop_map(|number| json!(number))),
        proptest::option::of(set()),
        proptest::option::of(texts()),
        proptest::option::of(entries),
        proptest::option::of(btree_map("[a-c]", set(), 1..3).prop_map(|map| json!(map))),
        proptest::option::of(vec("[a-c]", 0..3).prop_map(|list| json!(list))),
    );
    optional.prop_map(|(number, list, map, list_of_maps, map_of_lists, atomic)| {
        let fields = [
            // An object is never empty: it has at least a kind.
            ("bool", Some(json!(true))),
            ("number", number),
            ("list", list),
            ("map", map),
            ("listOfMaps", list_of_maps),
            ("mapOfLists", map_of_lists),
            ("atomicList", atomic),
        ];
        let present = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(present.collect::<Map<_, _>>())
    })
}

/// Any JSON with the names of the shape.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(|flag| json!(flag)),
        (0_i64..3).prop_map(|number| json!(number)),
        "[a-c]".prop_map(|text| json!(text)),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let name = prop_oneof![
            Just("list".to_owned()),
            Just("listOfMaps".to_owned()),
            Just("ports".to_owned()),
            Just("name".to_owned()),
            Just("value".to_owned()),
            Just("free".to_owned()),
            Just("port".to_owned()),
        ];
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            vec((name, inner), 0..4).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn rules() -> Rules<'static> {
    Rules {
        shape: &SHAPE,
        api_version: "v1",
        stores: |_| true,
    }
}

fn identity(manager: &str, operation: Operation) -> Identity {
    Identity::new(manager, operation, "v1", "")
}

proptest! {
    #[test]
    fn an_apply_is_idempotent_and_contains_its_configuration(
        live in config(), last in config(), applied in config(),
    ) {
        let (one, other) = (identity("one", Operation::Apply), identity("other", Operation::Update));
        let mut managers = Managers::new();
        rules().update(&json!({}), &live, &mut managers, &other).unwrap();
        let object = rules().apply(&live, &last, &mut managers, &one, true).unwrap();
        let first = rules().apply(&object, &applied, &mut managers, &one, true).unwrap();
        let owned = managers.clone();
        let second = rules().apply(&first, &applied, &mut managers, &one, false).unwrap();
        prop_assert_eq!(&first, &second);
        prop_assert_eq!(&owned, &managers);
        let missing = field_set(&SHAPE, &applied).difference(&field_set(&SHAPE, &first));
        prop_assert!(missing.is_empty(), "{:?} is not in {}", missing, first);
    }

    #[test]
    fn what_others_own_is_not_removed(live in config(), applied in config()) {
        let (one, other) = (identity("one", Operation::Apply), identity("other", Operation::Update));
        let mut managers = Managers::new();
        rules().update(&json!({}), &live, &mut managers, &other).unwrap();
        let object = rules().apply(&live, &applied, &mut managers, &one, true).unwrap();
        let kept = managers.get(&other).map(|owned| owned.set.clone()).unwrap_or_default();
        let rest = rules().apply(&object, &json!({}), &mut managers, &one, true).unwrap();
        let present = field_set(&SHAPE, &rest).with_named_fields(&SHAPE);
        let lost = kept.difference(&present);
        prop_assert!(lost.is_empty(), "{:?} is not in {}", lost, rest);
        prop_assert!(!managers.contains_key(&one));
    }

    #[test]
    fn any_json_is_handled(live in any_json(), applied in any_json()) {
        drop(errors(&SHAPE, &applied));
        let fields = field_set(&SHAPE, &applied);
        if let Ok(same) = Comparison::of(&SHAPE, &applied, &applied) {
            prop_assert_eq!(same, Comparison::default());
        }
        if let Ok(merged) = merge(&SHAPE, &live, &applied) {
            drop(remove(&SHAPE, &merged, &fields));
        }
        drop(Comparison::of(&SHAPE, &live, &applied));
    }
}
