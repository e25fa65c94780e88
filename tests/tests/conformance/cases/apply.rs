//! Server-side apply: merge, lists, subresources and what is refused.

use serde_json::{Value, json};

use super::{WIDGETS, path_of, red, widget};
use crate::case::{Case, Step, apply, apply_with, case, get, managers, merge, post, raw};

/// The path of the widget of every case.
pub(super) fn path() -> String {
    path_of("a")
}

/// Applies a widget with this spec.
pub(super) fn apply_spec(manager: &str, spec: &Value) -> Step {
    apply(&path(), manager, &widget("a", spec))
}

/// Applies a status.
fn apply_status(manager: &str, status: &Value) -> Step {
    let object = json!({
        "apiVersion": "conformance.sluice.dev/v1", "kind": "Widget", "metadata": { "name": "a" }, "status": status,
    });
    apply(&format!("{}/status", path()), manager, &object)
}

pub(super) fn cases() -> Vec<Case> {
    [basics(), lists(), subresources(), refused()].concat()
}

fn basics() -> Vec<Case> {
    let spec = json!({ "color": "red", "word": "hello", "table": { "a": "1" } });
    vec![
        case(
            "apply: creates",
            [apply_spec("one", &spec), get(&path()), managers(&path())],
        ),
        case(
            "apply: again without a change keeps the version",
            [
                apply_spec("one", &spec),
                apply_spec("one", &spec),
                Step::SameVersion(0, 1),
                managers(&path()),
            ],
        ),
        case(
            "apply: a null creation time keeps the version",
            [
                apply(&path(), "one", &with_null_time()),
                apply(&path(), "one", &with_null_time()),
                Step::SameVersion(0, 1),
            ],
        ),
        case(
            "apply: a change",
            [
                apply_spec("one", &spec),
                apply_spec(
                    "one",
                    &json!({ "color": "green", "word": "hello", "table": { "a": "2" } }),
                ),
                managers(&path()),
            ],
        ),
        case(
            "apply: gives up fields",
            [
                apply_spec("one", &spec),
                apply_spec("one", &json!({ "color": "red" })),
                managers(&path()),
            ],
        ),
        case(
            "apply: gives up a field with a default",
            [
                apply_spec("one", &json!({ "color": "red", "size": 5 })),
                apply_spec("one", &json!({ "color": "red" })),
                managers(&path()),
            ],
        ),
        case(
            "apply: dry run creates nothing",
            [
                apply_with(&path(), "fieldManager=one&dryRun=All", &widget("a", &spec)),
                get(&path()),
            ],
        ),
        case(
            "apply: dry run changes nothing",
            [
                apply_spec("one", &spec),
                apply_with(&path(), "fieldManager=one&dryRun=All", &red("a")),
                get(&path()),
                managers(&path()),
            ],
        ),
        case(
            "apply: labels and annotations",
            [
                apply(&path(), "one", &labelled(&json!({ "a": "1", "b": "2" }))),
                apply(&path(), "two", &labelled(&json!({ "b": "2", "c": "3" }))),
                apply(&path(), "one", &labelled(&json!({ "a": "1" }))),
                managers(&path()),
            ],
        ),
        case(
            "apply: YAML",
            [
                raw(
                    "PATCH",
                    &format!("{}?fieldManager=one", path()),
                    "application/apply-patch+yaml",
                    "apiVersion: conformance.sluice.dev/v1\nkind: Widget\nmetadata:\n  name: a\nspec:\n  color: blue\n",
                ),
                managers(&path()),
            ],
        ),
    ]
}

/// Returns a widget as generators write it, with a null creation time.
fn with_null_time() -> Value {
    let mut object = red("a");
    object["metadata"]["creationTimestamp"] = Value::Null;
    object
}

/// Returns a widget with these labels.
fn labelled(labels: &Value) -> Value {
    let mut object = red("a");
    object["metadata"]["labels"] = labels.clone();
    object
}

fn lists() -> Vec<Case> {
    let parts = |parts: Value| json!({ "color": "red", "parts": parts });
    let tags = |tags: Value| json!({ "color": "red", "tags": tags });
    vec![
        case(
            "apply: a list of type map",
            [
                apply_spec(
                    "one",
                    &parts(json!([{ "name": "x", "count": 1 }, { "name": "y", "count": 2 }])),
                ),
                apply_spec("two", &parts(json!([{ "name": "z", "count": 3 }]))),
                apply_spec("one", &parts(json!([{ "name": "y", "count": 4 }]))),
                managers(&path()),
            ],
        ),
        case(
            "apply: conflict in a list of type map",
            [
                apply_spec("one", &parts(json!([{ "name": "x", "count": 1 }]))),
                apply_spec("two", &parts(json!([{ "name": "x", "count": 2 }]))),
            ],
        ),
        case(
            "apply: a set",
            [
                apply_spec("one", &tags(json!(["x", "y"]))),
                apply_spec("two", &tags(json!(["z", "y"]))),
                apply_spec("one", &tags(json!(["x"]))),
                managers(&path()),
            ],
        ),
        case(
            "apply: duplicates in a set",
            [apply_spec("one", &tags(json!(["x", "x"])))],
        ),
        case(
            "apply: duplicates in a list of type map",
            [apply_spec(
                "one",
                &parts(json!([{ "name": "x" }, { "name": "x" }])),
            )],
        ),
        case(
            "apply: a free-form object",
            [
                apply_spec(
                    "one",
                    &json!({ "color": "red", "free": { "a": { "b": 1 }, "list": [1, 2] } }),
                ),
                apply_spec("two", &json!({ "color": "red", "free": { "a": { "c": 2 } } })),
                apply_spec("two", &json!({ "color": "red", "free": { "list": [3] } })),
                managers(&path()),
            ],
        ),
    ]
}

fn subresources() -> Vec<Case> {
    let conditions = json!([{ "type": "Ready", "status": "True" }]);
    vec![
        case(
            "apply: the main endpoint ignores the status",
            [
                apply(
                    &path(),
                    "one",
                    &json!({
                        "apiVersion": "conformance.sluice.dev/v1", "kind": "Widget", "metadata": { "name": "a" },
                        "spec": { "color": "red" }, "status": { "phase": "Done" },
                    }),
                ),
                managers(&path()),
            ],
        ),
        case(
            "apply: the status",
            [
                apply_spec("one", &json!({ "color": "red" })),
                apply_status("two", &json!({ "phase": "Done", "conditions": conditions })),
                apply_status("two", &json!({ "conditions": conditions })),
                managers(&path()),
            ],
        ),
        case(
            "apply: conflict in the status",
            [
                apply_spec("one", &json!({ "color": "red" })),
                apply_status("two", &json!({ "phase": "Done" })),
                apply_status("one", &json!({ "phase": "Open" })),
            ],
        ),
        case(
            "apply: the status of a missing object",
            [apply_status("two", &json!({ "phase": "Done" }))],
        ),
    ]
}

fn refused() -> Vec<Case> {
    let with = |field: &str, value: &str| {
        let mut object = red("a");
        object["metadata"][field] = value.into();
        object
    };
    vec![
        case(
            "apply: without a manager",
            [apply_with(&path(), "force=false", &red("a"))],
        ),
        case(
            "apply: a manager that is too long",
            [apply_spec(&"m".repeat(129), &json!({ "color": "red" }))],
        ),
        case(
            "patch: force without apply",
            [
                post(WIDGETS, &red("a")),
                merge(
                    &format!("{}?force=true", path()),
                    &json!({ "spec": { "size": 4 } }),
                ),
            ],
        ),
        case(
            "apply: an unknown field",
            [apply_spec("one", &json!({ "color": "red", "nothing": 1 }))],
        ),
        case(
            "apply: an invalid value",
            [apply_spec("one", &json!({ "color": "red", "size": 11 }))],
        ),
        case(
            "apply: managed fields",
            [
                apply_spec("one", &json!({ "color": "red" })),
                apply(
                    &path(),
                    "one",
                    &json!({
                        "apiVersion": "conformance.sluice.dev/v1", "kind": "Widget",
                        "metadata": { "name": "a", "managedFields": [{ "manager": "x" }] }, "spec": { "color": "red" },
                    }),
                ),
            ],
        ),
        case(
            "apply: another kind",
            [apply(
                &path(),
                "one",
                &json!({ "apiVersion": "conformance.sluice.dev/v1", "kind": "Zone", "metadata": { "name": "a" } }),
            )],
        ),
        case(
            "apply: stale version",
            [
                apply_spec("one", &json!({ "color": "red" })),
                apply_spec("one", &json!({ "color": "green" })),
                apply(&path(), "one", &with("resourceVersion", "{rv:0}")),
            ],
        ),
        case(
            "apply: the uid of a missing object",
            [apply(
                &path(),
                "one",
                &with("uid", "9a1b7c7e-0000-4000-8000-000000000000"),
            )],
        ),
    ]
}
