//! Invalid requests that are refused before an object is read: 400, 404, 405, 406, 415; and objects that are too large: 500.

use serde_json::{Value, json};

use super::{WIDGETS, path_of, red, widget, with_metadata};
use crate::case::{Case, Step, case, get, json_patch, post, put, raw};

pub(super) fn cases() -> Vec<Case> {
    let mut other_kind = red("a");
    other_kind["kind"] = json!("Gadget");
    let mut other_version = red("a");
    other_version["apiVersion"] = json!("conformance.sluice.dev/v2");
    let mut no_kind = red("a");
    no_kind["kind"] = json!("");
    vec![
        case(
            "400: body is not JSON",
            [raw("POST", WIDGETS, "application/json", "{ nonsense")],
        ),
        case("400: empty body", [raw("POST", WIDGETS, "application/json", "")]),
        case(
            "400: body is a list",
            [raw("POST", WIDGETS, "application/json", "[]")],
        ),
        case("422: another kind", [post(WIDGETS, &other_kind)]),
        case("400: no kind", [post(WIDGETS, &no_kind)]),
        case("400: another version", [post(WIDGETS, &other_version)]),
        case(
            "400: another namespace",
            [post(
                WIDGETS,
                &with_metadata(red("a"), "namespace", json!("elsewhere")),
            )],
        ),
        case(
            "400: metadata of the wrong type",
            [post(
                WIDGETS,
                &with_metadata(red("a"), "labels", json!({ "a": 1 })),
            )],
        ),
        case(
            "201: POST to the path of an object",
            [post(&path_of("a"), &red("a"))],
        ),
        case("400: PUT to a collection", [put(WIDGETS, &red("a"))]),
        case(
            "400: PATCH to a collection",
            [raw("PATCH", WIDGETS, "application/merge-patch+json", "{}")],
        ),
        case(
            "405: PUT and PATCH to a built-in collection, POST to a built-in object",
            [
                put("/api/v1/namespaces/{ns}/configmaps", &json!({})),
                raw(
                    "PATCH",
                    "/api/v1/namespaces/{ns}/configmaps",
                    "application/merge-patch+json",
                    "{}",
                ),
                post("/api/v1/namespaces/{ns}/configmaps/m", &json!({})),
            ],
        ),
        case(
            "405: DELETE of a status",
            [raw("DELETE", &path_of("a/status"), "application/json", "{}")],
        ),
        case(
            "404: unknown subresource",
            [post(WIDGETS, &red("a")), get(&path_of("a/scale"))],
        ),
        case(
            "500: a new object that is too large",
            [post(WIDGETS, &large("a", 1_600_000)), get(&path_of("a"))],
        ),
        case(
            "500: a patch that makes an object too large",
            [
                post(WIDGETS, &large("a", 900_000)),
                json_patch(
                    &path_of("a"),
                    &json!([
                        { "op": "add", "path": "/spec/free", "value": {} },
                        { "op": "copy", "from": "/spec/note", "path": "/spec/free/copy" },
                    ]),
                ),
                get(&path_of("a")),
            ],
        ),
        case(
            "415: create as text",
            [raw("POST", WIDGETS, "text/plain", "hello")],
        ),
        case(
            "415: replace as a form",
            [
                post(WIDGETS, &red("a")),
                raw("PUT", &path_of("a"), "application/x-www-form-urlencoded", "a=b"),
            ],
        ),
        case(
            "406: a response as a page",
            [Step::Send {
                method: "GET",
                path: WIDGETS.into(),
                headers: vec![("accept", "text/html")],
                body: String::new(),
            }],
        ),
        case(
            "200: YAML is understood",
            [raw(
                "POST",
                WIDGETS,
                "application/yaml",
                "apiVersion: conformance.sluice.dev/v1\nkind: Widget\nmetadata: { name: a }\nspec: { color: red }\n",
            )],
        ),
        case(
            "201: another version of the kind",
            [post(
                "/apis/conformance.sluice.dev/v1alpha1/namespaces/{ns}/widgets",
                &{
                    let mut object = widget("a", &json!({ "color": "red" }));
                    object["apiVersion"] = json!("conformance.sluice.dev/v1alpha1");
                    object
                },
            )],
        ),
    ]
}

/// Returns a widget with a note of this length.
fn large(name: &str, bytes: usize) -> Value {
    widget(name, &json!({ "color": "red", "note": "x".repeat(bytes) }))
}
