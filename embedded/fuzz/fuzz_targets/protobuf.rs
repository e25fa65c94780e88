//! Any bytes after the prefix of Kubernetes' protobuf decode to an object or are rejected, and the server keeps running.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_embedded_fuzz::send;

const PATHS: [&str; 10] = [
    "/api/v1/namespaces/default/secrets",
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases",
    "/api/v1/namespaces/default/events",
    "/apis/events.k8s.io/v1/namespaces/default/events",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    "/api/v1/namespaces/default/serviceaccounts/default/token",
];

fuzz_target!(|data: &[u8]| {
    let Some((kind, body)) = data.split_first() else { return };
    let path = PATHS[usize::from(*kind) % PATHS.len()];
    let body = [b"k8s\0", body].concat();
    send("POST", path, "application/vnd.kubernetes.protobuf", &body);
});
