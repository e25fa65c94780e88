//! Create, read and replace: versions, generation and the status subresource.

use serde_json::json;

use super::{WIDGETS, path_of, red, widget, with_metadata};
use crate::case::{Case, Step, case, get, merge, post, put, watch};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = replacements();
    cases.extend(status());
    cases.extend(status_by_default());
    cases.extend(vec![
        case("create: defaults are filled in", [post(WIDGETS, &red("a")), get(&path_of("a"))]),
        case("create: status is dropped", [
            post(WIDGETS, &{
                let mut object = red("a");
                object["status"] = json!({ "phase": "Ready" });
                object
            }),
            get(&path_of("a")),
        ]),
        case("create: twice", [post(WIDGETS, &red("a")), post(WIDGETS, &red("a"))]),
        case("create: with a resourceVersion", [
            post(WIDGETS, &with_metadata(red("a"), "resourceVersion", json!("12"))),
        ]),
        case("create: in a namespace that is not there", [
            post("/apis/conformance.sluice.dev/v1/namespaces/nowhere/widgets", &red("a")),
        ]),
        case("create: generateName", [
            post(WIDGETS, &json!({
                "apiVersion": "conformance.sluice.dev/v1", "kind": "Widget",
                "metadata": { "generateName": "w-" }, "spec": { "color": "red" },
            })),
        ]),
        case("create: cluster-scoped, without a status subresource", [
            post("/apis/conformance.sluice.dev/v1/zones", &json!({
                "apiVersion": "conformance.sluice.dev/v1", "kind": "Zone", "metadata": { "name": "{ns}" },
                "spec": { "level": 1 }, "status": { "phase": "Kept" },
            })),
            merge("/apis/conformance.sluice.dev/v1/zones/{ns}", &json!({ "status": { "phase": "New" } })),
            get("/apis/conformance.sluice.dev/v1/zones/{ns}/status"),
        ]),
        case("get: missing", [get(&path_of("missing"))]),
        case("get: through another version", [
            post(WIDGETS, &red("a")),
            get("/apis/conformance.sluice.dev/v1alpha1/namespaces/{ns}/widgets/a"),
        ]),
    ]);
    cases
}

fn replacements() -> Vec<Case> {
    let versioned = |color: &str| {
        with_metadata(
            widget("a", &json!({ "color": color })),
            "resourceVersion",
            json!("{rv:0}"),
        )
    };
    vec![
        case(
            "update: spec raises the generation",
            [
                post(WIDGETS, &red("a")),
                put(&path_of("a"), &versioned("green")),
                get(&path_of("a")),
            ],
        ),
        case(
            "update: metadata does not raise the generation",
            [
                post(WIDGETS, &red("a")),
                put(
                    &path_of("a"),
                    &with_metadata(versioned("red"), "labels", json!({ "team": "x" })),
                ),
            ],
        ),
        case(
            "update: without a change keeps the version",
            [
                post(WIDGETS, &red("a")),
                put(&path_of("a"), &versioned("red")),
                Step::SameVersion(0, 1),
            ],
        ),
        case(
            "update: stale version",
            [
                post(WIDGETS, &red("a")),
                put(&path_of("a"), &versioned("green")),
                put(&path_of("a"), &versioned("red")),
            ],
        ),
        case(
            "update: without a version",
            [post(WIDGETS, &red("a")), put(&path_of("a"), &red("a"))],
        ),
        case(
            "update: missing object",
            [put(
                &path_of("missing"),
                &with_metadata(red("missing"), "resourceVersion", json!("1")),
            )],
        ),
        case(
            "update: missing object, no version",
            [put(&path_of("missing"), &red("missing"))],
        ),
        case(
            "update: another name in the body",
            [post(WIDGETS, &red("a")), put(&path_of("a"), &red("b"))],
        ),
        case(
            "update: another uid",
            [
                post(WIDGETS, &red("a")),
                put(
                    &path_of("a"),
                    &with_metadata(
                        versioned("red"),
                        "uid",
                        json!("0b9d3c8e-3f6d-4a39-9a0c-7f2a51f1b111"),
                    ),
                ),
            ],
        ),
    ]
}

/// A status with a default, as in the kinds of Flux.
fn status_by_default() -> Vec<Case> {
    const GAUGES: &str = "/apis/conformance.sluice.dev/v1/namespaces/{ns}/gauges";
    let gauge_path = |name: &str| format!("{GAUGES}/{name}");
    let gauge = json!({
        "apiVersion": "conformance.sluice.dev/v1", "kind": "Gauge", "metadata": { "name": "a" },
        "spec": { "level": 1 }, "status": { "phase": "Ready" },
    });
    vec![
        case(
            "status: a default is there from the creation on",
            [
                post(GAUGES, &gauge),
                get(&gauge_path("a")),
                get(GAUGES),
                watch(&format!("{GAUGES}?watch=true"), 1),
            ],
        ),
        case(
            "status: a default stays in an update of the object",
            [
                post(GAUGES, &gauge),
                merge(&gauge_path("a"), &json!({ "spec": { "level": 2 } })),
                put(
                    &gauge_path("a"),
                    &with_metadata(gauge.clone(), "resourceVersion", json!("{rv:1}")),
                ),
                get(&gauge_path("a/status")),
            ],
        ),
        case(
            "status: a default comes back where the status is removed, and not into one that is there",
            [
                post(GAUGES, &gauge),
                merge(
                    &gauge_path("a/status"),
                    &json!({ "status": { "phase": "Busy", "observedGeneration": null } }),
                ),
                merge(&gauge_path("a/status"), &json!({ "status": null })),
                get(&gauge_path("a")),
            ],
        ),
    ]
}

fn status() -> Vec<Case> {
    let with_status = json!({
        "apiVersion": "conformance.sluice.dev/v1", "kind": "Widget",
        "metadata": { "name": "a", "resourceVersion": "{rv:0}" },
        "spec": { "color": "green" }, "status": { "phase": "Ready", "count": 2 },
    });
    vec![
        case(
            "status: replaced alone, generation kept",
            [
                post(WIDGETS, &red("a")),
                put(&path_of("a/status"), &with_status),
                get(&path_of("a")),
                get(&path_of("a/status")),
            ],
        ),
        case(
            "status: ignored in an update of the object",
            [post(WIDGETS, &red("a")), put(&path_of("a"), &with_status)],
        ),
        case(
            "status: merge patch",
            [
                post(WIDGETS, &red("a")),
                merge(
                    &path_of("a/status"),
                    &json!({ "status": { "phase": "Busy" }, "spec": { "color": "green" } }),
                ),
                merge(&path_of("a/status"), &json!({ "status": { "phase": null } })),
            ],
        ),
        case(
            "status: validated",
            [
                post(WIDGETS, &red("a")),
                merge(&path_of("a/status"), &json!({ "status": { "count": "many" } })),
            ],
        ),
        case(
            "status: of a missing object",
            [merge(&path_of("missing/status"), &json!({ "status": {} }))],
        ),
    ]
}
