//! Patches of each type: operations, empty patches, and other content types.

use serde_json::{Value, json};

use super::{WIDGETS, path_of, widget};
use crate::case::{Case, Step, case, get, json_patch, merge, post, raw};

const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";

/// Creates a widget, then runs these steps.
fn after(name: &'static str, steps: impl IntoIterator<Item = Step>) -> Case {
    let spec = json!({ "color": "red", "word": "hello", "tags": ["x", "y"], "table": { "a": "1" } });
    let start = [post(WIDGETS, &widget("a", &spec))].into_iter();
    case(name, start.chain(steps))
}

/// Applies operations to a widget.
fn operations(name: &'static str, operations: &Value) -> Case {
    after(name, [json_patch(&path_of("a"), operations)])
}

/// Sends a strategic merge patch of a ConfigMap.
fn strategic(name: &'static str, body: &str) -> Case {
    let object = json!({
        "metadata": { "name": "m", "labels": { "l": "1" } },
        "data": { "a": "b", "c": "d" },
    });
    let path = format!("{MAPS}/m");
    let content = "application/strategic-merge-patch+json";
    case(
        name,
        [
            post(MAPS, &object),
            raw("PATCH", &path, content, body),
            get(&path),
        ],
    )
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = json_patches();
    cases.extend([
        after(
            "merge patch: empty",
            [merge(&path_of("a"), &json!({})), Step::SameVersion(0, 1)],
        ),
        after(
            "merge patch: a content type with a parameter",
            [raw(
                "PATCH",
                &path_of("a"),
                "application/merge-patch+json; charset=utf-8",
                r#"{"spec":{"size":4}}"#,
            )],
        ),
        after(
            "merge patch: a number for a text",
            [merge(&path_of("a"), &json!({ "spec": { "word": 7 } }))],
        ),
        after(
            "merge patch: uid and creation time",
            [merge(
                &path_of("a"),
                &json!({ "metadata": { "uid": "{uid:0}", "creationTimestamp": null } }),
            )],
        ),
        after(
            "patch: without a content type",
            [Step::Send {
                method: "PATCH",
                path: path_of("a"),
                headers: Vec::new(),
                body: "{}".into(),
            }],
        ),
        after(
            "patch: as text",
            [raw("PATCH", &path_of("a"), "text/plain", "{}")],
        ),
        after(
            "patch: as YAML",
            [raw("PATCH", &path_of("a"), "application/yaml", "spec: {}")],
        ),
        strategic("strategic merge patch: adds a key", r#"{"data":{"e":"f"}}"#),
        strategic("strategic merge patch: removes a key", r#"{"data":{"a":null}}"#),
        strategic(
            "strategic merge patch: replaces a map",
            r#"{"data":{"$patch":"replace","e":"f"}}"#,
        ),
        strategic(
            "strategic merge patch: removes a label",
            r#"{"metadata":{"labels":{"l":null}}}"#,
        ),
        strategic("strategic merge patch: empty", "{}"),
    ]);
    cases
}

fn json_patches() -> Vec<Case> {
    vec![
        operations(
            "JSON patch: copy",
            &json!([{ "op": "copy", "from": "/spec/word", "path": "/spec/note" }]),
        ),
        operations(
            "JSON patch: move",
            &json!([{ "op": "move", "from": "/spec/word", "path": "/spec/note" }]),
        ),
        operations(
            "JSON patch: in the middle of a list",
            &json!([{ "op": "add", "path": "/spec/tags/1", "value": "z" }]),
        ),
        operations(
            "JSON patch: beyond the end of a list",
            &json!([{ "op": "add", "path": "/spec/tags/7", "value": "z" }]),
        ),
        operations(
            "JSON patch: replaces what is not there",
            &json!([{ "op": "replace", "path": "/spec/note", "value": "z" }]),
        ),
        operations(
            "JSON patch: adds below what is not there",
            &json!([{ "op": "add", "path": "/spec/nested/deep/a", "value": "z" }]),
        ),
        operations(
            "JSON patch: an absent field is null",
            &json!([{ "op": "test", "path": "/spec/note", "value": null }]),
        ),
        operations(
            "JSON patch: a key with a slash",
            &json!([
                { "op": "add", "path": "/metadata/annotations", "value": {} },
                { "op": "add", "path": "/metadata/annotations/example.com~1a", "value": "b" },
            ]),
        ),
        operations(
            "JSON patch: makes it invalid",
            &json!([{ "op": "replace", "path": "/spec/size", "value": 11 }]),
        ),
        operations(
            "JSON patch: renames",
            &json!([{ "op": "replace", "path": "/metadata/name", "value": "b" }]),
        ),
        operations(
            "JSON patch: an old version",
            &json!([{ "op": "replace", "path": "/metadata/resourceVersion", "value": "1" }]),
        ),
        after(
            "JSON patch: empty",
            [json_patch(&path_of("a"), &json!([])), Step::SameVersion(0, 1)],
        ),
        after(
            "JSON patch: of the status",
            [json_patch(
                &path_of("a/status"),
                &json!([{ "op": "add", "path": "/status", "value": { "phase": "Busy" } }]),
            )],
        ),
        case(
            "JSON patch: of a missing object",
            [json_patch(&path_of("missing"), &json!([]))],
        ),
        case(
            "JSON patch: of a config map",
            [
                post(
                    MAPS,
                    &json!({ "metadata": { "name": "m" }, "data": { "a": "b" } }),
                ),
                json_patch(
                    &format!("{MAPS}/m"),
                    &json!([{ "op": "replace", "path": "/data/a", "value": "c" }]),
                ),
            ],
        ),
    ]
}
