//! Documents of attackers and of users, and random documents that are compared with the parser.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// Number of brackets for which the parser takes minutes.
const MANY: usize = 64_000;
/// Number of brackets in text.
const IN_TEXT: usize = 2_000;

fn is_too_deep(document: &str) -> bool {
    matches!(check(document.as_bytes()), Err(YamlError::TooDeep))
}

#[test]
fn deep_flow_style_is_refused_however_it_is_written() {
    for level in [
        "{a: ",
        "[",
        "[\n",
        "{? ",
        "[a: [",
        "[ # ]\n",
        "[ ']', ",
        "[ \"]\\\"]\", ",
        "[ !<]> ], [[",
        "{'}': ",
        "{&a }: 1, b: {{",
    ] {
        assert!(is_too_deep(&level.repeat(MANY)), "{level:?}");
        for before in [
            "a: |\n  [ ]] '\nb: ",
            "- - |2\n     ]\n  - ",
            "# '\na: ",
            "a: it's\nb: ",
        ] {
            assert!(
                is_too_deep(&format!("{before}{}", level.repeat(MANY))),
                "{before:?} {level:?}"
            );
        }
    }
}

#[test]
fn brackets_in_text_do_not_count_as_levels() {
    let code = "if [ -z \"$x\" ]; then { it's\n";
    let indented = format!("    {code}").repeat(IN_TEXT);
    for document in [
        format!("data:\n  a: |\n{indented}  b: 1\n"),
        format!("data:\n- >-\n{indented}- 1\n"),
        format!("data:\n- a: |2-\n{indented}  b: 1\n"),
        format!("a: 1\n{}b: 2\n", "# [{ it's\n".repeat(IN_TEXT)),
        format!("a: '{}'\n", "[{ it''s\n  ".repeat(IN_TEXT)),
        format!("a: \"{}\"\n", "[{ \\\"\n  ".repeat(IN_TEXT)),
        format!("a: text {}\n", "[{ # ".repeat(IN_TEXT)),
        format!("a: text\n{}b: 1\n", "  with [{ it's\n".repeat(IN_TEXT)),
        format!("a: [{}]\n", "{b: [1, 2], c: '}'}, ".repeat(IN_TEXT)),
        "a: {b: 1}\n---\n".repeat(IN_TEXT),
    ] {
        let beginning: String = document.chars().take(60).collect();
        assert!(check(document.as_bytes()).is_ok(), "{beginning}");
    }
}

#[test]
fn block_style_counts_as_well() {
    let nested = |levels: usize| {
        let lines: Vec<String> = (0..levels)
            .map(|level| format!("{}a:\n", " ".repeat(level)))
            .collect();
        format!("{}{} 1\n", lines.concat(), " ".repeat(levels))
    };
    let flow = "b: [{}, {}]\n".repeat(MAX_DEPTH);
    assert!(!is_too_deep(&format!("{}{flow}", nested(MAX_DEPTH))));
    assert!(is_too_deep(&format!("{flow}{}", nested(MAX_DEPTH + 1))));
}

#[test]
fn directives_of_tags_are_refused() {
    let tags = "!a!, ".repeat(MANY);
    let prefix = "x".repeat(MANY);
    for document in [
        "%TAG !a! !b\n--- 1\n",
        "%YAML 1.1\n%TAG !a! !b\n--- 1\n",
        "# a\n%TAG\t!a! !b\n",
        &format!("--- 1\n...\n%TAG !a! !{prefix}\n--- [{tags}]\n"),
    ] {
        let error = check(document.as_bytes()).unwrap_err();
        assert!(matches!(error, YamlError::TagDirective), "{error}");
    }
    for document in [
        "%YAML 1.1\n--- 1\n",
        "a: '\n%TAG'\n",
        "a: |\n  %TAG !a! !b\n",
        " %TAG",
        "# %TAG",
    ] {
        check(document.as_bytes()).unwrap();
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i32>().prop_map(Value::from),
        "[a-z\\[\\]{}:#'\"|>&*!% \n\u{e9}-]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c\\[{'#: ]{0,3}", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// What makes a token, or ends one.
fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "a",
        "b: ",
        "- ",
        "? ",
        ": ",
        ":",
        "\n",
        "\n",
        "\n  ",
        "\n    ",
        " ",
        "[",
        "{",
        "]",
        "}",
        ",",
        "'",
        "''",
        "\"",
        "\\",
        "#",
        " # ",
        "|\n",
        ">-\n",
        "|2\n",
        "|+1 # x\n",
        "&a ",
        "*a ",
        "!t ",
        "!<x,'y> ",
        "---\n",
        "--- ",
        "...\n",
        "\t",
        "\r\n",
        "\u{2028}",
        "\u{85}",
        "\u{e9}",
    ])
}

proptest! {
    #[test]
    fn what_a_program_writes_is_never_refused(content in value(), copies in 1usize..60) {
        let list = Value::from(vec![content; copies]);
        prop_assert!(check(list.to_string().as_bytes()).is_ok());
        prop_assert!(check(serde_json::to_string_pretty(&list).unwrap().as_bytes()).is_ok());
        prop_assert!(check(serde_yaml_ng::to_string(&list).unwrap().as_bytes()).is_ok());
    }

    /// The parser says whether brackets behind some text are levels: it has its own limit.
    #[test]
    fn the_parser_finds_the_same_levels(
        pieces in prop::collection::vec(piece(), 0..16),
        level in prop::sample::select(vec!["[", "{? ", "{a: "]),
    ) {
        let document = format!("{}{}", pieces.concat(), level.repeat(200));
        match serde_yaml_ng::from_str::<Value>(&document) {
            Ok(_) => prop_assert!(!is_too_deep(&document), "{document:?}"),
            Err(error) if error.to_string().contains("recursion limit exceeded") => {
                prop_assert!(is_too_deep(&document), "{document:?}");
            }
            Err(_) => {}
        }
    }
}
