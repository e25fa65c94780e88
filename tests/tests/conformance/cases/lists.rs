//! Lists, selectors and tables.

use serde_json::json;

use super::{WIDGETS, path_of, red, widget, with_metadata};
use crate::case::{Case, Step, case, get, merge, post, raw, table, wait_for_items};

/// Creates three widgets with different labels and colours, then runs these steps.
pub(super) fn with_three(name: &'static str, steps: impl IntoIterator<Item = Step>) -> Case {
    let labelled = |name: &str, team: &str, color: &str| {
        post(
            WIDGETS,
            &with_metadata(
                widget(name, &json!({ "color": color })),
                "labels",
                json!({ "team": team }),
            ),
        )
    };
    let three = [
        labelled("one", "x", "red"),
        labelled("two", "y", "green"),
        post(WIDGETS, &red("three")),
    ];
    case(name, three.into_iter().chain(steps))
}

fn select(name: &'static str, query: &str) -> Case {
    with_three(name, [get(&format!("{WIDGETS}?{query}"))])
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("list: empty", [get(WIDGETS)]),
        with_three("list: three", [get(WIDGETS)]),
        with_three(
            "list: in every namespace, by label",
            [
                merge(
                    &path_of("one"),
                    &json!({ "metadata": { "labels": { "only": "{ns}" } } }),
                ),
                get("/apis/conformance.sluice.dev/v1/widgets?labelSelector=only%3D{ns}"),
            ],
        ),
        case(
            "list: in a namespace that is not there",
            [get("/apis/conformance.sluice.dev/v1/namespaces/nowhere/widgets")],
        ),
        select("label selector: equal", "labelSelector=team%3Dx"),
        select("label selector: not equal", "labelSelector=team!%3Dx"),
        select("label selector: one of", "labelSelector=team%20in%20(x,y)"),
        select("label selector: none of", "labelSelector=team%20notin%20(x)"),
        select("label selector: has, has not", "labelSelector=team,!other"),
        select("label selector: nonsense", "labelSelector=team%20within%20x"),
        select("field selector: name", "fieldSelector=metadata.name%3Dtwo"),
        select(
            "field selector: not this name",
            "fieldSelector=metadata.name!%3Dtwo",
        ),
        select(
            "field selector: a selectable field",
            "fieldSelector=spec.color%3Dgreen",
        ),
        select("field selector: another field", "fieldSelector=spec.size%3D3"),
        select("field selector: nonsense", "fieldSelector=name"),
        select(
            "list: at an exact version that is not a number",
            "resourceVersion=abc",
        ),
        with_three(
            "list: any version",
            [wait_for_items(&format!("{WIDGETS}?resourceVersion=0"), 3)],
        ),
        select("list: chunked", "limit=1"),
        with_three(
            "table: list",
            [
                merge(
                    &path_of("one/status"),
                    &json!({ "status": { "phase": "Busy", "conditions": [
                { "type": "Other", "status": "False" }, { "type": "Ready", "status": "True" } ] } }),
                ),
                table(WIDGETS),
            ],
        ),
        with_three("table: one object", [table(&path_of("two"))]),
        with_three(
            "table: whole objects",
            [table(&format!("{WIDGETS}?includeObject=Object"))],
        ),
        with_three(
            "table: no objects",
            [table(&format!("{WIDGETS}?includeObject=None"))],
        ),
        with_three(
            "table: a version without columns",
            [table(
                "/apis/conformance.sluice.dev/v1alpha1/namespaces/{ns}/widgets",
            )],
        ),
        case("table: nothing there", [table(&path_of("missing"))]),
        case(
            "table: events",
            [
                raw(
                    "POST",
                    "/api/v1/namespaces/{ns}/events",
                    "application/json",
                    r#"{"metadata":{"name":"e"},"involvedObject":{"kind":"Widget","name":"w","namespace":"{ns}"},"type":"Normal","reason":"Made","message":"it is made","source":{"component":"maker"},"count":2,"firstTimestamp":"2024-01-01T00:00:00Z","lastTimestamp":"2024-01-01T00:00:00Z"}"#,
                ),
                table("/api/v1/namespaces/{ns}/events"),
            ],
        ),
        case("table: namespaces", [table("/api/v1/namespaces/{ns}")]),
        case(
            "table: secrets, config maps, leases, service accounts",
            [
                raw(
                    "POST",
                    "/api/v1/namespaces/{ns}/secrets",
                    "application/json",
                    r#"{"metadata":{"name":"s"},"stringData":{"a":"b"}}"#,
                ),
                raw(
                    "POST",
                    "/api/v1/namespaces/{ns}/configmaps",
                    "application/json",
                    r#"{"metadata":{"name":"c"},"data":{"a":"b","c":"d"}}"#,
                ),
                raw(
                    "POST",
                    "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
                    "application/json",
                    r#"{"metadata":{"name":"l"},"spec":{"holderIdentity":"me"}}"#,
                ),
                raw(
                    "POST",
                    "/api/v1/namespaces/{ns}/serviceaccounts",
                    "application/json",
                    r#"{"metadata":{"name":"a"}}"#,
                ),
                table("/api/v1/namespaces/{ns}/secrets"),
                table("/api/v1/namespaces/{ns}/configmaps"),
                table("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"),
                table("/api/v1/namespaces/{ns}/serviceaccounts/a"),
            ],
        ),
    ]
}
