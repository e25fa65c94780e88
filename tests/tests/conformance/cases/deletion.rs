//! Deletion: preconditions, finalizers, owners, collections.

use serde_json::{Value, json};

use super::{WIDGETS, delete_options, path_of, red, with_metadata};
use crate::case::{Case, case, delete, delete_with, get, merge, post, wait_until_gone};

fn owned(name: &str) -> Value {
    let owner = json!([{
        "apiVersion": "conformance.sluice.dev/v1", "kind": "Widget", "name": "owner", "uid": "{uid:0}",
    }]);
    with_metadata(red(name), "ownerReferences", owner)
}

pub(super) fn cases() -> Vec<Case> {
    let with_finalizer = || {
        post(
            WIDGETS,
            &with_metadata(red("a"), "finalizers", json!(["sluice.dev/held"])),
        )
    };
    let mut cases = owners();
    cases.extend([
        case(
            "delete: at once",
            [
                post(WIDGETS, &red("a")),
                delete(&path_of("a")),
                get(&path_of("a")),
            ],
        ),
        case("delete: missing", [delete(&path_of("missing"))]),
        case(
            "delete: held by a finalizer",
            [
                with_finalizer(),
                delete(&path_of("a")),
                get(&path_of("a")),
                delete(&path_of("a")),
                merge(&path_of("a"), &json!({ "metadata": { "finalizers": null } })),
                wait_until_gone(&path_of("a")),
            ],
        ),
        case(
            "delete: no new finalizer once deleted",
            [
                with_finalizer(),
                delete(&path_of("a")),
                merge(
                    &path_of("a"),
                    &json!({ "metadata": { "finalizers": ["sluice.dev/held", "sluice.dev/late"] } }),
                ),
            ],
        ),
        case(
            "delete: a deleted object can still change",
            [
                with_finalizer(),
                delete(&path_of("a")),
                merge(&path_of("a"), &json!({ "spec": { "size": 5 } })),
                merge(&path_of("a/status"), &json!({ "status": { "phase": "Going" } })),
            ],
        ),
        case(
            "delete: finalizers are removed by the last writer",
            [
                post(
                    WIDGETS,
                    &with_metadata(
                        red("a"),
                        "finalizers",
                        json!(["sluice.dev/one", "sluice.dev/two"]),
                    ),
                ),
                delete(&path_of("a")),
                merge(
                    &path_of("a"),
                    &json!({ "metadata": { "finalizers": ["sluice.dev/two"] } }),
                ),
                merge(&path_of("a"), &json!({ "metadata": { "finalizers": [] } })),
                get(&path_of("a")),
            ],
        ),
    ]);
    cases.extend(conditions());
    cases
}

fn conditions() -> Vec<Case> {
    let other = "0b9d3c8e-3f6d-4a39-9a0c-7f2a51f1b111";
    vec![
        case(
            "precondition: this uid",
            [
                post(WIDGETS, &red("a")),
                delete_with(
                    &path_of("a"),
                    &delete_options(&json!({ "preconditions": { "uid": "{uid:0}" } })),
                ),
            ],
        ),
        case(
            "precondition: another uid",
            [
                post(WIDGETS, &red("a")),
                delete_with(
                    &path_of("a"),
                    &delete_options(&json!({ "preconditions": { "uid": other } })),
                ),
            ],
        ),
        case(
            "precondition: an old version",
            [
                post(WIDGETS, &red("a")),
                merge(&path_of("a"), &json!({ "spec": { "size": 5 } })),
                delete_with(
                    &path_of("a"),
                    &delete_options(&json!({ "preconditions": { "resourceVersion": "{rv:0}" } })),
                ),
            ],
        ),
        case(
            "delete options: unknown propagation",
            [
                post(WIDGETS, &red("a")),
                delete_with(
                    &path_of("a"),
                    &delete_options(&json!({ "propagationPolicy": "Sideways" })),
                ),
            ],
        ),
        case(
            "delete options: both ways to orphan",
            [
                post(WIDGETS, &red("a")),
                delete_with(
                    &path_of("a"),
                    &delete_options(&json!({ "propagationPolicy": "Orphan", "orphanDependents": true })),
                ),
            ],
        ),
        case(
            "delete collection: by label",
            [
                post(
                    WIDGETS,
                    &with_metadata(red("a"), "labels", json!({ "team": "x" })),
                ),
                post(WIDGETS, &red("b")),
                delete(&format!("{WIDGETS}?labelSelector=team%3Dx")),
                get(WIDGETS),
            ],
        ),
        case(
            "delete collection: all",
            [
                post(WIDGETS, &red("a")),
                post(WIDGETS, &red("b")),
                delete(WIDGETS),
                get(WIDGETS),
            ],
        ),
    ]
}

fn owners() -> Vec<Case> {
    let start = || [post(WIDGETS, &red("owner")), post(WIDGETS, &owned("child"))];
    vec![
        case(
            "owner: its dependants go with it",
            start().into_iter().chain([delete(&path_of("owner")), wait_until_gone(&path_of("child"))]),
        ),
        case(
            "owner: dependants of dependants go too",
            start().into_iter().chain([
                post(WIDGETS, &with_metadata(red("grandchild"), "ownerReferences", json!([{
                    "apiVersion": "conformance.sluice.dev/v1", "kind": "Widget", "name": "child", "uid": "{uid:1}",
                }]))),
                delete_with(&path_of("owner"), &delete_options(&json!({ "propagationPolicy": "Background" }))),
                wait_until_gone(&path_of("grandchild")),
            ]),
        ),
        case(
            "owner: orphans stay",
            start().into_iter().chain([
                delete_with(&path_of("owner"), &delete_options(&json!({ "propagationPolicy": "Orphan" }))),
                wait_until_gone(&path_of("owner")),
                get(&path_of("child")),
            ]),
        ),
        case(
            "owner: foreground deletion",
            start().into_iter().chain([
                delete_with(&path_of("owner"), &delete_options(&json!({ "propagationPolicy": "Foreground" }))),
                wait_until_gone(&path_of("child")),
                wait_until_gone(&path_of("owner")),
            ]),
        ),
        case(
            "owner: foreground deletion waits for a dependant that blocks",
            [
                post(WIDGETS, &red("owner")),
                post(WIDGETS, &blocking_owner("child")),
                delete(&format!("{}?propagationPolicy=Foreground", path_of("owner"))),
                // Whether the garbage collector has already run or not.
                delete(&path_of("child")),
                get(&path_of("owner")),
                merge(&path_of("child"), &json!({ "metadata": { "finalizers": null } })),
                wait_until_gone(&path_of("child")),
                wait_until_gone(&path_of("owner")),
            ],
        ),
        case(
            "owner: another way to delete, once deleted",
            [
                post(
                    WIDGETS,
                    &with_metadata(red("owner"), "finalizers", json!(["sluice.dev/held"])),
                ),
                delete(&path_of("owner")),
                delete_with(&path_of("owner"), &delete_options(&json!({ "propagationPolicy": "Background" }))),
                merge(&path_of("owner"), &json!({ "metadata": { "finalizers": null } })),
                wait_until_gone(&path_of("owner")),
            ],
        ),
    ]
}

/// Returns a child with a finalizer, whose deletion its owner waits for.
fn blocking_owner(name: &str) -> Value {
    let mut child = with_metadata(owned(name), "finalizers", json!(["sluice.dev/held"]));
    child["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = true.into();
    child
}
