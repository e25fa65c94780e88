mod reading;
mod vectors;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn inputs<'a>() -> PlanInputs<'a> {
    PlanInputs {
        inputs: "sha256:1",
        modules: "",
        lock: b"",
        last_apply: "",
        has_generated_files: false,
        key: b"key",
    }
}

fn of(plan: &Value) -> String {
    let text = plan.to_string();
    let plan = super::super::document::parse(text.as_bytes()).unwrap();
    Effect::new(&plan, &inputs()).digest().to_string()
}

fn update() -> Value {
    json!({
        "format_version": "1.2", "terraform_version": "1.11.4", "timestamp": "2026-01-01T00:00:00Z",
        "resource_changes": [
            { "address": "a.one", "mode": "managed", "type": "a", "name": "one", "provider_name": "p",
              "change": { "actions": ["update"],
                "before": { "id": "i-1", "size": 1, "same": "x", "secret": "old", "list": [1, 2] },
                "after": { "id": "i-1", "size": 2, "same": "x", "secret": "new", "list": [1, 3] },
                "after_unknown": { "list": [false, false], "hash": true },
                "before_sensitive": { "secret": true }, "after_sensitive": { "secret": true } } },
            { "address": "a.two", "mode": "managed", "type": "a", "name": "two", "provider_name": "p",
              "change": { "actions": ["delete"], "before": { "id": "i-2", "size": 4 }, "after": null,
                "after_unknown": {}, "before_sensitive": {}, "after_sensitive": false } },
            { "address": "data.d.r", "mode": "data", "type": "d", "name": "r", "provider_name": "p",
              "change": { "actions": ["read"], "before": null, "after": {}, "after_unknown": {} } },
            { "address": "a.still", "mode": "managed", "type": "a", "name": "still", "provider_name": "p",
              "change": { "actions": ["no-op"], "before": {"id": "z"}, "after": {"id": "z"}, "after_unknown": {} } }
        ],
        "output_changes": { "o": { "actions": ["update"], "before": 1, "after": 2, "after_unknown": false } }
    })
}

#[test]
fn forty_lowercase_hex_digits() {
    let digits = of(&update());
    assert!(
        digits.len() == 40
            && digits
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    );
}

#[test]
fn other_members_do_not_change_the_digest() {
    let base = of(&update());
    let same = |pointer: &str, value: Value| {
        let mut plan = update();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        plan.pointer_mut(parent).unwrap()[name] = value;
        assert_eq!(of(&plan), base, "{pointer}");
    };
    for name in [
        "timestamp",
        "format_version",
        "terraform_version",
        "variables",
        "planned_values",
        "prior_state",
        "configuration",
        "relevant_attributes",
        "checks",
        "resource_drift",
        "applyable",
        "complete",
        "errored",
    ] {
        same(&format!("/{name}"), json!({ "x": [1, 2] }));
    }
    let change = "/resource_changes/0/change";
    same(&format!("{change}/after_unknown/size"), json!(false));
    let mut plan = update();
    for side in ["before", "after"] {
        plan["resource_changes"][0]["change"][side]["same"] = json!("y");
    }
    plan["resource_changes"][1]["change"]["before"]["size"] = json!(9);
    plan["resource_changes"][2]["change"]["after"] = json!({ "r": 1 });
    plan["resource_changes"][3]["change"]["before"] = json!({ "id": "q" });
    assert_eq!(
        of(&plan),
        base,
        "unchanged paths, what is deleted, reads and no-ops"
    );
}

#[test]
fn effects_change_the_digest() {
    let mut digests = std::collections::BTreeSet::from([of(&update())]);
    let mut differs = |edit: &dyn Fn(&mut Value)| {
        let mut plan = update();
        edit(&mut plan);
        assert!(digests.insert(of(&plan)), "{plan}");
    };
    let change = |plan: &mut Value, index: usize, side: &str, name: &str, value: Value| {
        plan["resource_changes"][index]["change"][side][name] = value;
    };
    differs(&|plan| change(plan, 0, "after", "size", json!(3)));
    differs(&|plan| change(plan, 0, "before", "size", json!(3)));
    differs(&|plan| change(plan, 0, "after", "size", json!("2")));
    differs(&|plan| change(plan, 0, "after", "secret", json!("newer")));
    differs(&|plan| change(plan, 0, "after_sensitive", "size", json!(true)));
    differs(&|plan| change(plan, 0, "after_unknown", "size", json!(true)));
    differs(&|plan| change(plan, 0, "after_unknown", "list", json!([false, true])));
    differs(&|plan| change(plan, 0, "after", "list", json!([1, 3, 4])));
    differs(&|plan| change(plan, 0, "after", "added", json!(null)));
    differs(&|plan| change(plan, 0, "after", "size", json!(2.5)));
    differs(&|plan| change(plan, 0, "after", "size", json!("2.5")));
    differs(&|plan| change(plan, 0, "after_sensitive", "same", json!(true)));
    differs(&|plan| change(plan, 1, "before", "id", json!("i-3")));
    differs(&|plan| plan["resource_changes"][1]["deposed"] = json!("d1"));
    differs(&|plan| plan["resource_changes"][1]["type"] = json!("b"));
    differs(&|plan| plan["resource_changes"][0]["change"]["actions"] = json!(["delete", "create"]));
    differs(&|plan| plan["resource_changes"][0]["change"]["actions"] = json!(["create", "delete"]));
    differs(&|plan| plan["resource_changes"][3]["previous_address"] = json!("a.was"));
    differs(&|plan| plan["resource_changes"][3]["change"]["importing"] = json!({ "id": "z" }));
    differs(&|plan| plan["output_changes"]["o"]["after"] = json!(3));
    differs(&|plan| plan["output_changes"]["p"] = json!({ "actions": ["create"], "after": 2 }));
    differs(&|plan| plan["deferred_changes"] = json!([1]));
}

#[test]
fn blocks_without_id_are_identified_by_content() {
    let removal = |actions: Value, before: Value| {
        of(
            &json!({ "resource_changes": [{ "address": "a.b", "mode": "managed", "type": "a", "provider_name": "p",
            "change": { "actions": actions, "before": before, "after": null } }] }),
        )
    };
    for action in ["delete", "forget"] {
        let one = removal(json!([action]), json!({ "name": "one" }));
        assert_ne!(
            one,
            removal(json!([action]), json!({ "name": "two" })),
            "{action}"
        );
        assert_ne!(
            one,
            removal(json!([action]), json!({ "name": "two", "id": null })),
            "{action}"
        );
        assert_eq!(
            removal(json!([action]), json!({ "name": "one", "id": "i" })),
            removal(json!([action]), json!({ "name": "two", "id": "i" })),
        );
    }
}

#[test]
fn the_origin_changes_the_effect() {
    let plan = super::super::document::parse(update().to_string().as_bytes()).unwrap();
    let base = inputs();
    let variants = [
        base,
        PlanInputs {
            inputs: "sha256:2",
            ..base
        },
        PlanInputs { modules: "m", ..base },
        PlanInputs {
            has_generated_files: true,
            ..base
        },
        PlanInputs {
            lock: b"provider",
            ..base
        },
        PlanInputs {
            last_apply: "stack-abcd-1",
            ..base
        },
        PlanInputs {
            key: b"other key",
            ..base
        },
        PlanInputs {
            inputs: "sha256:1m",
            modules: "",
            ..base
        },
        PlanInputs {
            modules: "stack",
            last_apply: "",
            ..base
        },
        PlanInputs {
            modules: "",
            last_apply: "stack",
            ..base
        },
    ];
    let digests: std::collections::BTreeSet<_> = variants
        .iter()
        .map(|inputs| Effect::new(&plan, inputs).digest().to_string())
        .collect();
    assert_eq!(digests.len(), variants.len());
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-c]{0,3}".prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-d]", inner, 0..4).prop_map(|members| json!(members)),
        ]
    })
}

fn entry(address: &str, before: &Value, after: &Value) -> Value {
    json!({ "address": address, "mode": "managed", "type": "a",
            "change": { "actions": ["update"], "before": before, "after": after, "after_unknown": {} } })
}

proptest! {
    #[test]
    fn entries_have_no_order(values in proptest::collection::vec((value(), value()), 1..5), turn in 0usize..5) {
        let mut entries: Vec<_> = values.iter().enumerate()
            .map(|(index, (before, after))| entry(&format!("a.r{index}"), before, after)).collect();
        let first = of(&json!({ "resource_changes": entries }));
        let count = entries.len();
        entries.rotate_left(turn % count);
        prop_assert_eq!(first, of(&json!({ "resource_changes": entries })));
    }

    #[test]
    fn another_effect_is_another_digest(before in value(), after in value(), other in value()) {
        let of = |after: &Value| of(&json!({ "resource_changes": [entry("a.r", &before, after)] }));
        prop_assert_eq!(of(&after) == of(&other), after == other);
    }

    #[test]
    fn a_sensitive_value_counts_without_being_readable(before in value(), after in value(), other in value()) {
        let of = |after: &Value| {
            let mut entry = entry("a.r", &before, after);
            entry["change"]["after_sensitive"] = json!(true);
            of(&json!({ "resource_changes": [entry] }))
        };
        prop_assert_eq!(of(&after) == of(&other), after == other);
    }
}
