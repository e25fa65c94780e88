//! What `ignoreDrift` may take away, as a table, and that it takes nothing else as a property.

#![expect(
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    reason = "tables of literals, handed over as they stand"
)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn update(before: Value, after: Value) -> Value {
    json!({ "address": "a.b", "mode": "managed", "type": "a",
        "change": { "actions": ["update"], "before": before, "after": after } })
}

fn with(mut entry: Value, pointer: &str, value: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    entry.pointer_mut(parent).unwrap()[name] = value;
    entry
}

fn found(resources: Value, entries: Value) -> DriftCounts {
    let text = json!({ "resource_changes": resources }).to_string();
    let plan = super::super::document::parse(text.as_bytes()).unwrap();
    let entries: Vec<IgnoredDrift> = serde_json::from_value(entries).unwrap();
    count(&plan, &entries)
}

fn is_ignored(resource: Value, entries: Value) -> bool {
    found(json!([resource]), entries).all_ignored()
}

#[test]
fn an_attribute_rule_ignores_only_the_named_changes() {
    let tags = || {
        update(
            json!({ "tags": { "owner": "a", "team": "x" }, "size": 1 }),
            json!({ "tags": { "owner": "b", "team": "x" }, "size": 1 }),
        )
    };
    let both = || {
        update(
            json!({ "tags": { "owner": "a" }, "size": 1 }),
            json!({ "tags": { "owner": "b" }, "size": 2 }),
        )
    };
    let of = |attributes: Value| json!([{ "attributes": attributes }]);
    for (resource, entries, expected) in [
        (tags(), of(json!(["tags.owner"])), true),
        (tags(), of(json!(["tags"])), true),
        (tags(), of(json!(["tags.*"])), true),
        (tags(), of(json!(["tags.own"])), false),
        (tags(), of(json!(["tag"])), false),
        (tags(), of(json!(["owner"])), false),
        (tags(), of(json!(["size"])), false),
        (
            tags(),
            json!([{ "addresses": ["a.*"], "attributes": ["tags"] }]),
            true,
        ),
        (
            tags(),
            json!([{ "addresses": ["a.c"], "attributes": ["tags"] }]),
            false,
        ),
        (both(), of(json!(["tags.owner"])), false),
        (both(), of(json!(["tags.owner", "size"])), true),
        (
            both(),
            json!([{ "attributes": ["size"] }, { "addresses": ["a.b"], "attributes": ["tags.owner"] }]),
            true,
        ),
        (
            both(),
            json!([{ "attributes": ["size"] }, { "addresses": ["a.c"], "attributes": ["tags.owner"] }]),
            false,
        ),
        (both(), json!([]), false),
        (both(), json!([{}]), false),
        // A key with a dot is not a nested path.
        (
            update(json!({ "tags": { "a.b": 1 } }), json!({ "tags": { "a.b": 2 } })),
            of(json!(["tags.a"])),
            false,
        ),
        (
            update(json!({ "tags": { "a.b": 1 } }), json!({ "tags": { "a.b": 2 } })),
            of(json!(["tags.a.b"])),
            true,
        ),
        // Elements of lists, one of them new.
        (
            update(json!({ "l": [1, 2] }), json!({ "l": [1, 3] })),
            of(json!(["l.1"])),
            true,
        ),
        (
            update(json!({ "l": [1, 2] }), json!({ "l": [0, 3] })),
            of(json!(["l.1"])),
            false,
        ),
        (
            update(json!({ "l": [1] }), json!({ "l": [1, 2] })),
            of(json!(["l.0"])),
            false,
        ),
        (
            update(json!({ "x": 1, "l": [] }), json!({ "x": 2, "l": [null] })),
            of(json!(["x"])),
            false,
        ),
        // A value that becomes unknown, sensitive, or of another type has changed.
        (
            with(tags(), "/change/after_unknown", json!({ "size": true })),
            of(json!(["tags"])),
            false,
        ),
        (
            with(tags(), "/change/after_unknown", json!({ "size": true })),
            of(json!(["tags", "size"])),
            true,
        ),
        (
            with(tags(), "/change/after_unknown", json!({ "fresh": true })),
            of(json!(["tags"])),
            false,
        ),
        (
            with(tags(), "/change/after_unknown", json!(true)),
            of(json!(["tags"])),
            false,
        ),
        (
            with(tags(), "/change/after_sensitive", json!({ "size": true })),
            of(json!(["tags"])),
            false,
        ),
        (
            with(tags(), "/change/before_sensitive", json!({ "elsewhere": true })),
            of(json!(["tags"])),
            false,
        ),
        (
            with(tags(), "/change/after_sensitive", json!({ "tags": {} })),
            of(json!(["tags"])),
            true,
        ),
        (
            update(json!({ "x": { "y": 1 } }), json!({ "x": null })),
            of(json!(["x.y"])),
            false,
        ),
        (
            update(json!({ "x": 1 }), json!({ "x": 1 })),
            of(json!(["x"])),
            false,
        ),
    ] {
        assert_eq!(
            is_ignored(resource.clone(), entries.clone()),
            expected,
            "{resource} {entries}"
        );
    }
}

#[test]
fn an_attribute_rule_ignores_no_replace_delete_or_move() {
    let entry = update(json!({ "x": 1 }), json!({ "x": 2 }));
    let named = || json!([{ "attributes": ["x", "*"] }]);
    let by_addresses = || json!([{ "addresses": ["a.b"] }]);
    for (resource, by_attribute, by_address) in [
        (entry.clone(), true, true),
        (
            with(entry.clone(), "/change/actions", json!(["delete", "create"])),
            false,
            true,
        ),
        (
            with(entry.clone(), "/change/actions", json!(["delete"])),
            false,
            true,
        ),
        (
            with(entry.clone(), "/change/actions", json!(["create"])),
            false,
            true,
        ),
        (
            with(entry.clone(), "/change/actions", json!(["update", "shred"])),
            false,
            false,
        ),
        (
            with(entry.clone(), "/change/actions", json!(["open"])),
            false,
            false,
        ),
        (
            with(entry.clone(), "/previous_address", json!("a.old")),
            false,
            false,
        ),
        (
            with(entry.clone(), "/change/importing", json!({ "id": "i" })),
            false,
            false,
        ),
        (with(entry.clone(), "/deposed", json!("k")), false, false),
    ] {
        assert_eq!(is_ignored(resource.clone(), named()), by_attribute, "{resource}");
        assert_eq!(
            is_ignored(resource.clone(), by_addresses()),
            by_address,
            "{resource}"
        );
    }
}

#[test]
fn outputs_are_ignored_by_address_and_unknown_members_never() {
    let plan = |text: Value| super::super::document::parse(text.to_string().as_bytes()).unwrap();
    let everything: Vec<IgnoredDrift> = serde_json::from_value(json!([{ "addresses": ["*"] }])).unwrap();
    let attributes: Vec<IgnoredDrift> = serde_json::from_value(json!([{ "attributes": ["*"] }])).unwrap();
    let outputs =
        plan(json!({ "output_changes": { "a": { "actions": ["update"] }, "b": { "actions": ["no-op"] } } }));
    assert_eq!(count(&outputs, &everything), DriftCounts { all: 1, ignored: 1 });
    assert_eq!(count(&outputs, &attributes), DriftCounts { all: 1, ignored: 0 });
    let strange = plan(json!({ "deferred_changes": [{}] }));
    assert!(!count(&strange, &everything).all_ignored());
    assert!(
        !count(&plan(json!({})), &everything).all_ignored(),
        "nothing is not everything"
    );
}

/// A value of few members, so that two of them are often alike in part.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        (0..3_i64).prop_map(Value::from),
        Just(Value::Null),
        "[ab]".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[abc]", inner, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The value without what the attribute holds.
fn without(value: &Value, attribute: &str) -> Value {
    let mut value = value.clone();
    if let Value::Object(members) = &mut value {
        members.remove(attribute);
    }
    value
}

proptest! {
    /// Where a change is ignored for the sake of one attribute, nothing else has changed.
    #[test]
    fn an_ignored_attribute_hides_no_other_change(
        before in proptest::collection::btree_map("[abc]", value(), 0..4),
        after in proptest::collection::btree_map("[abc]", value(), 0..4),
        unknown in proptest::collection::btree_map("[abcd]", any::<bool>(), 0..3),
        sensitive in proptest::collection::btree_map("[abcd]", any::<bool>(), 0..3),
        attribute in "[abc]",
    ) {
        let (before, after) = (json!(before), json!(after));
        let resource = json!({ "address": "a.b", "change": { "actions": ["update"], "before": before, "after": after,
            "after_unknown": unknown, "after_sensitive": sensitive } });
        if is_ignored(resource, json!([{ "attributes": [attribute.clone()] }])) {
            prop_assert_eq!(without(&before, &attribute), without(&after, &attribute));
            for (name, mark) in unknown.iter().chain(&sensitive) {
                prop_assert!(!mark || *name == attribute, "{} is marked", name);
            }
        }
    }

    #[test]
    fn no_entry_hides_a_resource_that_it_does_not_name(name in "[a-z]{1,6}", pattern in "[a-z*]{1,4}") {
        let resource = json!({ "address": format!("t.{name}"), "change": { "actions": ["delete"] } });
        let is_hidden = is_ignored(resource, json!([{ "addresses": [format!("t.{pattern}")] }]));
        prop_assert_eq!(is_hidden, sluice_api::terraform::pattern::matches(&pattern, &name));
    }

    #[test]
    fn no_change_makes_it_panic(before in value(), after in value(), unknown in value(), marks in value(), pattern in "[abc.*]{0,5}") {
        let resource = json!({ "address": "a.b", "change": { "actions": ["update"], "before": before, "after": after,
            "after_unknown": unknown, "before_sensitive": marks } });
        let _ = is_ignored(resource, json!([{ "attributes": [pattern] }]));
    }
}
