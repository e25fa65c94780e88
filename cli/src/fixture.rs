//! Objects of the unit tests: the stack `team/app` and its runs, with the fields that a test is about.

use serde_json::{Value, json};
use sluice_api::run::TerraformRun;
use sluice_api::terraform::Terraform;

/// Returns a stack that its controller has observed, with these changes.
pub(crate) fn stack(changes: &Value) -> Terraform {
    let mut object = json!({
        "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
        "metadata": {"name": "app", "namespace": "team", "uid": "0123456789", "generation": 2},
        "spec": {"interval": "1m", "sourceRef": {"kind": "GitRepository", "name": "repo"}},
        "status": {"observedGeneration": 2},
    });
    merge(&mut object, changes);
    serde_json::from_value(object).unwrap()
}

/// Returns a run of the stack with this status.
pub(crate) fn run(number: u64, status: &Value) -> TerraformRun {
    changed_run(number, &json!({ "status": status }))
}

/// Returns a run of the stack with these changes.
pub(crate) fn changed_run(number: u64, changes: &Value) -> TerraformRun {
    let mut object = json!({
        "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "TerraformRun",
        "metadata": {"name": format!("app-0123456789-{number}"), "namespace": "team"},
        "spec": {"action": "Plan", "attempt": 1, "deadline": "1h", "trigger": "Revision",
            "source": {"kind": "GitRepository", "name": "repo", "namespace": "team"},
            "terraform": {"generation": 2, "name": "app", "uid": "0123456789"}},
        "status": {},
    });
    merge(&mut object, changes);
    serde_json::from_value(object).unwrap()
}

/// Returns a condition with the message `m`.
pub(crate) fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

/// Returns a status with the condition `Ready`.
pub(crate) fn ready(status: &str, reason: &str) -> Value {
    json!({"conditions": [condition("Ready", status, reason)]})
}

/// Sets the members of `changes` in an object, and in the objects in it.
pub(crate) fn merge(object: &mut Value, changes: &Value) {
    match (object, changes) {
        (Value::Object(members), Value::Object(changes)) => {
            for (key, change) in changes {
                merge(members.entry(key).or_insert(Value::Null), change);
            }
        }
        (object, change) => *object = change.clone(),
    }
}
