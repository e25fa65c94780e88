//! An old run never changes the present row, the state has one of five values, and writes converge.

use proptest::prelude::*;
use sluice_api::repo::RunStatus;

use super::*;

/// Reasons of plans, of failures before a run and of failed runs, and one that is stalled.
const REASONS: [&str; 7] = [
    "ArtifactFailed",
    "InvalidToolVersion",
    "TFExecInitFailed",
    "TFExecNewFailed",
    "TerraformAppliedSucceed",
    "TerraformPlannedWithChanges",
    "VarsGenerationFailed",
];

/// Returns any status of a run.
fn run_statuses() -> impl Strategy<Value = Value> {
    let phases = [
        "Pending",
        "Claimed",
        "Planning",
        "Applying",
        "Succeeded",
        "Failed",
        "Superseded",
        "Lost",
    ];
    let plans = ["", PLAN];
    (
        proptest::sample::select(phases.to_vec()),
        proptest::option::of(any::<bool>()),
        any::<bool>(),
        proptest::sample::select(plans.to_vec()),
        proptest::sample::select(REASONS.to_vec()),
    )
        .prop_map(|(phase, changes, applied, plan, reason)| {
            json!({ "phase": phase, "hasChanges": changes, "attemptedApply": applied, "planId": plan,
                "jobName": "job", "logSecret": "log", "reason": reason, "message": "of the run" })
        })
}

/// Returns any stack of the `Repo`, settled or not.
fn stacks() -> impl Strategy<Value = Terraform> {
    (
        proptest::sample::select(vec!["", "auto", PLAN]),
        proptest::sample::select(vec!["", PLAN]),
        proptest::sample::select(vec![A, B]),
        4_i64..6,
        proptest::sample::select(vec!["True", "False", "Unknown"]),
        proptest::sample::select(REASONS.to_vec()),
        proptest::sample::select(vec!["", "RetryLimitReached", "of Ready"]),
    )
        .prop_map(|(approve, pending, attempted, observed, ready, reason, stalled)| {
            let mut conditions = vec![condition("Ready", ready, reason, "of the stack")];
            let of_stalled = if stalled == "of Ready" { reason } else { stalled };
            conditions.extend((!stalled.is_empty()).then(|| condition("Stalled", "True", of_stalled, "x")));
            for condition in &mut conditions {
                condition["observedGeneration"] = json!(observed);
            }
            stack(&json!({ "spec": { "approvePlan": approve }, "status": { "plan": { "pending": pending },
                "observedGeneration": observed, "lastAttemptedRevision": revision(attempted), "conditions": conditions } }))
        })
}

fn repos() -> impl Strategy<Value = Repo> {
    (
        proptest::sample::select(vec!["Auto", "Manual"]),
        proptest::sample::select(vec!["", PLAN]),
        proptest::sample::select(vec!["", "production", "prod-eu"]),
        proptest::sample::select(vec!["master", "main"]),
    )
        .prop_map(|(approval, approve, workspace, branch)| {
            repo(&json!({ "approval": approval, "approvePlan": approve, "workspace": workspace, "branch": branch }))
        })
}

/// What a user sees of the state of a commit.
fn state(decision: &Decision) -> (String, RunStatus, String, String) {
    let (status, ready) = (&decision.status, &decision.ready);
    let ready = format!("{} {} {}", ready.status.as_str(), ready.reason, ready.message);
    (
        status.git_sha.clone(),
        status.run_status,
        status.pending_plan.clone(),
        ready,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn an_old_run_never_changes_the_present_row(
        repo in repos(), stack in stacks(), status in run_statuses(), commit in proptest::sample::select(vec![A, B]),
        present in proptest::sample::select(vec![A, B]), generation in 3_i64..6, uid in proptest::sample::select(vec!["stack", "old"]),
    ) {
        let mut run = run(commit, generation, &status);
        run.spec.terraform.uid = uid.to_owned();
        let approved = children::approve_plan(&repo, Some(&stack));
        let of_commit = commit == present && uid == "stack";
        let of_spec = generation == 5 || !approved.is_empty() && status["planId"] == json!(approved);
        prop_assume!(!(of_commit && of_spec));
        let observed = |run| Observed { source: Some(source(present, &json!({}))), stack: Some(stack.clone()), run };
        let (with, without) = (decide(&repo, &observed(Some(run))), decide(&repo, &observed(None)));
        let is_failed = with.status.run_status == RunStatus::Failed;
        let (mut with_state, mut without_state) = (state(&with), state(&without));
        if of_commit && is_failed {
            // The failed run of this very commit explains why the stack is stalled.
            with_state.3.clear();
            without_state.3.clear();
        }
        prop_assert_eq!(with_state, without_state);
        if !of_commit {
            prop_assert_eq!(with.status, without.status);
        }
    }

    #[test]
    fn the_state_has_one_of_five_values(repo in repos(), stack in stacks(), status in run_statuses(), generation in 3_i64..6) {
        let observed = Observed { source: Some(source(A, &json!({}))), stack: Some(stack), run: Some(run(A, generation, &status)) };
        let decision = decide(&repo, &observed);
        let value = serde_json::to_value(&decision.status).unwrap();
        let text = value["runStatus"].as_str().unwrap_or_default();
        prop_assert!(["New", "Pending", "Running", "Completed", "Failed"].contains(&text), "{}", value);
        prop_assert_eq!(&value["gitSHA"].is_null(), &(repo.spec.branch == "main"));
    }

    #[test]
    fn after_its_writes_nothing_is_left_to_write(repo in repos(), stack in proptest::option::of(stacks())) {
        let existing = stack.is_some();
        let mut observed = Observed { source: existing.then(|| source(A, &json!({}))), stack, run: None };
        // The second time, `auto` follows the artifact of an edit.
        for _ in 0..2 {
            let decision = decide(&repo, &observed);
            observed.source = Some(written(observed.source, decision.source));
            observed.stack = Some(written(observed.stack, decision.stack));
        }
        let again = decide(&repo, &observed);
        prop_assert_eq!((again.source, again.stack), (None, None));
    }
}

/// Returns an object as the API server stores it after a write.
fn written<K: serde::Serialize + DeserializeOwned>(object: Option<K>, write: Option<ChildWrite>) -> K {
    let mut value = serde_json::to_value(object).unwrap();
    match write {
        None => {}
        Some(ChildWrite::Create(object)) => value = serde_json::to_value(object).unwrap(),
        Some(ChildWrite::Patch(body)) => merge(&mut value, &body),
    }
    typed(value)
}
