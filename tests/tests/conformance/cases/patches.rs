//! Merge patches and JSON patches; other formats are refused.

use serde_json::json;

use super::{WIDGETS, path_of, red, widget};
use crate::case::{Case, Step, case, json_patch, merge, post, raw};

pub(super) fn cases() -> Vec<Case> {
    let full = widget(
        "a",
        &json!({ "color": "red", "word": "hello", "tags": ["x", "y"], "table": { "a": "1" } }),
    );
    let start = || post(WIDGETS, &full);
    let mut cases = vec![
        case(
            "merge patch: set, change, remove",
            [
                start(),
                merge(
                    &path_of("a"),
                    &json!({ "spec": { "word": null, "size": 4, "tags": ["z"], "table": { "b": "2" } } }),
                ),
            ],
        ),
        case(
            "merge patch: removing a defaulted field",
            [
                start(),
                merge(&path_of("a"), &json!({ "spec": { "size": null } })),
            ],
        ),
        case(
            "merge patch: without a change keeps the version",
            [
                start(),
                merge(&path_of("a"), &json!({ "spec": { "word": "hello" } })),
                Step::SameVersion(0, 1),
            ],
        ),
        case(
            "merge patch: stale version",
            [
                start(),
                merge(&path_of("a"), &json!({ "spec": { "size": 4 } })),
                merge(
                    &path_of("a"),
                    &json!({ "metadata": { "resourceVersion": "{rv:0}" }, "spec": { "size": 5 } }),
                ),
            ],
        ),
        case(
            "merge patch: current version",
            [
                start(),
                merge(
                    &path_of("a"),
                    &json!({ "metadata": { "resourceVersion": "{rv:0}" }, "spec": { "size": 5 } }),
                ),
            ],
        ),
        case(
            "merge patch: missing object",
            [merge(&path_of("missing"), &json!({ "spec": {} }))],
        ),
        case(
            "merge patch: makes it invalid",
            [start(), merge(&path_of("a"), &json!({ "spec": { "size": 11 } }))],
        ),
        case(
            "merge patch: renames",
            [
                start(),
                merge(&path_of("a"), &json!({ "metadata": { "name": "b" } })),
            ],
        ),
        case(
            "merge patch: not JSON",
            [
                start(),
                raw(
                    "PATCH",
                    &path_of("a"),
                    "application/merge-patch+json",
                    "{ not json",
                ),
            ],
        ),
        case(
            "merge patch: annotations and labels",
            [
                start(),
                merge(
                    &path_of("a"),
                    &json!({ "metadata": { "annotations": { "k": "v" }, "labels": { "l": "1" } } }),
                ),
                merge(
                    &path_of("a"),
                    &json!({ "metadata": { "annotations": { "k": null } } }),
                ),
            ],
        ),
        case(
            "patch: unknown content type",
            [start(), raw("PATCH", &path_of("a"), "application/json", "{}")],
        ),
        case(
            "patch: strategic merge of a custom resource",
            [
                start(),
                raw(
                    "PATCH",
                    &path_of("a"),
                    "application/strategic-merge-patch+json",
                    "{}",
                ),
            ],
        ),
    ];
    cases.extend([
        case(
            "JSON patch: add, replace, remove, test",
            [
                start(),
                json_patch(
                    &path_of("a"),
                    &json!([
                        { "op": "test", "path": "/spec/color", "value": "red" },
                        { "op": "add", "path": "/spec/tags/-", "value": "z" },
                        { "op": "replace", "path": "/spec/word", "value": "servers" },
                        { "op": "remove", "path": "/spec/table/a" },
                    ]),
                ),
            ],
        ),
        case(
            "JSON patch: a test that fails",
            [
                start(),
                json_patch(
                    &path_of("a"),
                    &json!([{ "op": "test", "path": "/spec/color", "value": "green" }]),
                ),
            ],
        ),
        case(
            "JSON patch: a path that is not there",
            [
                start(),
                json_patch(
                    &path_of("a"),
                    &json!([{ "op": "remove", "path": "/spec/nothing" }]),
                ),
            ],
        ),
        case(
            "JSON patch: no list",
            [start(), json_patch(&path_of("a"), &json!({ "op": "remove" }))],
        ),
        case(
            "JSON patch: unknown operation",
            [
                start(),
                json_patch(&path_of("a"), &json!([{ "op": "invent", "path": "/spec" }])),
            ],
        ),
        case(
            "JSON patch: of the red one",
            [
                post(WIDGETS, &red("b")),
                json_patch(
                    &path_of("b"),
                    &json!([{ "op": "add", "path": "/metadata/labels", "value": { "a": "b" } }]),
                ),
            ],
        ),
    ]);
    cases
}
