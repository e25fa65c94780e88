//! Reviews of other users and their tokens, and tokens that are bound to objects.

use serde_json::{Value, json};

use crate::case::{Case, Step, case, get, post};

const LOCAL: &str = "/apis/authorization.k8s.io/v1/namespaces/{ns}/localsubjectaccessreviews";
const ACCOUNTS: &str = "/api/v1/namespaces/{ns}/serviceaccounts";
const SECRETS: &str = "/api/v1/namespaces/{ns}/secrets";

fn local(spec: &Value) -> Step {
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview", "metadata": {}, "spec": spec,
    });
    post(LOCAL, &body)
}

fn token_review(spec: &Value) -> Step {
    let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec });
    post("/apis/authentication.k8s.io/v1/tokenreviews", &body)
}

/// Requests a token of the account `a`.
fn token(spec: &Value) -> Step {
    let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec });
    post(&format!("{ACCOUNTS}/a/token"), &body)
}

/// Requests a token that is bound to this object.
fn bound_token(reference: &Value) -> Step {
    token(&json!({ "boundObjectRef": reference }))
}

fn account() -> Step {
    let body = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "a" } });
    post(ACCOUNTS, &body)
}

fn secret() -> Step {
    let body = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" } });
    post(SECRETS, &body)
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = accesses();
    cases.extend(tokens());
    cases
}

fn accesses() -> Vec<Case> {
    let here = json!({ "verb": "get", "resource": "secrets", "namespace": "{ns}" });
    vec![
        case(
            "local review: may and may not",
            [
                local(&json!({ "user": "jane", "groups": ["system:masters"], "resourceAttributes": here })),
                local(&json!({ "user": "jane", "resourceAttributes": here })),
            ],
        ),
        case(
            "local review: another namespace",
            [local(
                &json!({ "user": "jane", "resourceAttributes": { "verb": "get", "resource": "secrets", "namespace": "elsewhere" } }),
            )],
        ),
        case(
            "local review: a path",
            [local(
                &json!({ "user": "jane", "nonResourceAttributes": { "verb": "get", "path": "/healthz" } }),
            )],
        ),
        case("local review: of nobody and nothing", [local(&json!({}))]),
        case(
            "local review: without a namespace",
            [post(
                "/apis/authorization.k8s.io/v1/localsubjectaccessreviews",
                &json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview", "spec": {} }),
            )],
        ),
        case("local review: not read", [get(LOCAL)]),
    ]
}

fn tokens() -> Vec<Case> {
    let of = |kind: &str| json!({ "apiVersion": "v1", "kind": kind, "name": "s" });
    let mut another = of("Secret");
    another["uid"] = json!("00000000-0000-0000-0000-000000000000");
    vec![
        case(
            "token: of an account, and whose it is",
            [
                account(),
                token(&json!({})),
                token_review(&json!({ "token": "{token:1}" })),
            ],
        ),
        case(
            "token review: an unknown token",
            [token_review(&json!({ "token": "unknown" }))],
        ),
        case("token review: no token", [token_review(&json!({}))]),
        case(
            "token: bound to a Secret",
            [account(), secret(), bound_token(&of("Secret"))],
        ),
        case(
            "token: bound to what does not exist",
            [account(), bound_token(&of("Secret")), bound_token(&of("Pod"))],
        ),
        case(
            "token: bound to another kind",
            [account(), bound_token(&of("ServiceAccount"))],
        ),
        case(
            "token: bound to another Secret of the name",
            [account(), secret(), bound_token(&another)],
        ),
    ]
}
