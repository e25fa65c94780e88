//! What a record takes from the objects.

use serde_json::{Value, json};
use sluice_api::run::{Phase, TerraformRun};
use sluice_api::source::GitRepository;

use super::super::*;

const COMMIT: &str = "b8e362c206e3d0cbb7ed22ced771a0056455a2fb";
const EFFECT: &str = "0123456789abcdef0123456789abcdef01234567";

fn digest(digit: &str) -> String {
    format!("sha256:{}", digit.repeat(64))
}

fn plan_id() -> String {
    format!("plan-main-b8e362c206-{EFFECT}")
}

fn run(number: u64, spec: &Value, status: &Value) -> TerraformRun {
    let mut whole = json!({
        "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "TerraformRun",
        "metadata": { "name": format!("net-0123456789-{number}"), "namespace": "team", "uid": format!("r{number}"),
            "creationTimestamp": "2026-01-02T03:04:05Z" },
        "spec": { "action": "Plan", "attempt": 1, "deadline": "1h", "trigger": "Revision", "bundleDigest": digest("c"),
            "inputsDigest": "hmac-sha256:ab",
            "source": { "kind": "GitRepository", "name": "code", "namespace": "team", "digest": digest("a"),
                "revision": format!("main@sha1:{COMMIT}") },
            "terraform": { "generation": 4, "name": "net", "uid": "0123456789" } },
        "status": status,
    });
    for (field, value) in spec.as_object().unwrap() {
        whole["spec"][field] = value.clone();
    }
    serde_json::from_value(whole).unwrap()
}

fn planning() -> TerraformRun {
    run(
        1,
        &json!({}),
        &json!({ "phase": "Succeeded", "reason": "TerraformPlannedWithChanges", "hasChanges": true, "planId": plan_id(),
            "planDigest": digest("b"), "effectDigest": EFFECT, "summary": { "add": 1, "change": 2, "destroy": 0 } }),
    )
}

fn applying(status: &Value) -> TerraformRun {
    run(
        2,
        &json!({ "action": "Apply", "trigger": "Approval", "approvedBy": "kubectl-edit",
            "plan": { "id": plan_id(), "digest": digest("b"), "run": "net-0123456789-1" } }),
        status,
    )
}

/// A source with the artifact of the runs and a verified commit; members of `change` are merged into it.
fn source(change: &Value) -> GitRepository {
    let mut whole = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": { "name": "code", "namespace": "team", "generation": 3 },
        "spec": { "interval": "1m", "url": "https://ada:hunter2@git.example.com/net",
            "verify": { "mode": "HEAD", "secretRef": { "name": "keys" } } },
        "status": { "observedGeneration": 3, "sourceVerificationMode": "HEAD",
            "artifact": { "digest": digest("a"), "lastUpdateTime": "2026-01-01T00:00:00Z", "path": "p",
                "revision": format!("main@sha1:{COMMIT}"), "url": "http://artifacts/p" },
            "conditions": [{ "type": "SourceVerified", "status": "True", "reason": "Succeeded", "observedGeneration": 3,
                "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "verified signature of\n\t- commit" }] },
    });
    merge(&mut whole, change);
    serde_json::from_value(whole).unwrap()
}

fn merge(value: &mut Value, change: &Value) {
    match (value, change) {
        (Value::Object(members), Value::Object(changes)) => {
            for (name, change) in changes {
                merge(members.entry(name.clone()).or_insert(Value::Null), change);
            }
        }
        (value, change) => *value = change.clone(),
    }
}

fn record(
    run: &TerraformRun,
    source: Result<&GitRepository, String>,
    plan_run: Option<&TerraformRun>,
) -> RunRecord {
    let objects = RecordedObjects {
        run,
        source,
        plan_run,
    };
    record_of(&objects).unwrap()
}

#[test]
fn an_apply_is_recorded_with_its_plan_and_its_approval() {
    let applied = applying(
        &json!({ "phase": "Succeeded", "reason": "TerraformAppliedSucceed", "message": "Applied",
        "attemptedApply": true, "applied": true, "tool": { "name": "tofu", "version": "1.10.5" },
        "startedAt": "2026-01-02T03:04:06Z", "finishedAt": "2026-01-02T03:05:00Z",
        "state": { "lineage": "l-1", "serial": 7, "resources": 3, "location": { "workspace": "blue" } } }),
    );
    let (source, planning) = (source(&json!({})), planning());
    let value = serde_json::to_value(record(&applied, Ok(&source), Some(&planning))).unwrap();
    assert_eq!(
        value,
        json!({
            "run": { "namespace": "team", "name": "net-0123456789-2", "uid": "r2", "action": "Apply", "trigger": "Approval",
                "attempt": 1, "destroy": false, "createdAt": "2026-01-02T03:04:05Z" },
            "stack": { "name": "net", "uid": "0123456789", "generation": 4 },
            "source": { "kind": "GitRepository", "namespace": "team", "name": "code",
                "repository": "https://ada:***@git.example.com/net", "revision": format!("main@sha1:{COMMIT}"),
                "artifactDigest": digest("a"), "commitSignature": { "status": "Verified", "mode": "HEAD",
                    "message": "verified signature of\n\t- commit" } },
            "inputs": { "digest": "hmac-sha256:ab", "bundleDigest": digest("c") },
            "plan": { "id": plan_id(), "run": "net-0123456789-1", "digest": digest("b"), "effectDigest": EFFECT,
                "summary": { "add": 1, "change": 2, "destroy": 0 } },
            "approvals": [{ "approver": "kubectl-edit" }],
            "result": { "phase": "Succeeded", "reason": "TerraformAppliedSucceed", "message": "Applied",
                "attemptedApply": true, "applied": true, "startedAt": "2026-01-02T03:04:06Z",
                "finishedAt": "2026-01-02T03:05:00Z", "tool": { "name": "tofu", "version": "1.10.5" },
                "state": { "lineage": "l-1", "serial": 7, "resources": 3 } },
        })
    );
    let statement = Statement::new(record(&applied, Ok(&source), None)).unwrap();
    let subjects = json!([
        { "name": "commit", "digest": { "gitCommit": COMMIT } },
        { "name": "artifact", "digest": { "sha256": "a".repeat(64) } },
        { "name": "plan", "digest": { "sha256": "b".repeat(64) } },
        { "name": "bundle", "digest": { "sha256": "c".repeat(64) } },
    ]);
    assert_eq!(serde_json::to_value(&statement.subject).unwrap(), subjects);
    assert_eq!(
        statement.predicate.plan.unwrap().summary,
        None,
        "the run that made the plan is gone"
    );
}

#[test]
fn the_approvals_that_an_apply_counted_are_recorded_in_place_of_the_text() {
    let mut applied = applying(&json!({ "phase": "Succeeded", "approvals": [
        { "name": "net-x7k2p", "approver": "alice", "comment": "reviewed", "approvedAt": "2026-01-02T03:00:00Z" },
        { "name": "net-9qz4c", "approver": "bob" },
    ] }));
    applied.spec.approved_by = "alice, bob, eve".to_owned();
    let recorded = |run: &TerraformRun| {
        serde_json::to_value(record(run, Err("it does not exist".into()), None).approvals).unwrap()
    };
    assert_eq!(
        recorded(&applied),
        json!([
            { "approver": "alice", "planApproval": "net-x7k2p" },
            { "approver": "bob", "planApproval": "net-9qz4c" },
        ])
    );
    applied.status.as_mut().unwrap().approvals.clear();
    assert_eq!(recorded(&applied), json!([{ "approver": "alice, bob, eve" }]));
}

#[test]
fn a_plan_is_recorded_without_an_approval() {
    let found = record(&planning(), Err("it does not exist".into()), None);
    assert!(found.approvals.is_empty());
    let plan = found.plan.unwrap();
    assert_eq!((plan.id, plan.run), (plan_id(), "net-0123456789-1".to_owned()));
    let failed = run(3, &json!({}), &json!({ "phase": "Failed" }));
    assert_eq!(record(&failed, Err(String::new()), None).plan, None);
}

#[test]
fn only_an_ended_run_is_recorded() {
    let running = applying(&json!({ "phase": "Applying" }));
    let objects = RecordedObjects {
        run: &running,
        source: Err(String::new()),
        plan_run: None,
    };
    let error = record_of(&objects).unwrap_err();
    assert_eq!(error, NotEnded(Phase::Applying));
    assert_eq!(error.to_string(), "it has not ended (phase Applying)");
}

#[test]
fn a_plan_of_another_digest_gives_no_counts() {
    let mut other = planning();
    other.status.as_mut().unwrap().plan_digest = digest("d");
    let applied = applying(&json!({ "phase": "Lost" }));
    let plan = record(&applied, Err(String::new()), Some(&other)).plan.unwrap();
    assert_eq!(plan.summary, None);
}

#[test]
fn a_signature_counts_only_for_the_artifact_of_the_run() {
    let applied = applying(&json!({ "phase": "Succeeded" }));
    let signature = |change: &Value| {
        let source = source(change);
        let found = record(&applied, Ok(&source), None).source;
        let known = !found.repository.is_empty();
        (
            found.commit_signature.status,
            found.commit_signature.message,
            known,
        )
    };
    let unknown = |why: &str, known: bool| (SignatureStatus::Unknown, why.to_owned(), known);
    let artifact = "the source has another artifact now";
    let edited = "the source was edited and is not reconciled yet";
    let unverified = "the source has no successful verification now";
    for (change, expected) in [
        (
            json!({ "spec": { "verify": null } }),
            (SignatureStatus::NotRequested, String::new(), true),
        ),
        (
            json!({ "status": { "artifact": { "digest": digest("e") } } }),
            unknown(artifact, false),
        ),
        (
            json!({ "status": { "artifact": { "revision": "main@sha1:other" } } }),
            unknown(artifact, false),
        ),
        (json!({ "status": null }), unknown(artifact, false)),
        (json!({ "metadata": { "generation": 4 } }), unknown(edited, false)),
        (
            json!({ "status": { "conditions": [] } }),
            unknown(unverified, true),
        ),
        (
            json!({ "metadata": { "generation": 4 }, "status": { "observedGeneration": 4 } }),
            unknown(unverified, true),
        ),
    ] {
        assert_eq!(signature(&change), expected, "{change}");
    }
}

#[test]
fn a_run_without_any_digest_has_no_statement() {
    let spec = json!({ "action": "Unlock", "bundleDigest": "", "source": { "kind": "Bucket", "name": "code", "namespace": "team",
        "revision": format!("main@sha1:{COMMIT}") } });
    let unlocked = run(4, &spec, &json!({ "phase": "Succeeded" }));
    let record = record(&unlocked, Err("of another kind".into()), None);
    assert_eq!(Statement::new(record), Err(SignError::NoSubject));
}
