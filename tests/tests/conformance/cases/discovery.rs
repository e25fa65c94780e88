//! Discovery.

use crate::case::{Case, Step, case, get};

/// Aggregated discovery, which the real server completes some time after its start.
pub(super) fn aggregated() -> Vec<Case> {
    let group = |name, group: &'static str| case(name, [Step::Discovery(group)]);
    vec![
        group("aggregated discovery: custom resources", "conformance.sluice.dev"),
        group("aggregated discovery: leases", "coordination.k8s.io"),
        group("aggregated discovery: definitions", "apiextensions.k8s.io"),
        group("aggregated discovery: reviews of users", "authentication.k8s.io"),
        group("aggregated discovery: reviews of access", "authorization.k8s.io"),
        case(
            "aggregated discovery: nothing has changed",
            [Step::NotModified("/api"), Step::NotModified("/apis")],
        ),
    ]
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        case(
            "discovery: a group's versions",
            [get("/apis/conformance.sluice.dev")],
        ),
        case(
            "discovery: resources of a version",
            [get("/apis/conformance.sluice.dev/v1")],
        ),
        case(
            "discovery: resources of a version without columns",
            [get("/apis/conformance.sluice.dev/v1alpha1")],
        ),
        case("discovery: leases", [get("/apis/coordination.k8s.io/v1")]),
        case(
            "discovery: reviews of users",
            [get("/apis/authentication.k8s.io/v1")],
        ),
        case(
            "discovery: reviews of access",
            [get("/apis/authorization.k8s.io/v1")],
        ),
        case("discovery: unknown group", [get("/apis/unknown.example.com/v1")]),
        case(
            "discovery: unknown version",
            [get("/apis/conformance.sluice.dev/v9")],
        ),
        case(
            "discovery: unknown resource",
            [get("/apis/conformance.sluice.dev/v1/namespaces/{ns}/gadgets")],
        ),
        case("discovery: unknown path", [get("/nowhere")]),
        case(
            "health: readyz, livez",
            [get("/readyz"), get("/livez"), get("/healthz")],
        ),
    ]
}
