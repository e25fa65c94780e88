//! Tests of the decision: objects for them, tables in `backend`, `conditions`, `rows` and `writes`, and its properties.

mod backend;
mod conditions;
mod properties;
mod rows;
mod writes;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const PLAN: &str = "plan-master-aaaaaaaaaa-0123456789012345678901234567890123456789";
const URL: &str = "https://git.example.com/app.git";

fn typed<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn metadata(uid: &str, generation: i64) -> Value {
    json!({ "name": "app", "namespace": "team", "uid": uid, "generation": generation, "resourceVersion": "7" })
}

fn owned(uid: &str, generation: i64) -> Value {
    let mut metadata = metadata(uid, generation);
    metadata["labels"] = json!({ "app.kubernetes.io/managed-by": "repo-controller" });
    metadata["ownerReferences"] = json!([{ "apiVersion": "terraform.gitops.k8s.io/v1alpha1", "kind": "Repo",
        "name": "app", "uid": "repo", "controller": true }]);
    metadata
}

/// A `Repo` of generation 2 whose status shows the commit A.
fn repo(spec: &Value) -> Repo {
    let mut full = json!({ "url": URL });
    merge(&mut full, spec);
    typed(json!({ "metadata": metadata("repo", 2), "spec": full,
        "status": { "gitSHA": A, "observedSource": format!("master {URL}"), "runStatus": "Running",
            "observedGeneration": 2 } }))
}

fn revision(commit: &str) -> String {
    format!("master@sha1:{commit}")
}

fn source(commit: &str, change: &Value) -> GitRepository {
    let mut object = json!({
        "metadata": owned("source", 3),
        "spec": { "url": URL, "interval": "30s", "ref": { "branch": "master" } },
        "status": {
            "observedGeneration": 3, "conditions": [condition("Ready", "True", "Succeeded", "stored")],
            "artifact": { "digest": "sha256:0", "lastUpdateTime": "2026-01-01T00:00:00Z", "path": "p",
                "revision": revision(commit), "url": "http://sources/p" },
        },
    });
    merge(&mut object, change);
    typed(object)
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

/// A Terraform object of generation 5, on which no decision is recorded.
fn stack(change: &Value) -> Terraform {
    let mut object = json!({
        "metadata": owned("stack", 5),
        "spec": { "interval": "1h", "approvePlan": "auto", "sourceRef": { "kind": "GitRepository", "name": "app" },
            "disableDriftDetection": true, "remediation": { "retries": 0 } },
        "status": { "observedGeneration": 4 },
    });
    merge(&mut object, change);
    typed(object)
}

fn manual_stack(approve_plan: &str, pending: &str) -> Terraform {
    stack(&json!({ "spec": { "approvePlan": approve_plan }, "status": { "plan": { "pending": pending } } }))
}

/// The status of a stack that has decided on a commit.
fn settled(commit: &str, conditions: &Value) -> Value {
    json!({ "status": { "observedGeneration": 5, "lastAttemptedRevision": revision(commit), "conditions": conditions } })
}

fn run(commit: &str, generation: i64, status: &Value) -> TerraformRun {
    typed(json!({
        "metadata": { "name": "app-stack-9", "namespace": "team" },
        "spec": { "action": "PlanAndApply", "attempt": 1, "deadline": "2h", "trigger": "Revision",
            "source": { "kind": "GitRepository", "name": "app", "namespace": "team", "revision": revision(commit) },
            "terraform": { "name": "app", "uid": "stack", "generation": generation } },
        "status": status,
    }))
}

fn merge(target: &mut Value, change: &Value) {
    let Some(fields) = change.as_object() else {
        *target = change.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut target[name], value);
        }
    }
}

/// Returns `gitSHA runStatus run, Ready` of the status, with one letter for a commit.
fn row(repo: &Repo, observed: &Observed) -> String {
    let Decision { status, ready, .. } = decide(repo, observed);
    let commit = status.git_sha.chars().next().unwrap_or('-');
    let run = if status.run_name.is_empty() { "-" } else { "run" };
    let (ready, reason) = (ready.status.as_str(), ready.reason);
    format!("{commit} {} {run}, {ready} {reason}", status.run_status.as_str())
}

/// Returns the object that a write creates.
fn created(write: Option<ChildWrite>) -> DynamicObject {
    match write {
        Some(ChildWrite::Create(object)) => *object,
        other => panic!("{other:?}"),
    }
}
