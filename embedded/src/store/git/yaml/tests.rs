//! Edits of documents, and documents as input.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const STACK: &str = "# The network of production.\nkind: Terraform\napiVersion: infra.contrib.fluxcd.io/v1alpha2\nmetadata:\n  name: vpc # short\n  labels:\n    team: net\nspec:\n  # Twice an hour.\n  interval: \"30m\"\n  path: ./vpc\n  vars:\n  - name: region\n    value: eu\n";

#[test]
fn unchanged_lines_keep_comments_order_and_quotes() {
    let mut wanted = parse(STACK).unwrap();
    wanted["spec"]["path"] = "./network".into();
    wanted["metadata"]["labels"]["tier"] = "1".into();
    wanted["status"] = json!({"plan": {}});
    let expected = STACK
        .replace("./vpc", "./network")
        .replace("    team: net\n", "    team: net\n    tier: '1'\n")
        + "status:\n  plan: {}\n";
    assert_eq!(edit(STACK, &wanted).unwrap(), expected);
}

#[test]
fn a_changed_scalar_keeps_the_comment_of_its_line() {
    let text = "replicas: 2 # keep even\nimage: \"a # b\"   # pinned\nnote: 'it''s # x'\t# quoted\nplain: a#b\nlist: [1] # gone\nnone: # later\n";
    let wanted = json!({
        "replicas": 4, "image": "c # d", "note": "dog", "plain": "c", "list": [2], "none": true,
    });
    let expected = "replicas: 4 # keep even\nimage: 'c # d'   # pinned\nnote: dog\t# quoted\nplain: c\nlist:\n- 2\nnone: true # later\n";
    let edited = edit(text, &wanted).unwrap();
    // The writer of YAML chooses the quotes.
    let edited = edited.replace("\"c # d\"", "'c # d'");
    assert_eq!(edited, expected);
    assert_eq!(comment("a: \"\\\" # b\" # c"), " # c");
    assert_eq!(comment("a: 'b # c"), "", "it does not end on the line");
}

#[test]
fn a_removed_field_takes_its_lines_with_it() {
    let mut wanted = parse(STACK).unwrap();
    wanted["spec"].as_object_mut().unwrap().remove("vars");
    let expected = STACK.replace("  vars:\n  - name: region\n    value: eu\n", "");
    assert_eq!(edit(STACK, &wanted).unwrap(), expected);
}

#[test]
fn a_document_in_another_form_is_written_as_a_whole() {
    let wanted = json!({"kind": "A", "spec": {"a": 2}});
    assert_eq!(
        edit("{kind: A, spec: {a: 1}}\n", &wanted).unwrap(),
        "kind: A\nspec:\n  a: 2\n"
    );
}

#[test]
fn documents_do_not_contain_their_separators() {
    let text = "# one\na: 1\n--- # next\nb: 2\n";
    let texts: Vec<&str> = documents(text).into_iter().map(|range| &text[range]).collect();
    assert_eq!(texts, ["# one\na: 1\n", "b: 2\n"]);
}

#[test]
fn a_document_above_a_limit_does_not_parse() {
    let text = "x".repeat(1 << 20);
    let bomb = format!("a: &a {text}\nb: [{}]\n", "*a, ".repeat(32));
    let error = parse(&bomb).unwrap_err();
    assert!(error.contains("aliases of the document repeat"), "{error}");
    let alias = "a: &a {b: 1}\ng: [*a, *a]\nh: '*.example.com'\n";
    assert_eq!(parse(alias).unwrap()["g"][1]["b"], 1);
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let blocks = |levels: usize| format!("{}a\n", "- ".repeat(levels));
    parse(&nested(MAX_DEPTH)).unwrap();
    parse(&blocks(MAX_DEPTH)).unwrap();
    // The parser alone would take minutes.
    let deep = "{a: ".repeat(64_000);
    for deep in [nested(MAX_DEPTH + 1), blocks(MAX_DEPTH + 1), deep] {
        let error = parse(&deep).unwrap_err();
        assert!(error.contains("more than 120 levels"), "{error}");
    }
}

#[test]
fn each_document_is_read_as_it_was_meant() {
    // YAML breaks lines at some of these characters, and JSON does not escape them.
    let text = "a\u{85}b\u{2028}c\u{2029}d\u{feff}e\u{7f}f\u{1f600}\n";
    let object = json!({"metadata": {"name": "x"}, "data": {text: text}});
    assert_eq!(parse(&write(&object).unwrap()).unwrap(), object);
    assert_eq!(parse(&to_json(&object)).unwrap(), object);
    // The parser refuses so many levels.
    let deep = (0..200).fold(json!(1), |inner, _| json!({ "a": inner }));
    let error = write(&deep).unwrap_err();
    assert!(error.contains("read as another object"), "{error}");
}

#[test]
fn the_directive_of_the_yaml_version_does_not_count_as_content() {
    assert_eq!(parse("%YAML 1.2\n"), Ok(Value::Null));
    assert!(needs_separator("%YAML 1.2\n") && !needs_separator("# mine\n"));
    for unknown in ["%YAML 2.0\n", "%TAG ! tag:a.example,2026:\n"] {
        parse(unknown).unwrap_err();
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z0-9:# '\n-]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            mapping(inner),
        ]
    })
}

fn mapping(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-c]{1,2}", inner, 0..4)
        .prop_map(|fields| Value::Object(fields.into_iter().collect()))
}

proptest! {
    #[test]
    fn an_edited_document_has_exactly_the_wanted_content(old in mapping(value()), new in mapping(value())) {
        let edited = edit(&write(&old).unwrap(), &new).unwrap();
        prop_assert_eq!(parse(&edited).unwrap(), new, "{}", edited);
    }
}
