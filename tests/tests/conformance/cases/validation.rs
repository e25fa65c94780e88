//! Schema validation with the messages of its causes, pruning and defaults.

use serde_json::{Value, json};

use super::{WIDGETS, path_of, red, widget};
use crate::case::{Case, case, get, merge, post, raw};

/// Creates a widget with this spec.
fn create(name: &'static str, spec: &Value) -> Case {
    case(name, [post(WIDGETS, &widget("a", spec))])
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = refused();
    cases.extend(strictness());
    cases.extend([
        create(
            "CEL: rule over two fields",
            &json!({ "color": "blue", "size": 5 }),
        ),
        case(
            "CEL: transition rule",
            [
                post(WIDGETS, &widget("a", &json!({ "color": "red", "fixed": "one" }))),
                merge(&path_of("a"), &json!({ "spec": { "size": 4 } })),
                merge(&path_of("a"), &json!({ "spec": { "fixed": "two" } })),
            ],
        ),
        create(
            "default: nested objects",
            &json!({ "color": "red", "nested": { "mode": "fast" } }),
        ),
        create(
            "default: list items",
            &json!({ "color": "red", "parts": [{ "name": "a" }, { "name": "b", "count": 2 }] }),
        ),
        create("null: where it may be", &json!({ "color": "red", "note": null })),
        create(
            "null: where a default is",
            &json!({ "color": "red", "size": null }),
        ),
        create("null: where nothing is", &json!({ "color": "red", "word": null })),
        create(
            "unknown fields are kept where the schema says so",
            &json!({ "color": "red", "free": { "a": { "b": [1] } } }),
        ),
        create("int-or-string: both", &json!({ "color": "red", "port": "http" })),
    ]);
    cases
}

fn refused() -> Vec<Case> {
    vec![
        create("422: required field missing", &json!({ "size": 2 })),
        case(
            "422: spec missing",
            [post(
                WIDGETS,
                &json!({
                    "apiVersion": "conformance.sluice.dev/v1", "kind": "Widget", "metadata": { "name": "a" },
                }),
            )],
        ),
        create("422: not of the enumeration", &json!({ "color": "mauve" })),
        create(
            "422: string for a number",
            &json!({ "color": "red", "size": "three" }),
        ),
        create("422: number for a string", &json!({ "color": "red", "word": 7 })),
        create(
            "422: text for an object",
            &json!({ "color": "red", "nested": "yes" }),
        ),
        create(
            "422: object for a list",
            &json!({ "color": "red", "tags": { "a": "b" } }),
        ),
        create(
            "422: fraction for an integer",
            &json!({ "color": "red", "size": 2.5 }),
        ),
        create("422: too small", &json!({ "color": "red", "size": 0 })),
        create("422: too large", &json!({ "color": "red", "size": 11 })),
        create("422: no multiple", &json!({ "color": "red", "ratio": 0.3 })),
        create("422: pattern", &json!({ "color": "red", "word": "Hello" })),
        create("422: too short", &json!({ "color": "red", "word": "a" })),
        create("422: too long", &json!({ "color": "red", "word": "abcdefghi" })),
        create(
            "422: too many items",
            &json!({ "color": "red", "tags": ["a", "b", "c", "d"] }),
        ),
        create(
            "422: twice in a set",
            &json!({ "color": "red", "tags": ["a", "b", "a"] }),
        ),
        create(
            "422: twice in a keyed list",
            &json!({ "color": "red", "parts": [{ "name": "a" }, { "name": "a" }] }),
        ),
        create(
            "422: too many properties",
            &json!({ "color": "red", "table": { "a": "1", "b": "2", "c": "3" } }),
        ),
        create(
            "422: value of a map",
            &json!({ "color": "red", "table": { "a": 1 } }),
        ),
        create("422: no date", &json!({ "color": "red", "when": "tomorrow" })),
        create(
            "422: neither int nor string",
            &json!({ "color": "red", "port": true }),
        ),
        create(
            "422: several causes",
            &json!({ "color": "mauve", "size": 0, "word": "A", "tags": "x" }),
        ),
    ]
}

fn strictness() -> Vec<Case> {
    let unknown = widget(
        "a",
        &json!({ "color": "red", "colour": "red", "nested": { "extra": 1 } }),
    );
    let path = |mode: &str| format!("{WIDGETS}?fieldValidation={mode}");
    let double = r#"{"apiVersion":"conformance.sluice.dev/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"color":"red","color":"green"}}"#;
    let double_elsewhere = r#"{"apiVersion":"conformance.sluice.dev/v1","kind":"Widget","metadata":{"name":"a","name":"b","labels":{"x":"1","x":"2"}},"spec":{"color":"red","color":"red","color":"green"}}"#;
    let twice = r#"{"spec":{"color":"red","color":"green"}}"#;
    vec![
        case(
            "unknown fields: dropped",
            [post(&path("Ignore"), &unknown), get(&path_of("a"))],
        ),
        case("unknown fields: warned about", [post(&path("Warn"), &unknown)]),
        case(
            "unknown fields: warned about when nothing is said",
            [post(WIDGETS, &unknown)],
        ),
        case("unknown fields: refused", [post(&path("Strict"), &unknown)]),
        case(
            "unknown fields: refused in a merge patch",
            [
                post(WIDGETS, &red("a")),
                merge(
                    &format!("{}?fieldValidation=Strict", path_of("a")),
                    &json!({ "spec": { "colour": "x" } }),
                ),
            ],
        ),
        case(
            "double fields: warned about",
            [raw("POST", WIDGETS, "application/json", double)],
        ),
        case(
            "double fields: refused",
            [raw("POST", &path("Strict"), "application/json", double)],
        ),
        case(
            "double fields: in a merge patch",
            [
                post(WIDGETS, &red("a")),
                raw("PATCH", &path_of("a"), "application/merge-patch+json", twice),
                raw(
                    "PATCH",
                    &format!("{}?fieldValidation=Strict", path_of("a")),
                    "application/merge-patch+json",
                    twice,
                ),
            ],
        ),
        case(
            "double fields: in a list, in metadata, of a built-in kind",
            [
                raw("POST", WIDGETS, "application/json", double_elsewhere),
                raw(
                    "POST",
                    "/api/v1/namespaces/{ns}/configmaps?fieldValidation=Strict",
                    "application/json",
                    r#"{"metadata":{"name":"m"},"data":{"a":"1","a":"2"},"extra":1}"#,
                ),
            ],
        ),
        case(
            "field validation: unknown mode",
            [post(&path("Perhaps"), &red("a"))],
        ),
        case(
            "dry run and field validation: unknown mode of each verb",
            [
                post(&format!("{WIDGETS}?dryRun=Some"), &red("a")),
                post(WIDGETS, &red("a")),
                merge(
                    &format!("{}?fieldValidation=Perhaps", path_of("a")),
                    &json!({ "spec": { "size": 4 } }),
                ),
                get(&format!("{}?fieldValidation=Perhaps&dryRun=Some", path_of("a"))),
            ],
        ),
    ]
}
