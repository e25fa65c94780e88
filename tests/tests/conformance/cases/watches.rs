//! Watches: events, their order and their filters.

use serde_json::json;

use super::{WIDGETS, path_of, red, with_metadata};
use crate::case::{Case, Step, case, delete, get, merge, post, watch};

/// Creates, changes and deletes an object. Step 0 returns the initial version.
fn create_change_and_delete() -> Vec<Step> {
    vec![
        get(WIDGETS),
        post(
            WIDGETS,
            &with_metadata(red("a"), "labels", json!({ "team": "x" })),
        ),
        merge(&path_of("a"), &json!({ "spec": { "size": 4 } })),
        merge(
            &path_of("a"),
            &json!({ "metadata": { "labels": { "team": "y" } } }),
        ),
        post(WIDGETS, &red("b")),
        delete(&path_of("a")),
    ]
}

fn after(name: &'static str, steps: impl IntoIterator<Item = Step>) -> Case {
    case(name, create_change_and_delete().into_iter().chain(steps))
}

pub(super) fn cases() -> Vec<Case> {
    let from = |query: &str| format!("{WIDGETS}?watch=true&resourceVersion={{rv:0}}{query}");
    vec![
        after("watch: from a version", [watch(&from(""), 5)]),
        after(
            "watch: an object that leaves the label selector is deleted",
            [watch(&from("&labelSelector=team%3Dx"), 3)],
        ),
        after(
            "watch: an object that enters the label selector is added",
            [watch(&from("&labelSelector=team%3Dy"), 2)],
        ),
        after(
            "watch: by name",
            [watch(&from("&fieldSelector=metadata.name%3Db"), 1)],
        ),
        after(
            "watch: by a selectable field",
            [watch(&from("&fieldSelector=spec.color%3Dred"), 5)],
        ),
        after(
            "watch: without a version starts with the existing objects",
            [watch(&format!("{WIDGETS}?watch=true"), 1)],
        ),
        after(
            "watch: ends after its timeout",
            [watch(&format!("{WIDGETS}?watch=true&timeoutSeconds=1"), 9)],
        ),
        after(
            "watch: in every namespace",
            [watch(
                "/apis/conformance.sluice.dev/v1/widgets?watch=true&resourceVersion={rv:0}",
                5,
            )],
        ),
        case(
            "watch: a version that is not a number",
            [watch(&format!("{WIDGETS}?watch=true&resourceVersion=abc"), 1)],
        ),
        after(
            "410: a version that is too old",
            [watch(&format!("{WIDGETS}?watch=true&resourceVersion=1"), 1)],
        ),
        case(
            "watch: a selector that is nonsense",
            [watch(&format!("{WIDGETS}?watch=true&labelSelector=a%20b%20c"), 1)],
        ),
    ]
}
