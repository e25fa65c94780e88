//! Decodes any Secrets as last applied records.
#![no_main]

use k8s_openapi::api::core::v1::Secret;
use libfuzzer_sys::fuzz_target;
use sluice_tf_core::bundle::{PlanKey, Stack};
use sluice_tf_core::last_applied::{decode, run_of, runs};

fuzz_target!(|data: &[u8]| {
    let Ok(secrets) = serde_json::from_slice::<Vec<Secret>>(data) else {
        return;
    };
    let stack = Stack {
        namespace: "team".into(),
        name: "net".into(),
        uid: "u".into(),
    };
    let key = PlanKey {
        id: "a".into(),
        key: "ab".repeat(32),
    };
    for run in runs(&secrets, "u") {
        let _ = decode(&secrets, &stack, &run, std::slice::from_ref(&key));
    }
    for secret in &secrets {
        let _ = run_of(secret);
    }
});
