//! Any body of a writing request is accepted or rejected, and the server keeps running.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_embedded_fuzz::send;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = "/api/v1/namespaces/default/configmaps/one";

fuzz_target!(|data: &[u8]| {
    let Some((kind, body)) = data.split_first() else { return };
    let (method, path, content) = match kind % 8 {
        0 => ("POST", MAPS, "application/json"),
        1 => ("POST", MAPS, "application/yaml"),
        2 => ("PUT", MAP, "application/json"),
        3 => ("PATCH", MAP, "application/merge-patch+json"),
        4 => ("PATCH", MAP, "application/json-patch+json"),
        5 => ("PATCH", MAP, "application/strategic-merge-patch+json"),
        6 => ("DELETE", MAP, "application/json"),
        _ => ("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", "application/json"),
    };
    // An object to patch, replace and delete.
    send("POST", MAPS, "application/json", br#"{"metadata":{"name":"one"},"data":{"a":"b"}}"#);
    send(method, path, content, body);
});
