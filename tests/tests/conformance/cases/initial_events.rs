//! Watches that begin with the existing objects, their bookmarks, and the options of watches.

use serde_json::json;

use super::{WIDGETS, path_of, red, with_metadata};
use crate::case::{Case, Step, case, delete, get, merge, post, watch};

const SECRETS: &str = "/api/v1/namespaces/{ns}/secrets";
const INITIAL: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

fn watch_widgets(query: &str, events: usize) -> Step {
    watch(&format!("{WIDGETS}?watch=true&{query}"), events)
}

/// Creates two widgets, one with a label, then watches with this query.
fn with_two(name: &'static str, query: &str, events: usize) -> Case {
    case(
        name,
        [
            post(
                WIDGETS,
                &with_metadata(red("a"), "labels", json!({ "team": "x" })),
            ),
            post(WIDGETS, &red("b")),
            watch_widgets(query, events),
        ],
    )
}

/// Watches with this query, which is refused.
fn refused(name: &'static str, query: &str) -> Case {
    case(name, [watch_widgets(query, 1)])
}

pub(super) fn cases() -> Vec<Case> {
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "a": "b" } });
    let mut cases = options();
    cases.extend([
        with_two(
            "initial events: a bookmark ends them",
            &format!("{INITIAL}&allowWatchBookmarks=true"),
            3,
        ),
        with_two("initial events: without bookmarks", INITIAL, 2),
        with_two(
            "initial events: by label",
            &format!("{INITIAL}&allowWatchBookmarks=true&labelSelector=team"),
            2,
        ),
        with_two(
            "initial events: by name",
            &format!("{INITIAL}&allowWatchBookmarks=true&fieldSelector=metadata.name%3Db"),
            2,
        ),
        with_two(
            "initial events: at a version",
            &format!("{INITIAL}&allowWatchBookmarks=true&resourceVersion={{rv:1}}"),
            3,
        ),
        with_two(
            "initial events: none matches",
            &format!("{INITIAL}&allowWatchBookmarks=true&labelSelector=none"),
            1,
        ),
        with_two(
            "initial events: a watch without a version has the bookmark too",
            "allowWatchBookmarks=true",
            3,
        ),
        with_two(
            "initial events: of any version",
            "allowWatchBookmarks=true&resourceVersion=0&labelSelector=none",
            1,
        ),
        case(
            "initial events: secrets",
            [
                post(SECRETS, &secret),
                watch(
                    &format!("{SECRETS}?watch=true&{INITIAL}&allowWatchBookmarks=true"),
                    2,
                ),
            ],
        ),
        case(
            "initial events: not wanted, from a version on",
            [
                get(WIDGETS),
                post(WIDGETS, &red("a")),
                merge(&path_of("a"), &json!({ "spec": { "size": 4 } })),
                delete(&path_of("a")),
                watch_widgets(
                    "resourceVersion={rv:0}&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
                    3,
                ),
            ],
        ),
    ]);
    cases
}

fn options() -> Vec<Case> {
    vec![
        refused(
            "watch options: initial events without a match",
            "sendInitialEvents=true",
        ),
        refused(
            "watch options: no initial events without a match",
            "sendInitialEvents=false",
        ),
        refused(
            "watch options: a match without initial events",
            "resourceVersionMatch=NotOlderThan",
        ),
        refused(
            "watch options: initial events at one version",
            "sendInitialEvents=true&resourceVersionMatch=Exact",
        ),
        refused(
            "watch options: a token and a match",
            &format!("{INITIAL}&continue=abc"),
        ),
        refused(
            "watch options: a timeout that is not a number",
            "timeoutSeconds=soon",
        ),
        refused(
            "watch options: a field that is not selectable",
            "fieldSelector=spec.size%3D3",
        ),
        refused("watch options: a limit that is not a number", "limit=many"),
    ]
}
