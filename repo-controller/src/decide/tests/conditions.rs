//! The condition of a `Repo`: of its present commit, never of an earlier one.

use super::*;

/// Returns `Ready` of the `Repo` as `<status> <reason>: <message>`.
fn ready_of(repo: &Repo, stack: Terraform, run: Option<TerraformRun>) -> String {
    let (source, stack) = (Some(source(A, &json!({}))), Some(stack));
    let ready = decide(repo, &Observed { source, stack, run }).ready;
    format!("{} {}: {}", ready.status.as_str(), ready.reason, ready.message)
}

/// A stack of generation 5 with this `Ready`, which is of the generation `observed`, and of this last commit.
fn stack_with(ready: [&str; 3], observed: i64, attempted: &str) -> Terraform {
    let [status, reason, message] = ready;
    let mut ready = condition("Ready", status, reason, message);
    ready["observedGeneration"] = json!(observed);
    stack(
        &json!({ "status": { "observedGeneration": 5, "lastAttemptedRevision": revision(attempted),
        "conditions": [ready] } }),
    )
}

#[test]
fn the_message_of_an_old_commit_is_not_shown_for_the_present_one() {
    let failed = ["False", "TFExecPlanFailed", "of the commit"];
    let old = || {
        Some(run(
            B,
            5,
            &json!({ "phase": "Failed", "reason": "TFExecPlanFailed", "message": "of the run" }),
        ))
    };
    let automatic = repo(&json!({}));
    assert_eq!(
        ready_of(&automatic, stack_with(failed, 5, B), old()),
        "Unknown New: Waiting for a run"
    );
    let waits = ["Unknown", "Progressing", "of the commit"];
    assert_eq!(
        ready_of(&automatic, stack_with(waits, 5, B), None),
        "Unknown New: Waiting for a run"
    );
    assert_eq!(
        ready_of(&automatic, stack_with(waits, 5, A), None),
        "Unknown New: of the commit"
    );
    // Of an earlier spec.
    assert_eq!(
        ready_of(&automatic, stack_with(waits, 4, A), None),
        "Unknown New: Waiting for a run"
    );
}

#[test]
fn a_failure_before_a_run_is_one_of_the_repo() {
    let automatic = repo(&json!({}));
    for reason in [
        "AccessDenied",
        "TFExecInitFailed",
        "TFExecNewFailed",
        "ToolNotInstalled",
        "VarsGenerationFailed",
    ] {
        // Of the commit before, as long as no run has begun.
        let failed = stack_with(["False", reason, "no Secret"], 5, B);
        assert_eq!(
            ready_of(&automatic, failed.clone(), None),
            format!("False {reason}: no Secret")
        );
        let other = run(B, 5, &json!({ "phase": "Succeeded" }));
        assert_eq!(
            ready_of(&automatic, failed.clone(), Some(other)),
            format!("False {reason}: no Secret")
        );
        let old = run(
            B,
            5,
            &json!({ "phase": "Failed", "reason": reason, "message": "no Secret" }),
        );
        assert_eq!(
            ready_of(&automatic, failed, Some(old)),
            "Unknown New: Waiting for a run"
        );
        // That run failed in another way.
        let other_message = run(
            B,
            5,
            &json!({ "phase": "Failed", "reason": reason, "message": "no node" }),
        );
        assert_eq!(
            ready_of(
                &automatic,
                stack_with(["False", reason, "no Secret"], 5, B),
                Some(other_message)
            ),
            format!("False {reason}: no Secret")
        );
        let of_old_spec = stack_with(["False", reason, "no Secret"], 4, B);
        assert_eq!(
            ready_of(&automatic, of_old_spec, None),
            "Unknown New: Waiting for a run"
        );
        // The workspace is about to be written.
        let edited = repo(&json!({ "workspace": "production" }));
        let failed = stack_with(["False", reason, "no Secret"], 5, B);
        assert_eq!(ready_of(&edited, failed, None), "Unknown New: Waiting for a run");
    }
    // While the first artifact is stored, the stack has none.
    let waits = stack_with(["False", "ArtifactFailed", "artifact not found"], 5, B);
    assert_eq!(
        ready_of(&automatic, waits, None),
        "Unknown New: artifact not found"
    );
}

#[test]
fn a_stack_that_is_stalled_before_a_run_is_a_failure_of_the_repo() {
    let stalled = |reason: &str, stalled: &str, generation: i64| {
        let conditions = [("Ready", "False", reason), ("Stalled", "True", stalled)];
        let conditions = conditions.map(|(kind, status, reason)| {
            let mut condition = condition(kind, status, reason, "edit the spec");
            condition["observedGeneration"] = json!(generation);
            condition
        });
        stack(
            &json!({ "status": { "observedGeneration": 5, "lastAttemptedRevision": revision(B),
            "conditions": conditions } }),
        )
    };
    let automatic = repo(&json!({}));
    for reason in [
        "ContradictingFields",
        "DependencyCycle",
        "InvalidToolVersion",
        "ServiceAccountNotUsed",
    ] {
        let shown = ready_of(&automatic, stalled(reason, reason, 5), None);
        assert_eq!(shown, format!("False {reason}: edit the spec"));
        let of_old_spec = ready_of(&automatic, stalled(reason, reason, 4), None);
        assert_eq!(of_old_spec, "Unknown New: Waiting for a run");
    }
    // Of the runs of the commit before.
    let failed = stalled("TFExecPlanFailed", "RetryLimitReached", 5);
    assert_eq!(
        ready_of(&automatic, failed, None),
        "Unknown New: Waiting for a run"
    );
}

#[test]
fn an_approved_plan_whose_apply_cannot_start_is_a_failure_of_the_repo() {
    let planned = || {
        Some(run(
            A,
            5,
            &json!({ "phase": "Succeeded", "hasChanges": true, "planId": PLAN }),
        ))
    };
    let mut ready = condition("Ready", "False", "VarsGenerationFailed", "no Secret");
    ready["observedGeneration"] = json!(6);
    let waiting = |approve: &str| {
        stack(
            &json!({ "metadata": { "generation": 6 }, "spec": { "approvePlan": approve },
            "status": { "observedGeneration": 6, "plan": { "pending": PLAN }, "conditions": [ready] } }),
        )
    };
    let approved = repo(&json!({ "approval": "Manual", "approvePlan": PLAN }));
    assert_eq!(
        ready_of(&approved, waiting(PLAN), planned()),
        "False VarsGenerationFailed: no Secret"
    );
}

#[test]
fn a_plan_from_another_state_is_explained() {
    let run_with = |field: &str| {
        let mut status = json!({ "phase": "Succeeded", "hasChanges": true, "planId": PLAN });
        status[field] = json!("the CLI finds another state");
        Some(run(A, 5, &status))
    };
    assert_eq!(
        ready_of(
            &repo(&json!({})),
            manual_stack("auto", PLAN),
            run_with("autoApplyHold")
        ),
        format!(
            "Unknown ApprovalRequired: The plan is not applied automatically: the CLI finds another state. To approve {PLAN}, set \
             spec.approval to Manual first"
        )
    );
    assert_eq!(
        ready_of(
            &repo(&json!({ "approval": "Manual" })),
            manual_stack("", PLAN),
            run_with("stateMismatch")
        ),
        format!(
            "Unknown ApprovalRequired: Set spec.approvePlan to {PLAN} to apply this plan. Check the state first: the CLI finds \
             another state"
        )
    );
}

#[test]
fn only_a_manual_repo_asks_for_its_approval() {
    let planned = || {
        Some(run(
            A,
            5,
            &json!({ "phase": "Succeeded", "hasChanges": true, "planId": PLAN }),
        ))
    };
    let pending = |repo: &Repo, approve: &str| {
        let (source, stack) = (Some(source(A, &json!({}))), Some(manual_stack(approve, PLAN)));
        let run = planned();
        decide(repo, &Observed { source, stack, run }).status.pending_plan
    };
    let manual = repo(&json!({ "approval": "Manual" }));
    assert_eq!(pending(&manual, ""), PLAN);
    assert_eq!(
        ready_of(&manual, manual_stack("", PLAN), planned()),
        format!("Unknown ApprovalRequired: Set spec.approvePlan to {PLAN} to apply this plan")
    );
    // No approval applies it.
    let plan_only = stack(&json!({ "spec": { "planOnly": true, "approvePlan": "auto" },
        "status": { "plan": { "pending": PLAN } } }));
    for repo in [&manual, &repo(&json!({}))] {
        assert_eq!(
            ready_of(repo, plan_only.clone(), planned()),
            "Unknown Pending: The plan is not applied: the Terraform object has planOnly"
        );
    }
    // The stack finds another state, or holds the plan.
    let automatic = repo(&json!({}));
    assert_eq!(pending(&automatic, "auto"), "");
    assert_eq!(
        ready_of(&automatic, manual_stack("auto", PLAN), planned()),
        format!(
            "Unknown ApprovalRequired: The plan is not applied automatically; the Terraform object has the reason. To approve \
             {PLAN}, set spec.approval to Manual first"
        )
    );
}
