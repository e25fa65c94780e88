//! Dry runs of every verb: the answer of the write, and no change.

use serde_json::{Value, json};

use super::{WIDGETS, path_of, red, widget, with_metadata};
use crate::case::{Case, Step, case, delete, delete_with, get, json_patch, merge, post, put, raw};

const SECRETS: &str = "/api/v1/namespaces/{ns}/secrets";

fn dry(path: &str) -> String {
    format!("{path}?dryRun=All")
}

/// Creates a widget, runs these steps, then reads it.
fn unchanged(name: &'static str, steps: impl IntoIterator<Item = Step>) -> Case {
    let start = [post(WIDGETS, &red("a"))].into_iter();
    case(name, start.chain(steps).chain([get(&path_of("a"))]))
}

fn held() -> Value {
    with_metadata(red("a"), "finalizers", json!(["sluice.dev/held"]))
}

fn options(fields: &Value) -> Value {
    let mut options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"] });
    for (key, value) in fields.as_object().into_iter().flatten() {
        options[key] = value.clone();
    }
    options
}

pub(super) fn cases() -> Vec<Case> {
    [creations(), updates(), deletions(), refused()].concat()
}

fn creations() -> Vec<Case> {
    let generated = json!({
        "apiVersion": "conformance.sluice.dev/v1", "kind": "Widget",
        "metadata": { "generateName": "w-" }, "spec": { "color": "red" },
    });
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "a": "b" } });
    vec![
        case(
            "dry run: create",
            [post(&dry(WIDGETS), &red("a")), get(&path_of("a"))],
        ),
        case(
            "dry run: create with generateName",
            [post(&dry(WIDGETS), &generated), get(WIDGETS)],
        ),
        unchanged("dry run: create twice", [post(&dry(WIDGETS), &red("a"))]),
        case(
            "dry run: create an invalid object",
            [post(&dry(WIDGETS), &widget("a", &json!({ "color": "mauve" })))],
        ),
        case(
            "dry run: create in a namespace that is not there",
            [post(
                "/apis/conformance.sluice.dev/v1/namespaces/nowhere/widgets?dryRun=All",
                &red("a"),
            )],
        ),
        case(
            "dry run: create a secret",
            [post(&dry(SECRETS), &secret), get(&format!("{SECRETS}/s"))],
        ),
        case(
            "dry run: create a namespace",
            [
                post(
                    "/api/v1/namespaces?dryRun=All",
                    &json!({ "metadata": { "name": "{ns}-dry" } }),
                ),
                get("/api/v1/namespaces/{ns}-dry"),
            ],
        ),
    ]
}

fn updates() -> Vec<Case> {
    let green = with_metadata(
        widget("a", &json!({ "color": "green" })),
        "resourceVersion",
        json!("{rv:0}"),
    );
    let status = json!({
        "apiVersion": "conformance.sluice.dev/v1", "kind": "Widget",
        "metadata": { "name": "a", "resourceVersion": "{rv:0}" },
        "spec": { "color": "red" }, "status": { "phase": "Ready" },
    });
    vec![
        unchanged("dry run: update", [put(&dry(&path_of("a")), &green)]),
        unchanged(
            "dry run: update of a stale version",
            [
                merge(&path_of("a"), &json!({ "spec": { "size": 5 } })),
                put(&dry(&path_of("a")), &green),
            ],
        ),
        unchanged(
            "dry run: update without a version",
            [put(&dry(&path_of("a")), &red("a"))],
        ),
        unchanged(
            "dry run: update of the status",
            [put(&dry(&path_of("a/status")), &status)],
        ),
        unchanged(
            "dry run: merge patch",
            [merge(&dry(&path_of("a")), &json!({ "spec": { "size": 5 } }))],
        ),
        unchanged(
            "dry run: merge patch of the status",
            [merge(
                &dry(&path_of("a/status")),
                &json!({ "status": { "phase": "Busy" } }),
            )],
        ),
        unchanged(
            "dry run: invalid merge patch",
            [merge(&dry(&path_of("a")), &json!({ "spec": { "size": 11 } }))],
        ),
        unchanged(
            "dry run: JSON patch",
            [json_patch(
                &dry(&path_of("a")),
                &json!([{ "op": "replace", "path": "/spec/color", "value": "green" }]),
            )],
        ),
        case(
            "dry run: strategic merge patch",
            [
                post(
                    "/api/v1/namespaces/{ns}/configmaps",
                    &json!({ "metadata": { "name": "m" }, "data": { "a": "b" } }),
                ),
                raw(
                    "PATCH",
                    "/api/v1/namespaces/{ns}/configmaps/m?dryRun=All",
                    "application/strategic-merge-patch+json",
                    r#"{"data":{"c":"d"}}"#,
                ),
                get("/api/v1/namespaces/{ns}/configmaps/m"),
            ],
        ),
    ]
}

fn deletions() -> Vec<Case> {
    let namespace = "/api/v1/namespaces/{ns}";
    let other = json!({ "preconditions": { "uid": "0b9d3c8e-3f6d-4a39-9a0c-7f2a51f1b111" } });
    vec![
        unchanged("dry run: delete", [delete(&dry(&path_of("a")))]),
        unchanged(
            "dry run: delete, in the options",
            [delete_with(&path_of("a"), &options(&json!({})))],
        ),
        unchanged(
            "dry run: delete with another uid",
            [delete_with(&path_of("a"), &options(&other))],
        ),
        case(
            "dry run: delete an object with a finalizer",
            [
                post(WIDGETS, &held()),
                delete(&dry(&path_of("a"))),
                get(&path_of("a")),
            ],
        ),
        case(
            "dry run: delete a missing object",
            [delete(&dry(&path_of("missing")))],
        ),
        unchanged(
            "dry run: delete a collection",
            [post(WIDGETS, &red("b")), delete(&dry(WIDGETS)), get(WIDGETS)],
        ),
        unchanged(
            "dry run: delete a collection, in the options",
            [delete_with(WIDGETS, &options(&json!({})))],
        ),
        case(
            "dry run: delete a collection with a finalizer",
            [post(WIDGETS, &held()), delete(&dry(WIDGETS)), get(&path_of("a"))],
        ),
        case(
            "dry run: delete a namespace",
            [delete(&dry(namespace)), get(namespace)],
        ),
    ]
}

fn refused() -> Vec<Case> {
    let some = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["Some"] });
    vec![
        unchanged(
            "dry run: unknown mode of an update",
            [put(
                &format!("{}?dryRun=Some", path_of("a")),
                &with_metadata(red("a"), "resourceVersion", json!("{rv:0}")),
            )],
        ),
        unchanged(
            "dry run: unknown mode of a patch",
            [merge(
                &format!("{}?dryRun=Some", path_of("a")),
                &json!({ "spec": { "size": 5 } }),
            )],
        ),
        unchanged(
            "dry run: unknown mode of a deletion",
            [delete(&format!("{}?dryRun=Some", path_of("a")))],
        ),
        unchanged(
            "dry run: unknown mode in the options",
            [delete_with(&path_of("a"), &some)],
        ),
        unchanged(
            "dry run: unknown mode of the deletion of a collection",
            [delete(&format!("{WIDGETS}?dryRun=Some"))],
        ),
    ]
}
