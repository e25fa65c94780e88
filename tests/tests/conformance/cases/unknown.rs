//! Objects, kinds, namespaces and subresources that are not there.

use serde_json::json;

use super::{WIDGETS, path_of, red, with_metadata};
use crate::case::{Case, Step, case, delete, get, merge, post, put};

const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";

/// Sends one request.
fn one(name: &'static str, step: Step) -> Case {
    case(name, [step])
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = objects();
    cases.extend(scopes());
    cases.extend([
        one(
            "404: a kind of an unknown version",
            get("/apis/conformance.sluice.dev/v9/namespaces/{ns}/widgets"),
        ),
        one(
            "404: an object of an unknown version",
            get("/apis/conformance.sluice.dev/v9/namespaces/{ns}/widgets/a"),
        ),
        one(
            "404: create in an unknown version",
            post(
                "/apis/conformance.sluice.dev/v9/namespaces/{ns}/widgets",
                &red("a"),
            ),
        ),
        one(
            "404: a kind of an unknown group",
            get("/apis/unknown.example.com/v1/namespaces/{ns}/things"),
        ),
        one(
            "404: create in an unknown group",
            post("/apis/unknown.example.com/v1/namespaces/{ns}/things", &json!({})),
        ),
        one(
            "404: delete in an unknown group",
            delete("/apis/unknown.example.com/v1/namespaces/{ns}/things/a"),
        ),
        one(
            "404: an unknown kind of the core group",
            get("/api/v1/namespaces/{ns}/gadgets"),
        ),
        one(
            "404: create an unknown kind of the core group",
            post("/api/v1/namespaces/{ns}/gadgets", &json!({})),
        ),
        one(
            "404: an unknown kind of a built-in group",
            get("/apis/coordination.k8s.io/v1/namespaces/{ns}/gadgets/a"),
        ),
        one(
            "404: create an unknown custom kind",
            post(
                "/apis/conformance.sluice.dev/v1/namespaces/{ns}/gadgets",
                &red("a"),
            ),
        ),
        case(
            "404: update of a scale that is not defined",
            [
                post(WIDGETS, &red("a")),
                put(&path_of("a/scale"), &json!({ "spec": { "replicas": 1 } })),
                merge(&path_of("a/scale"), &json!({ "spec": { "replicas": 1 } })),
            ],
        ),
        case(
            "404: a subresource of another name",
            [post(WIDGETS, &red("a")), get(&path_of("a/finalize"))],
        ),
        case(
            "404: a subresource of a config map",
            [
                post(MAPS, &json!({ "metadata": { "name": "m" } })),
                get(&format!("{MAPS}/m/status")),
            ],
        ),
        one(
            "404: the status of a missing object",
            get(&path_of("missing/status")),
        ),
    ]);
    cases
}

fn objects() -> Vec<Case> {
    let in_namespace = |rest: &str| format!("/api/v1/namespaces/{{ns}}/{rest}/missing");
    let lease = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/missing";
    vec![
        one("404: a missing secret", get(&in_namespace("secrets"))),
        one("404: a missing config map", get(&in_namespace("configmaps"))),
        one("404: a missing event", get(&in_namespace("events"))),
        one(
            "404: a missing service account",
            get(&in_namespace("serviceaccounts")),
        ),
        one("404: a missing lease", get(lease)),
        one("404: a missing namespace", get("/api/v1/namespaces/nowhere")),
        one(
            "404: a missing definition",
            get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nothing.example.com"),
        ),
        one("404: delete a missing secret", delete(&in_namespace("secrets"))),
        one("404: delete a missing lease", delete(lease)),
        one(
            "404: delete a missing namespace",
            delete("/api/v1/namespaces/nowhere"),
        ),
        one(
            "404: patch a missing secret",
            merge(
                &in_namespace("secrets"),
                &json!({ "metadata": { "labels": { "a": "b" } } }),
            ),
        ),
        one(
            "404: replace a missing config map",
            put(
                &in_namespace("configmaps"),
                &json!({ "metadata": { "name": "missing" } }),
            ),
        ),
        one(
            "404: create a secret in a namespace that is not there",
            post(
                "/api/v1/namespaces/nowhere/secrets",
                &json!({ "metadata": { "name": "a" } }),
            ),
        ),
        one(
            "404: create a lease in a namespace that is not there",
            post(
                "/apis/coordination.k8s.io/v1/namespaces/nowhere/leases",
                &json!({ "metadata": { "name": "a" } }),
            ),
        ),
        one(
            "list: secrets of a namespace that is not there",
            get("/api/v1/namespaces/nowhere/secrets"),
        ),
    ]
}

/// Paths with a namespace too many or too few, and bodies of another namespace.
fn scopes() -> Vec<Case> {
    vec![
        one(
            "404: an object without its namespace",
            get("/apis/conformance.sluice.dev/v1/widgets/a"),
        ),
        one(
            "404: create without a namespace",
            post("/apis/conformance.sluice.dev/v1/widgets", &red("a")),
        ),
        one(
            "404: a cluster-scoped kind in a namespace",
            get("/apis/conformance.sluice.dev/v1/namespaces/{ns}/zones"),
        ),
        one(
            "404: a config map without its namespace",
            get("/api/v1/configmaps/m"),
        ),
        one(
            "400: a config map of another namespace",
            post(
                MAPS,
                &json!({ "metadata": { "name": "m", "namespace": "elsewhere" } }),
            ),
        ),
        case(
            "400: an update of another namespace",
            [
                post(WIDGETS, &red("a")),
                put(
                    &path_of("a"),
                    &with_metadata(red("a"), "namespace", json!("elsewhere")),
                ),
            ],
        ),
        case(
            "400: an update without a name",
            [
                post(WIDGETS, &red("a")),
                put(&path_of("a"), &with_metadata(red("a"), "name", json!(""))),
            ],
        ),
        one(
            "400: a cluster-scoped object with a namespace",
            post(
                "/apis/conformance.sluice.dev/v1/zones",
                &json!({
                    "apiVersion": "conformance.sluice.dev/v1", "kind": "Zone",
                    "metadata": { "name": "{ns}", "namespace": "{ns}" },
                }),
            ),
        ),
    ]
}
