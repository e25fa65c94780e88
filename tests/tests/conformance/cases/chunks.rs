//! Lists in chunks, and lists at a version.

use serde_json::json;

use super::lists::with_three;
use super::{WIDGETS, path_of};
use crate::case::{Case, Step, case, delete, get, get_as, merge, post, table, wait_for_items};

const SECRETS: &str = "/api/v1/namespaces/{ns}/secrets";
/// The next page of the list in step 3.
const NEXT: &str = "continue={continue:3}";

fn list(query: &str) -> Step {
    get(&format!("{WIDGETS}?{query}"))
}

/// Creates three widgets (steps 0 to 2), then lists with each of these queries.
fn pages(name: &'static str, queries: &[&str]) -> Case {
    with_three(name, queries.iter().map(|query| list(query)))
}

/// Lists with this query, which is refused.
fn refused(name: &'static str, query: &str) -> Case {
    case(name, [list(query)])
}

pub(super) fn cases() -> Vec<Case> {
    [chunks(), tokens(), built_in(), versions(), deletion()].concat()
}

fn chunks() -> Vec<Case> {
    vec![
        pages(
            "chunks: one by one",
            &[
                "limit=1",
                "limit=1&continue={continue:3}",
                "limit=1&continue={continue:4}",
            ],
        ),
        pages("chunks: two and one", &["limit=2", &format!("limit=2&{NEXT}")]),
        pages("chunks: the rest at once", &["limit=1", NEXT]),
        pages("chunks: as many as there are", &["limit=3"]),
        pages("chunks: more than there are", &["limit=500"]),
        pages(
            "chunks: by label",
            &[
                "labelSelector=team&limit=1",
                &format!("labelSelector=team&limit=1&{NEXT}"),
            ],
        ),
        pages(
            "chunks: by label, and the rest does not match",
            &[
                "labelSelector=team%3Dx&limit=1",
                &format!("labelSelector=team%3Dx&limit=1&{NEXT}"),
            ],
        ),
        pages(
            "chunks: by a selectable field",
            &["fieldSelector=spec.color%3Dgreen&limit=1"],
        ),
        pages("chunks: by name", &["fieldSelector=metadata.name%3Done&limit=1"]),
        with_three(
            "chunks: changes between the pages do not show",
            [
                list("limit=1"),
                merge(&path_of("two"), &json!({ "spec": { "size": 5 } })),
                delete(&path_of("three")),
                list(NEXT),
                list(""),
            ],
        ),
        with_three(
            "chunks: any version has one page",
            [wait_for_items(&format!("{WIDGETS}?resourceVersion=0&limit=1"), 3)],
        ),
        pages("chunks: a limit of zero", &["limit=0"]),
        pages("chunks: a limit below zero", &["limit=-1"]),
        refused("chunks: a limit that is not a number", "limit=many"),
        refused("chunks: a limit without a value", "limit="),
        refused("chunks: a limit beyond 64 bits", "limit=99999999999999999999"),
        with_three(
            "chunks: a table",
            [
                table(&format!("{WIDGETS}?limit=2")),
                table(&format!("{WIDGETS}?limit=2&{NEXT}")),
            ],
        ),
        with_three(
            "chunks: partial metadata",
            [get_as(
                &format!("{WIDGETS}?limit=1"),
                "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            )],
        ),
    ]
}

fn tokens() -> Vec<Case> {
    vec![
        refused("token: not base64", "continue=ab!c"),
        refused("token: cut off", "continue=abcde"),
        refused(
            "token: another format",
            "continue=eyJ2IjoidjIiLCJydiI6MSwic3RhcnQiOiJhIn0",
        ),
        refused(
            "token: no version",
            "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiJhIn0",
        ),
        refused(
            "token: no start",
            "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIifQ",
        ),
        refused(
            "token: a start outside of the list",
            "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi9zZWNyZXRzL2EifQ",
        ),
        pages(
            "token: with a version",
            &["limit=1", &format!("{NEXT}&resourceVersion={{rv:3}}")],
        ),
        pages(
            "token: with any version",
            &["limit=1", &format!("{NEXT}&resourceVersion=0")],
        ),
        pages(
            "token: with a match",
            &["limit=1", &format!("{NEXT}&resourceVersionMatch=NotOlderThan")],
        ),
    ]
}

fn built_in() -> Vec<Case> {
    let secret = |name: &str| {
        post(
            SECRETS,
            &json!({ "metadata": { "name": name }, "stringData": { "a": "b" } }),
        )
    };
    let three = || [secret("a"), secret("b"), secret("c")].into_iter();
    vec![
        case(
            "chunks: secrets",
            three().chain([
                get(&format!("{SECRETS}?limit=2")),
                get(&format!("{SECRETS}?limit=2&{NEXT}")),
            ]),
        ),
        case(
            "chunks: a table of secrets",
            three().chain([table(&format!("{SECRETS}?limit=1"))]),
        ),
        case(
            "chunks: deleted secrets",
            three().chain([
                get(&format!("{SECRETS}?limit=1")),
                delete(&format!("{SECRETS}/b")),
                get(&format!("{SECRETS}?{NEXT}")),
            ]),
        ),
    ]
}

fn versions() -> Vec<Case> {
    let after_change = |name, query: &str| {
        with_three(
            name,
            [
                list(""),
                merge(&path_of("two"), &json!({ "spec": { "size": 5 } })),
                delete(&path_of("one")),
                list(query),
            ],
        )
    };
    vec![
        after_change(
            "version: exactly",
            "resourceVersion={rv:3}&resourceVersionMatch=Exact",
        ),
        after_change(
            "version: exactly, in chunks",
            "resourceVersion={rv:3}&resourceVersionMatch=Exact&limit=2",
        ),
        after_change(
            "version: exactly, because of a limit",
            "resourceVersion={rv:3}&limit=2",
        ),
        pages(
            "version: not older",
            &["", "resourceVersion={rv:3}&resourceVersionMatch=NotOlderThan"],
        ),
        pages(
            "version: not older, in chunks",
            &[
                "",
                "resourceVersion={rv:3}&resourceVersionMatch=NotOlderThan&limit=2",
            ],
        ),
        refused("version: a match without it", "resourceVersionMatch=Exact"),
        refused(
            "version: exactly zero",
            "resourceVersion=0&resourceVersionMatch=Exact",
        ),
        refused(
            "version: unknown match",
            "resourceVersion=1&resourceVersionMatch=Newest",
        ),
        refused(
            "version: unknown match without a version",
            "resourceVersionMatch=Newest",
        ),
        refused("version: initial events of a list", "sendInitialEvents=true"),
        refused(
            "version: initial events of a list, with a match",
            "sendInitialEvents=true&resourceVersionMatch=Exact",
        ),
    ]
}

fn deletion() -> Vec<Case> {
    vec![
        with_three(
            "delete collection: up to a limit",
            [delete(&format!("{WIDGETS}?limit=1")), get(WIDGETS)],
        ),
        with_three(
            "delete collection: from a token on",
            [
                list("limit=1"),
                delete(&format!("{WIDGETS}?{NEXT}")),
                get(WIDGETS),
            ],
        ),
        case(
            "delete collection: a limit that is not a number",
            [delete(&format!("{WIDGETS}?limit=many"))],
        ),
    ]
}
