//! Field managers: who owns which fields, conflicts, and migration from `kubectl apply`.

use serde_json::{Value, json};

use super::apply::{apply_spec, path};
use super::{WIDGETS, widget};
use crate::case::{Case, apply, apply_with, case, managers, merge, post, put};

pub(super) fn cases() -> Vec<Case> {
    [ownership(), migration()].concat()
}

fn ownership() -> Vec<Case> {
    let spec = |size: i64| json!({ "color": "red", "size": size });
    vec![
        case(
            "apply: conflict with an applier",
            [
                apply_spec("one", &spec(4)),
                apply_spec("two", &spec(5)),
                managers(&path()),
            ],
        ),
        case(
            "apply: several conflicts",
            [
                apply_spec("one", &json!({ "color": "red", "size": 4, "word": "hello" })),
                apply_spec("two", &json!({ "color": "green", "size": 5, "word": "hello" })),
            ],
        ),
        case(
            "apply: conflict with an update",
            [
                apply_spec("one", &spec(4)),
                merge(
                    &format!("{}?fieldManager=editor", path()),
                    &json!({ "spec": { "size": 6 } }),
                ),
                managers(&path()),
                apply_spec("one", &spec(4)),
            ],
        ),
        case(
            "apply: force",
            [
                apply_spec("one", &spec(4)),
                apply_with(&path(), "fieldManager=two&force=true", &widget("a", &spec(5))),
                managers(&path()),
            ],
        ),
        case(
            "apply: two appliers of one value, one gives it up",
            [
                apply_spec("one", &spec(4)),
                apply_spec("two", &spec(4)),
                apply_spec("one", &json!({ "color": "red" })),
                managers(&path()),
            ],
        ),
        case(
            "apply: fields of a creation stay",
            [
                post(
                    &format!("{WIDGETS}?fieldManager=creator"),
                    &widget("a", &json!({ "color": "red", "word": "hello" })),
                ),
                apply_spec("one", &json!({ "color": "red", "size": 7 })),
                apply_with(
                    &path(),
                    "fieldManager=one&force=true",
                    &widget("a", &json!({ "color": "red", "size": 7 })),
                ),
                apply_spec("one", &json!({ "color": "red" })),
                managers(&path()),
            ],
        ),
        case(
            "managers: a creation, a patch and an update",
            [
                post(
                    &format!("{WIDGETS}?fieldManager=creator"),
                    &widget(
                        "a",
                        &json!({ "color": "red", "tags": ["x"], "free": { "a": { "b": 1 } } }),
                    ),
                ),
                merge(
                    &format!("{}?fieldManager=patcher", path()),
                    &json!({ "spec": { "word": "hello", "free": { "a": { "c": 2 } } } }),
                ),
                put(
                    &format!("{}?fieldManager=editor", path()),
                    &json!({
                        "apiVersion": "conformance.sluice.dev/v1", "kind": "Widget",
                        "metadata": { "name": "a", "resourceVersion": "{rv:1}" }, "spec": { "color": "green" },
                    }),
                ),
                managers(&path()),
            ],
        ),
        case(
            "managers: a reset",
            [
                apply_spec("one", &spec(4)),
                merge(&path(), &json!({ "metadata": { "managedFields": [{}] } })),
                managers(&path()),
                apply_spec("two", &spec(5)),
                managers(&path()),
            ],
        ),
        case(
            "managers: an empty patch keeps them",
            [
                apply_spec("one", &spec(4)),
                merge(&path(), &json!({ "metadata": { "managedFields": null } })),
                managers(&path()),
            ],
        ),
    ]
}

fn migration() -> Vec<Case> {
    let config_map = |data: &Value| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" }, "data": data });
    let maps = "/api/v1/namespaces/{ns}/configmaps";
    let map = "/api/v1/namespaces/{ns}/configmaps/m";
    let mut written = config_map(&json!({ "a": "1", "b": "2" }));
    let text = format!("{written}\n");
    written["metadata"]["annotations"] = json!({ "kubectl.kubernetes.io/last-applied-configuration": text });
    let create = || {
        post(
            &format!("{maps}?fieldManager=kubectl-client-side-apply"),
            &written,
        )
    };
    vec![
        case(
            "apply: kubectl takes over what kubectl apply wrote",
            [
                create(),
                apply(map, "kubectl", &config_map(&json!({ "a": "3" }))),
                managers(map),
            ],
        ),
        case(
            "apply: another manager conflicts with kubectl apply",
            [create(), apply(map, "other", &config_map(&json!({ "a": "3" })))],
        ),
        case(
            "apply: a config map and a Secret",
            [
                apply(map, "one", &config_map(&json!({ "a": "1" }))),
                apply(map, "two", &config_map(&json!({ "b": "2" }))),
                managers(map),
                apply(
                    "/api/v1/namespaces/{ns}/secrets/s",
                    "one",
                    &json!({
                        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "data": { "a": "YQ==" },
                    }),
                ),
                managers("/api/v1/namespaces/{ns}/secrets/s"),
            ],
        ),
    ]
}
