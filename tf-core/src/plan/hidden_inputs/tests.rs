//! Which plans draw upon the state.

use serde_json::json;

use super::*;

fn provisioner(kind: &str, references: &[&str]) -> Value {
    json!([{ "type": kind, "expressions": { "command": { "references": references } } }])
}

/// A configuration with one resource.
fn root(resource: &Value) -> Value {
    json!({ "root_module": { "resources": [resource] } })
}

/// A configuration of one module call around another.
fn called(outer: &Value, inner: &Value) -> Value {
    json!({ "root_module": { "module_calls": { "m": { "expressions": outer["expressions"],
        "for_each_expression": outer["for_each_expression"], "module": { "module_calls": { "n": inner } } } } } })
}

/// Whether a configuration without changes has hidden inputs.
fn without_changes(configuration: &Value) -> bool {
    has_hidden_inputs(configuration, &[])
}

#[test]
fn expressions_of_inputs_only_have_no_hidden_inputs() {
    let root = |provisioners: &Value| root(&json!({ "provisioners": provisioners }));
    assert!(!without_changes(&Value::Null) && !without_changes(&root(&json!([]))));
    for references in [
        &[][..],
        &["self.id", "self"],
        &["var.a.b", "var.a"],
        &["path.module", "each.key", "count.index"],
    ] {
        assert!(
            !without_changes(&root(&provisioner("local-exec", references))),
            "{references:?}"
        );
    }
    for reference in ["data.a.b", "local.a", "module.m.o", "a_b.c[0].d", "ephemeral.a.b"] {
        assert!(
            without_changes(&root(&provisioner("local-exec", &["var.a", reference]))),
            "{reference}"
        );
    }
    assert!(
        without_changes(&root(&provisioner("remote-exec", &[]))),
        "the plan does not show its connection"
    );
    let called = |references: &[&str]| {
        let module = json!({ "resources": [{ "provisioners": provisioner("local-exec", references) }] });
        called(&json!({}), &json!({ "module": module }))
    };
    assert!(without_changes(&called(&["var.a"])) && !without_changes(&called(&["self.id"])));
}

#[test]
fn module_variables_refer_to_the_arguments_of_the_call() {
    let settings = |module: &Value, reference: &str| {
        without_changes(&json!({ "provider_config": { "p": { "module_address": module,
            "expressions": { "block": [{ "host": { "references": [reference] } }] } } } }))
    };
    for (module, reference, expected) in [
        (json!(null), "a_b.c.endpoint", true),
        (json!(null), "var.region", false),
        (json!(""), "var.region", false),
        (json!("module.m"), "var.region", true),
        (json!("module.m"), "each.value", false),
        (json!("module.m"), "path.module", false),
    ] {
        assert_eq!(settings(&module, reference), expected, "{module} {reference}");
    }
}

#[test]
fn each_value_refers_to_for_each() {
    for (reference, for_each, expected) in [
        ("each.key", "data.a.b", false),
        ("each.value", "data.a.b", true),
        ("each.value[\"c\"]", "data.a.b", true),
        ("each", "data.a.b", true),
        ("each.value.c", "local.a", true),
        ("each.value", "var.a", false),
        ("each.value", "path.module", false),
    ] {
        let resource = json!({ "for_each_expression": { "references": [for_each] },
            "provisioners": provisioner("local-exec", &[reference]) });
        assert_eq!(
            without_changes(&root(&resource)),
            expected,
            "{reference} of {for_each}"
        );
        let inner = json!({ "module": { "resources": [resource] } });
        let inside = expected || for_each == "var.a";
        assert_eq!(
            without_changes(&called(&json!({}), &inner)),
            inside,
            "{reference} of {for_each}, in a module"
        );
    }
    let constant = json!({ "provisioners": provisioner("local-exec", &["each.value"]) });
    assert!(
        !without_changes(&root(&constant)),
        "the CLI omits a for_each without references"
    );
}

fn change(address: &str, actions: &[&str], after: &Value, unknown: &Value) -> Vec<ResourceChange> {
    let change = json!({ "address": address, "mode": "managed",
        "change": { "actions": actions, "after": after, "after_unknown": unknown } });
    vec![serde_json::from_value(change).unwrap()]
}

#[test]
fn destroy_provisioners_that_refer_to_self_have_hidden_inputs() {
    for (reference, actions, expected) in [
        ("self.input", &["delete"][..], true),
        ("self", &["delete", "create"], true),
        ("self.input", &["create", "delete"], true),
        ("self.input", &["create"], false),
        ("self.input", &["update"], false),
        ("self.input", &["forget"], false),
        ("var.self", &["delete"], false),
    ] {
        let configuration = root(&json!({ "provisioners": provisioner("local-exec", &[reference]) }));
        let changes = change("a.b", actions, &json!({}), &json!({}));
        assert_eq!(
            has_hidden_inputs(&configuration, &changes),
            expected,
            "{reference} {actions:?}"
        );
        assert!(!without_changes(&configuration));
    }
}

#[test]
fn an_external_null_may_be_a_write_only_value() {
    let wo = |reference: &str| json!({ "word_wo": { "references": [reference] } });
    let at = |expressions: &Value, actions: &[&str], after: Value, unknown: Value| {
        let configuration = root(&json!({ "address": "a.b", "expressions": expressions }));
        has_hidden_inputs(&configuration, &change("a.b[0]", actions, &after, &unknown))
    };
    let null = || json!({ "word_wo": null });
    assert!(at(&wo("data.a.b"), &["create"], null(), json!({})));
    assert!(
        at(&wo("data.a.b"), &["create"], json!({}), json!({})),
        "not there"
    );
    for actions in [&["update"][..], &["delete", "create"], &["create", "delete"]] {
        assert!(at(&wo("local.a"), actions, null(), json!({})), "{actions:?}");
    }
    for actions in [&["delete"][..], &["no-op"], &["read"], &["forget"]] {
        assert!(!at(&wo("local.a"), actions, null(), json!({})), "{actions:?}");
    }
    assert!(!at(&wo("var.a"), &["create"], null(), json!({})), "an input");
    assert!(
        !at(&wo("data.a.b"), &["create"], null(), json!({ "word_wo": true })),
        "known later"
    );
    assert!(
        !at(&wo("data.a.b"), &["create"], json!({ "word_wo": "x" }), json!({})),
        "the plan shows it"
    );
    assert!(!at(
        &json!({ "word_wo": { "constant_value": null } }),
        &["create"],
        null(),
        json!({})
    ));

    let block = json!({ "block": [wo("var.a"), wo("data.a.b")] });
    let blocks =
        |first: Value, second: Value| json!({ "block": [{ "word_wo": first }, { "word_wo": second }] });
    assert!(at(
        &block,
        &["update"],
        blocks(json!("x"), json!(null)),
        json!({})
    ));
    assert!(!at(
        &block,
        &["update"],
        blocks(json!(null), json!("x")),
        json!({})
    ));
    let unknown = json!({ "block": [{}, { "word_wo": true }] });
    assert!(!at(
        &block,
        &["update"],
        blocks(json!(null), json!(null)),
        unknown
    ));
    assert!(!at(&block, &["update"], json!({}), json!({ "block": true })));

    let nested = json!({ "word_wo": { "inner": [{ "secret": null, "other": 1 }] } });
    assert!(at(&wo("data.a.b"), &["update"], nested.clone(), json!({})));
    let unknown = json!({ "word_wo": { "inner": [{ "secret": true }] } });
    assert!(!at(&wo("data.a.b"), &["update"], nested, unknown));
}

/// In a module nearly every argument is a variable, and many of them are null.
#[test]
fn a_null_in_a_module_is_hidden_if_its_caller_passes_an_external_value() {
    let inner = |passed: &Value| {
        json!({ "expressions": passed, "module": { "resources": [
            { "address": "a.b", "expressions": { "word_wo": { "references": ["var.x.y", "var.x"] } } }] } })
    };
    let changes = change(
        "module.m[\"k.v\"].module.n.a.b",
        &["create"],
        &json!({ "word_wo": null }),
        &json!({}),
    );
    let passing = |reference: &str| json!({ "x": { "references": [reference] } });
    for (outer, passed, expected) in [
        (json!({}), json!({}), false),
        (json!({}), passing("data.a.b"), true),
        (json!({}), passing("var.x"), false),
        (
            json!({ "expressions": passing("var.a") }),
            passing("var.x"),
            false,
        ),
        (
            json!({ "expressions": passing("local.a") }),
            passing("var.x"),
            true,
        ),
        (
            json!({ "expressions": passing("local.a") }),
            passing("var.other"),
            false,
        ),
        (
            json!({ "expressions": passing("each.value") }),
            passing("var.x"),
            false,
        ),
        (
            json!({ "expressions": passing("each.value"), "for_each_expression": { "references": ["data.a.b"] } }),
            passing("var.x"),
            true,
        ),
    ] {
        let configuration = called(&outer, &inner(&passed));
        assert_eq!(
            has_hidden_inputs(&configuration, &changes),
            expected,
            "{configuration}"
        );
        let elsewhere = change("module.m.a.b", &["create"], &json!({}), &json!({}));
        assert!(!has_hidden_inputs(&configuration, &elsewhere));
    }
}

#[test]
fn each_value_of_a_state_changes_the_digest() {
    let digests = |value: Value| {
        let module = json!({ "resources": [{ "address": "module.m.data.a.b", "values": value }] });
        let state = json!({ "values": { "root_module": { "resources": [{ "address": "a.b", "values": { "x": 1 } },
            { "address": "a.b", "deposed_key": "k", "values": {} }], "child_modules": [module] } } });
        let state: PriorState = serde_json::from_value(state).unwrap();
        let found = state.digests();
        assert_eq!(
            found.keys().copied().collect::<Vec<_>>(),
            ["a.b", "a.b k", "module.m.data.a.b"]
        );
        found["module.m.data.a.b"].to_owned()
    };
    assert_ne!(digests(json!({ "y": "one" })), digests(json!({ "y": "two" })));
    assert!(PriorState::default().digests().is_empty());
}
