//! Label and field selectors.

use serde_json::json;

use super::WIDGETS;
use super::lists::with_three;
use crate::case::{Case, Step, case, get, post};

const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";
const SECRETS: &str = "/api/v1/namespaces/{ns}/secrets";
const EVENTS: &str = "/api/v1/namespaces/{ns}/events";

/// Creates three widgets and lists them with this query.
fn select(name: &'static str, query: &str) -> Case {
    with_three(name, [get(&format!("{WIDGETS}?{query}"))])
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = fields_of_built_in_kinds();
    cases.extend([
        select("label selector: empty", "labelSelector="),
        select("label selector: two equal signs", "labelSelector=team%3D%3Dx"),
        select("label selector: has not", "labelSelector=!team"),
        select("label selector: has", "labelSelector=team"),
        select("label selector: two requirements", "labelSelector=team,team%3Dx"),
        select(
            "label selector: a contradiction",
            "labelSelector=team%3Dx,team%3Dy",
        ),
        select("label selector: an empty value", "labelSelector=team%3D"),
        select("label selector: not an empty value", "labelSelector=team!%3D"),
        select(
            "label selector: none of two",
            "labelSelector=team%20notin%20(x,y)",
        ),
        select(
            "label selector: spaces around the operator",
            "labelSelector=%20team%20%3D%20x%20",
        ),
        select("label selector: a larger number", "labelSelector=team%3E1"),
        select(
            "label selector: a key with a prefix",
            "labelSelector=example.com/team%3Dx",
        ),
        select("field selector: empty", "fieldSelector="),
        select(
            "field selector: namespace",
            "fieldSelector=metadata.namespace%3D{ns}",
        ),
        select(
            "field selector: another namespace",
            "fieldSelector=metadata.namespace%3Delsewhere",
        ),
        select(
            "field selector: two equal signs",
            "fieldSelector=spec.color%3D%3Dgreen",
        ),
        select(
            "field selector: not this value",
            "fieldSelector=spec.color!%3Dred",
        ),
        select(
            "field selector: two requirements",
            "fieldSelector=metadata.name%3Done,spec.color%3Dred",
        ),
        select(
            "field selector: a contradiction",
            "fieldSelector=spec.color%3Dred,spec.color%3Dgreen",
        ),
        select("field selector: labels", "fieldSelector=metadata.labels%3Dx"),
        select(
            "selectors: both",
            "labelSelector=team&fieldSelector=spec.color%3Dgreen",
        ),
    ]);
    cases
}

fn fields_of_built_in_kinds() -> Vec<Case> {
    let map = |name: &str| post(MAPS, &json!({ "metadata": { "name": name } }));
    let secret =
        |name: &str, type_: &str| post(SECRETS, &json!({ "metadata": { "name": name }, "type": type_ }));
    let event = |name: &str, reason: &str| {
        post(
            EVENTS,
            &json!({
                "metadata": { "name": name }, "reason": reason, "message": "it was tested", "type": "Normal",
                "involvedObject": { "apiVersion": "v1", "kind": "ConfigMap", "name": "m", "namespace": "{ns}" },
                "source": { "component": "suite" }, "count": 1,
                "firstTimestamp": "2024-01-01T00:00:00Z", "lastTimestamp": "2024-01-01T00:00:00Z",
            }),
        )
    };
    let list = |path: &str, query: &str| -> Step { get(&format!("{path}?{query}")) };
    vec![
        case(
            "field selector: config maps by name",
            [map("a"), map("b"), list(MAPS, "fieldSelector=metadata.name%3Da")],
        ),
        case(
            "field selector: config maps by data",
            [list(MAPS, "fieldSelector=data.a%3Db")],
        ),
        case(
            "field selector: leases by holder",
            [list(
                "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
                "fieldSelector=spec.holderIdentity%3Dme",
            )],
        ),
        case(
            "field selector: secrets by type",
            [
                secret("a", "example.com/one"),
                secret("b", "example.com/two"),
                list(SECRETS, "fieldSelector=type%3Dexample.com/two"),
            ],
        ),
        case(
            "field selector: secrets by data",
            [list(SECRETS, "fieldSelector=data%3Dx")],
        ),
        case(
            "field selector: events by reason and object",
            [
                event("a", "Tested"),
                event("b", "Failed"),
                list(
                    EVENTS,
                    "fieldSelector=reason%3DTested,involvedObject.name%3Dm,type!%3DWarning",
                ),
            ],
        ),
        case(
            "field selector: namespaces by name and phase",
            [list(
                "/api/v1/namespaces",
                "fieldSelector=metadata.name%3D{ns},status.phase%3DActive",
            )],
        ),
        case(
            "label selector: the name of a namespace",
            [list(
                "/api/v1/namespaces",
                "labelSelector=kubernetes.io/metadata.name%3D{ns}",
            )],
        ),
    ]
}
