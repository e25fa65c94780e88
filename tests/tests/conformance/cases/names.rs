//! Generated names, and namespaces as objects.

use serde_json::{Value, json};

use super::{WIDGETS, red, with_metadata};
use crate::case::{Case, case, get, merge, post, put, table};

const NAMESPACES: &str = "/api/v1/namespaces";
const NAMESPACE: &str = "/api/v1/namespaces/{ns}";
const SECRETS: &str = "/api/v1/namespaces/{ns}/secrets";

fn generated(prefix: &str) -> Value {
    json!({
        "apiVersion": "conformance.sluice.dev/v1", "kind": "Widget",
        "metadata": { "generateName": prefix }, "spec": { "color": "red" },
    })
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = namespaces();
    cases.extend([
        case(
            "generateName: twice",
            [post(WIDGETS, &generated("w-")), post(WIDGETS, &generated("w-"))],
        ),
        case(
            "generateName: with a name",
            [post(
                WIDGETS,
                &with_metadata(red("a"), "generateName", json!("w-")),
            )],
        ),
        case(
            "generateName: of a secret",
            [post(
                SECRETS,
                &json!({ "metadata": { "generateName": "s-" }, "stringData": { "a": "b" } }),
            )],
        ),
        case(
            "generateName: of an invalid object",
            [post(
                SECRETS,
                &json!({ "metadata": { "generateName": "s-" }, "data": { "a": "%" } }),
            )],
        ),
        case(
            "name: of a secret with capital letters",
            [post(SECRETS, &json!({ "metadata": { "name": "Hello" } }))],
        ),
        case(
            "name: of a secret with a dot",
            [post(SECRETS, &json!({ "metadata": { "name": "a.b" } }))],
        ),
        case(
            "name: none, of a secret",
            [post(SECRETS, &json!({ "metadata": {} }))],
        ),
    ]);
    cases
}

fn namespaces() -> Vec<Case> {
    let space = |name: &str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    vec![
        case(
            "namespace: read",
            [get(NAMESPACE), get("/api/v1/namespaces/{ns}/status")],
        ),
        case(
            "namespace: labels",
            [
                merge(NAMESPACE, &json!({ "metadata": { "labels": { "a": "b" } } })),
                merge(NAMESPACE, &json!({ "metadata": { "labels": { "a": null } } })),
            ],
        ),
        case(
            "namespace: replaced",
            [put(
                NAMESPACE,
                &with_metadata(space("{ns}"), "annotations", json!({ "a": "b" })),
            )],
        ),
        case(
            "namespace: another name in the body",
            [put(NAMESPACE, &space("other"))],
        ),
        case("namespace: with a dot", [post(NAMESPACES, &space("a.b"))]),
        case(
            "namespace: without a name",
            [post(NAMESPACES, &json!({ "metadata": {} }))],
        ),
        case(
            "table: a namespace",
            [table("/api/v1/namespaces?fieldSelector=metadata.name%3D{ns}")],
        ),
    ]
}
