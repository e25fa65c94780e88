//! The `scale` subresource of a custom resource.

use serde_json::{Value, json};

use crate::case::{Case, Step, apply, case, delete, get, json_patch, managers, merge, post, put, raw};

const POOLS: &str = "/apis/conformance.sluice.dev/v1/namespaces/{ns}/pools";
const POOL: &str = "/apis/conformance.sluice.dev/v1/namespaces/{ns}/pools/a";
const STATUS: &str = "/apis/conformance.sluice.dev/v1/namespaces/{ns}/pools/a/status";
const SCALE: &str = "/apis/conformance.sluice.dev/v1/namespaces/{ns}/pools/a/scale";

/// Creates a pool with this spec.
fn pool(spec: &Value) -> Step {
    let object = json!({
        "apiVersion": "conformance.sluice.dev/v1", "kind": "Pool", "metadata": { "name": "a" }, "spec": spec,
    });
    post(POOLS, &object)
}

fn scale(metadata: &Value, replicas: i64) -> Value {
    json!({ "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": { "replicas": replicas } })
}

fn scale_of_a(replicas: i64) -> Value {
    scale(&json!({ "name": "a" }), replicas)
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = reads();
    cases.extend(writes());
    cases.extend(refused());
    cases
}

fn reads() -> Vec<Case> {
    vec![
        case(
            "scale: read",
            [
                pool(&json!({ "size": 2 })),
                get(SCALE),
                merge(STATUS, &json!({ "status": { "size": 1, "selector": "k=v" } })),
                get(SCALE),
            ],
        ),
        case(
            "scale: of zero replicas",
            [pool(&json!({ "size": 0 })), get(SCALE)],
        ),
        case(
            "scale: of an object without a number",
            [
                pool(&json!({})),
                get(SCALE),
                merge(SCALE, &json!({})),
                put(SCALE, &scale_of_a(3)),
                get(SCALE),
            ],
        ),
        case("scale: of no object", [get(SCALE), put(SCALE, &scale_of_a(3))]),
    ]
}

fn writes() -> Vec<Case> {
    vec![
        case(
            "scale: replaced",
            [
                pool(&json!({ "size": 2 })),
                put(SCALE, &scale_of_a(5)),
                get(POOL),
                managers(POOL),
                put(SCALE, &scale_of_a(5)),
            ],
        ),
        case(
            "scale: patched",
            [
                pool(&json!({ "size": 2 })),
                merge(SCALE, &json!({ "spec": { "replicas": 4 } })),
                json_patch(
                    SCALE,
                    &json!([{ "op": "replace", "path": "/spec/replicas", "value": 6 }]),
                ),
                get(POOL),
                managers(POOL),
            ],
        ),
        case(
            "scale: an apply that creates nothing",
            [apply(SCALE, "scaler", &scale_of_a(7))],
        ),
        case(
            "scale: preconditions",
            [
                pool(&json!({ "size": 2 })),
                put(
                    SCALE,
                    &scale(&json!({ "name": "a", "resourceVersion": "{rv:0}" }), 3),
                ),
                put(
                    SCALE,
                    &scale(&json!({ "name": "a", "resourceVersion": "{rv:0}" }), 4),
                ),
                get(SCALE),
            ],
        ),
    ]
}

fn refused() -> Vec<Case> {
    vec![
        case(
            "scale: a negative number",
            [
                pool(&json!({ "size": 2 })),
                put(SCALE, &scale_of_a(-1)),
                get(SCALE),
            ],
        ),
        case(
            "422: an object with a negative number",
            [pool(&json!({ "size": -1 }))],
        ),
        case(
            "422: an object with a large number",
            [pool(&json!({ "size": 3_000_000_000_i64 }))],
        ),
        case(
            "scale: without a name",
            [pool(&json!({ "size": 2 })), put(SCALE, &scale(&json!({}), 3))],
        ),
        case(
            "scale: of another name",
            [
                pool(&json!({ "size": 2 })),
                put(SCALE, &scale(&json!({ "name": "b" }), 3)),
            ],
        ),
        case(
            "405: a scale is neither created nor deleted",
            [
                pool(&json!({ "size": 2 })),
                post(SCALE, &scale_of_a(3)),
                delete(SCALE),
            ],
        ),
        case(
            "415: a strategic merge patch of a scale",
            [
                pool(&json!({ "size": 2 })),
                raw(
                    "PATCH",
                    SCALE,
                    "application/strategic-merge-patch+json",
                    "{\"spec\":{\"replicas\":3}}",
                ),
            ],
        ),
    ]
}
