//! Built-in kinds that the controllers and the CLI need.

use serde_json::{Value, json};

use crate::case::{Case, case, delete, get, merge, post, put, wait_until_gone};

const SECRETS: &str = "/api/v1/namespaces/{ns}/secrets";
const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases";
const EVENTS: &str = "/api/v1/namespaces/{ns}/events";
const NEW_EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/{ns}/events";

fn object(version: &str, kind: &str, name: &str, fields: &Value) -> Value {
    let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } });
    for (key, value) in fields.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}

fn secret(fields: &Value) -> Value {
    object("v1", "Secret", "s", fields)
}

fn map(fields: &Value) -> Value {
    object("v1", "ConfigMap", "m", fields)
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = secrets();
    cases.extend(maps());
    cases.extend(namespaces());
    cases.extend(leases_and_events());
    cases.extend(events_of_the_new_group());
    cases.extend(reviews());
    cases
}

fn events_of_the_new_group() -> Vec<Case> {
    let event = object(
        "events.k8s.io/v1",
        "Event",
        "e",
        &json!({
            "regarding": { "apiVersion": "v1", "kind": "ConfigMap", "name": "m", "namespace": "{ns}" },
            "reason": "Tested", "note": "it was tested", "type": "Normal", "action": "Test",
            "eventTime": "2024-01-01T00:00:00.000000Z",
            "reportingController": "sluice.dev/suite", "reportingInstance": "one",
        }),
    );
    let old = object(
        "v1",
        "Event",
        "e",
        &json!({
            "involvedObject": { "apiVersion": "v1", "kind": "ConfigMap", "name": "m", "namespace": "{ns}" },
            "reason": "Tested", "message": "it was tested", "type": "Normal", "count": 1,
            "firstTimestamp": "2024-01-01T00:00:00Z", "lastTimestamp": "2024-01-01T00:00:00Z",
            "source": { "component": "suite" },
        }),
    );
    vec![
        case("discovery: events", [get("/apis/events.k8s.io/v1")]),
        case(
            "new event: made, counted and read in both groups",
            [
                post(NEW_EVENTS, &event),
                merge(
                    &format!("{NEW_EVENTS}/e"),
                    &json!({ "series": { "count": 2, "lastObservedTime": "2024-01-01T00:00:01.000000Z" } }),
                ),
                get(&format!("{NEW_EVENTS}/e")),
                get(&format!("{EVENTS}/e")),
                get(&format!("{NEW_EVENTS}?fieldSelector=regarding.name%3Dm")),
            ],
        ),
        case(
            "new event: one of the core group",
            [post(EVENTS, &old), get(&format!("{NEW_EVENTS}/e"))],
        ),
    ]
}

fn reviews() -> Vec<Case> {
    let access = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = |spec: Value| json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec });
    vec![
        case(
            "review: may I",
            [
                post(
                    access,
                    &review(
                        json!({ "resourceAttributes": { "verb": "create", "resource": "secrets", "namespace": "{ns}" } }),
                    ),
                ),
                post(
                    access,
                    &review(json!({ "nonResourceAttributes": { "verb": "get", "path": "/healthz" } })),
                ),
            ],
        ),
        case(
            "review: of nothing and of two things",
            [
                post(access, &review(json!({}))),
                post(
                    access,
                    &review(json!({ "resourceAttributes": {}, "nonResourceAttributes": {} })),
                ),
            ],
        ),
        case("review: not read", [get(access)]),
        case(
            "review: who am I",
            [post(
                "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                &json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" }),
            )],
        ),
    ]
}

fn secrets() -> Vec<Case> {
    let at = format!("{SECRETS}/s");
    vec![
        case(
            "secret: stringData becomes data",
            [
                post(
                    SECRETS,
                    &secret(&json!({ "stringData": { "a": "b" }, "data": { "a": "eA==", "c": "ZA==" } })),
                ),
                merge(&at, &json!({ "stringData": { "e": "f" } })),
                get(&at),
            ],
        ),
        case(
            "secret: data is not base64",
            [post(SECRETS, &secret(&json!({ "data": { "a": "!!" } })))],
        ),
        case(
            "secret: bad key",
            [post(SECRETS, &secret(&json!({ "data": { "a/b": "eA==" } })))],
        ),
        case(
            "secret: type is kept",
            [
                post(
                    SECRETS,
                    &secret(&json!({ "type": "example.com/own", "data": {} })),
                ),
                merge(&at, &json!({ "type": "Opaque" })),
            ],
        ),
        case(
            "secret: basic-auth needs a key",
            [post(
                SECRETS,
                &secret(&json!({ "type": "kubernetes.io/basic-auth", "data": { "x": "eA==" } })),
            )],
        ),
        case(
            "secret: immutable",
            [
                post(
                    SECRETS,
                    &secret(&json!({ "immutable": true, "data": { "a": "eA==" } })),
                ),
                merge(&at, &json!({ "data": { "a": "eQ==" } })),
                merge(&at, &json!({ "immutable": false })),
                merge(&at, &json!({ "metadata": { "labels": { "a": "b" } } })),
                delete(&at),
            ],
        ),
        case(
            "secret: too large",
            [post(
                SECRETS,
                &secret(&json!({ "data": { "a": "QUFB".repeat(400_000) } })),
            )],
        ),
        case(
            "secret: no object",
            [post(SECRETS, &secret(&json!({ "data": "text" })))],
        ),
        case(
            "secret: list",
            [
                post(SECRETS, &secret(&json!({ "data": { "a": "eA==" } }))),
                get(SECRETS),
            ],
        ),
        case(
            "secret: updated without a version",
            [
                post(SECRETS, &secret(&json!({ "data": { "a": "eA==" } }))),
                put(&at, &secret(&json!({ "data": { "a": "eQ==" } }))),
            ],
        ),
    ]
}

fn maps() -> Vec<Case> {
    let at = format!("{MAPS}/m");
    vec![
        case(
            "config map: data and binaryData",
            [
                post(
                    MAPS,
                    &map(&json!({ "data": { "a": "b" }, "binaryData": { "c": "eA==" } })),
                ),
                merge(&at, &json!({ "data": { "a": null } })),
            ],
        ),
        case(
            "config map: a key in both",
            [post(
                MAPS,
                &map(&json!({ "data": { "a": "b" }, "binaryData": { "a": "eA==" } })),
            )],
        ),
        case(
            "config map: bad key",
            [post(MAPS, &map(&json!({ "data": { "a b": "c" } })))],
        ),
        case(
            "config map: number for text",
            [post(MAPS, &map(&json!({ "data": { "a": 1 } })))],
        ),
        case(
            "config map: immutable",
            [
                post(MAPS, &map(&json!({ "immutable": true, "data": { "a": "b" } }))),
                merge(&at, &json!({ "data": { "a": "c" } })),
            ],
        ),
        case(
            "config map: updated without a version",
            [
                post(MAPS, &map(&json!({ "data": { "a": "b" } }))),
                put(&at, &map(&json!({ "data": { "a": "c" } }))),
            ],
        ),
        case(
            "config map: unknown field refused",
            [post(
                &format!("{MAPS}?fieldValidation=Strict"),
                &map(&json!({ "date": {} })),
            )],
        ),
    ]
}

fn namespaces() -> Vec<Case> {
    let space = |name: &str| object("v1", "Namespace", name, &json!({}));
    vec![
        case(
            "namespace: made and read",
            [
                post("/api/v1/namespaces", &space("{ns}-more")),
                get("/api/v1/namespaces/{ns}-more"),
            ],
        ),
        case(
            "namespace: bad name",
            [post("/api/v1/namespaces", &space("Not.Good"))],
        ),
        case(
            "namespace: those of every server stay",
            [
                delete("/api/v1/namespaces/default"),
                delete("/api/v1/namespaces/kube-system"),
                delete("/api/v1/namespaces/default?dryRun=All"),
                delete("/api/v1/namespaces"),
            ],
        ),
        case("namespace: twice", [post("/api/v1/namespaces", &space("{ns}"))]),
        case(
            "namespace: deleted with its content",
            [
                post(MAPS, &map(&json!({}))),
                delete("/api/v1/namespaces/{ns}"),
                wait_until_gone(&format!("{MAPS}/m")),
                wait_until_gone("/api/v1/namespaces/{ns}"),
            ],
        ),
    ]
}

fn leases_and_events() -> Vec<Case> {
    let lease = |spec: Value| object("coordination.k8s.io/v1", "Lease", "l", &json!({ "spec": spec }));
    let event = |namespace: &str| {
        object(
            "v1",
            "Event",
            "e",
            &json!({
                "involvedObject": { "apiVersion": "v1", "kind": "ConfigMap", "name": "m", "namespace": namespace },
                "reason": "Tested", "message": "it was tested", "type": "Normal", "count": 1,
                "firstTimestamp": "2024-01-01T00:00:00Z", "lastTimestamp": "2024-01-01T00:00:00Z",
                "source": { "component": "suite" },
            }),
        )
    };
    vec![
        case(
            "lease: execution and renewed",
            [
                post(
                    LEASES,
                    &lease(json!({ "holderIdentity": "me", "leaseDurationSeconds": 15 })),
                ),
                merge(
                    &format!("{LEASES}/l"),
                    &json!({ "spec": { "renewTime": "2024-01-01T00:00:00.000000Z" } }),
                ),
            ],
        ),
        case(
            "lease: negative duration",
            [post(LEASES, &lease(json!({ "leaseDurationSeconds": -1 })))],
        ),
        case(
            "event: made and counted",
            [
                post(EVENTS, &event("{ns}")),
                merge(&format!("{EVENTS}/e"), &json!({ "count": 2 })),
            ],
        ),
        case(
            "event: about another namespace",
            [post(EVENTS, &event("elsewhere"))],
        ),
        case(
            "service account",
            [
                post(
                    "/api/v1/namespaces/{ns}/serviceaccounts",
                    &object("v1", "ServiceAccount", "a", &json!({})),
                ),
                get("/api/v1/namespaces/{ns}/serviceaccounts/a"),
            ],
        ),
    ]
}
