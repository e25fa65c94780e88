//! Invalid names, labels, annotations, owners and finalizers.

use serde_json::{Value, json};

use super::{WIDGETS, path_of, red, with_metadata};
use crate::case::{Case, case, merge, post};

fn create(name: &'static str, key: &str, value: Value) -> Case {
    case(name, [post(WIDGETS, &with_metadata(red("a"), key, value))])
}

pub(super) fn cases() -> Vec<Case> {
    let owner =
        |kind: &str, uid: &str| json!([{ "apiVersion": "v1", "kind": kind, "name": "x", "uid": uid }]);
    vec![
        create("name: capital letters", "name", json!("Hello")),
        create("name: a slash", "name", json!("a/b")),
        create("name: too long", "name", json!("a".repeat(254))),
        create("name: none", "name", json!("")),
        create("label: bad key", "labels", json!({ "-bad": "x" })),
        create("label: bad value", "labels", json!({ "good": "not good" })),
        create("label: long value", "labels", json!({ "good": "a".repeat(64) })),
        create("annotation: bad key", "annotations", json!({ "a/b/c": "x" })),
        create(
            "annotation: too large",
            "annotations",
            json!({ "a": "x".repeat(262_145) }),
        ),
        create("finalizer: bad name", "finalizers", json!(["not valid!"])),
        case(
            "finalizer: no domain",
            [
                post(
                    WIDGETS,
                    &with_metadata(red("a"), "finalizers", json!(["held", "held.dev"])),
                ),
                merge(&path_of("a"), &json!({ "metadata": { "finalizers": null } })),
            ],
        ),
        case(
            "finalizer: no domain, of a built-in kind",
            [post(
                "/api/v1/namespaces/{ns}/configmaps",
                &json!({ "metadata": { "name": "m", "finalizers": ["orphan", "held"] } }),
            )],
        ),
        create("owner: no uid", "ownerReferences", owner("ConfigMap", "")),
        create(
            "owner: no kind",
            "ownerReferences",
            owner("", "0b9d3c8e-3f6d-4a39-9a0c-7f2a51f1b111"),
        ),
        create(
            "owner: an event",
            "ownerReferences",
            owner("Event", "0b9d3c8e-3f6d-4a39-9a0c-7f2a51f1b111"),
        ),
        case(
            "server's fields are not the client's: uid, creation, generation",
            [
                post(WIDGETS, &with_metadata(red("a"), "generation", json!(7))),
                merge(&path_of("a"), &json!({ "metadata": { "generation": 9 } })),
                merge(
                    &path_of("a"),
                    &json!({ "metadata": { "creationTimestamp": "2020-01-01T00:00:00Z" } }),
                ),
            ],
        ),
    ]
}
