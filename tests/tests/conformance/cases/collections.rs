//! Deletion: options, preconditions, and collections with selectors.

use serde_json::{Value, json};

use super::lists::with_three;
use super::{WIDGETS, delete_options, path_of, red, with_metadata};
use crate::case::{Case, Step, case, delete, delete_with, get, merge, post, raw};

const SECRETS: &str = "/api/v1/namespaces/{ns}/secrets";
const OTHER_UID: &str = "0b9d3c8e-3f6d-4a39-9a0c-7f2a51f1b111";

/// Creates a widget, changes it, and deletes it under these preconditions.
fn precondition(name: &'static str, preconditions: &Value) -> Case {
    let options = delete_options(&json!({ "preconditions": preconditions }));
    case(
        name,
        [
            post(WIDGETS, &red("a")),
            merge(&path_of("a"), &json!({ "spec": { "size": 5 } })),
            delete_with(&path_of("a"), &options),
            get(&path_of("a")),
        ],
    )
}

/// Creates three widgets, deletes those that a query selects, and lists the rest.
fn selected(name: &'static str, query: &str) -> Case {
    with_three(name, [delete(&format!("{WIDGETS}?{query}")), get(WIDGETS)])
}

/// Creates a widget, deletes it, and reads it.
fn deleted(name: &'static str, deletion: Step) -> Case {
    case(name, [post(WIDGETS, &red("a")), deletion, get(&path_of("a"))])
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = preconditions();
    cases.extend(collections());
    cases.extend([
        deleted(
            "delete options: an empty object",
            raw("DELETE", &path_of("a"), "application/json", "{}"),
        ),
        deleted(
            "delete options: in YAML",
            raw(
                "DELETE",
                &path_of("a"),
                "application/yaml",
                "apiVersion: v1\nkind: DeleteOptions\npropagationPolicy: Background\n",
            ),
        ),
        deleted(
            "delete options: no grace period",
            delete_with(
                &path_of("a"),
                &delete_options(&json!({ "gracePeriodSeconds": 0 })),
            ),
        ),
        deleted(
            "delete options: propagation in the query",
            delete(&format!("{}?propagationPolicy=Background", path_of("a"))),
        ),
        deleted(
            "delete options: unknown propagation in the query",
            delete(&format!("{}?propagationPolicy=Sideways", path_of("a"))),
        ),
        case(
            "delete: through another version",
            [
                post(WIDGETS, &red("a")),
                delete("/apis/conformance.sluice.dev/v1alpha1/namespaces/{ns}/widgets/a"),
                get(&path_of("a")),
            ],
        ),
    ]);
    cases
}

fn preconditions() -> Vec<Case> {
    vec![
        precondition(
            "precondition: this version",
            &json!({ "resourceVersion": "{rv:1}" }),
        ),
        precondition(
            "precondition: this uid and this version",
            &json!({ "uid": "{uid:0}", "resourceVersion": "{rv:1}" }),
        ),
        precondition(
            "precondition: this uid and an old version",
            &json!({ "uid": "{uid:0}", "resourceVersion": "{rv:0}" }),
        ),
        precondition(
            "precondition: another uid and this version",
            &json!({ "uid": OTHER_UID, "resourceVersion": "{rv:1}" }),
        ),
        case(
            "precondition: another uid, of a secret",
            [
                post(SECRETS, &json!({ "metadata": { "name": "s" } })),
                delete_with(
                    &format!("{SECRETS}/s"),
                    &delete_options(&json!({ "preconditions": { "uid": OTHER_UID } })),
                ),
            ],
        ),
        case(
            "precondition: of a missing object",
            [delete_with(
                &path_of("missing"),
                &delete_options(&json!({ "preconditions": { "uid": OTHER_UID } })),
            )],
        ),
        case(
            "precondition: another uid, of a collection",
            [
                post(WIDGETS, &red("a")),
                delete_with(
                    WIDGETS,
                    &delete_options(&json!({ "preconditions": { "uid": OTHER_UID } })),
                ),
                get(WIDGETS),
            ],
        ),
    ]
}

fn collections() -> Vec<Case> {
    let secret = |name: &str, team: &str| {
        post(
            SECRETS,
            &json!({ "metadata": { "name": name, "labels": { "team": team } } }),
        )
    };
    vec![
        selected("delete collection: by name", "fieldSelector=metadata.name%3Dtwo"),
        selected(
            "delete collection: by a selectable field",
            "fieldSelector=spec.color!%3Dred",
        ),
        selected("delete collection: one of", "labelSelector=team%20in%20(x,y)"),
        selected("delete collection: without a label", "labelSelector=!team"),
        selected(
            "delete collection: by label and field",
            "labelSelector=team&fieldSelector=spec.color%3Dred",
        ),
        selected("delete collection: none matches", "labelSelector=team%3Dz"),
        selected(
            "delete collection: a selector that is nonsense",
            "labelSelector=team%20within%20x",
        ),
        selected(
            "delete collection: a field that is not selectable",
            "fieldSelector=spec.size%3D3",
        ),
        case("delete collection: empty", [delete(WIDGETS)]),
        case(
            "delete collection: an object with a finalizer",
            [
                post(
                    WIDGETS,
                    &with_metadata(red("a"), "finalizers", json!(["sluice.dev/held"])),
                ),
                delete(WIDGETS),
                get(&path_of("a")),
            ],
        ),
        case(
            "delete collection: secrets by label",
            [
                secret("a", "x"),
                secret("b", "y"),
                delete(&format!("{SECRETS}?labelSelector=team%3Dx")),
                get(SECRETS),
            ],
        ),
        case(
            "delete collection: in every namespace",
            [delete("/apis/conformance.sluice.dev/v1/widgets")],
        ),
    ]
}
