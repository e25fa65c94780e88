//! Tests of the gate: which plans are applied.

mod stored_plan;

use serde_json::{Value, json};

use super::*;
use crate::annotation::REJECTED_PLAN;
use crate::run::{PlanApproval, PlanEffects};

const EFFECT: &str = "0123456789abcdef0123456789abcdef01234567";

fn run(trigger: &str, change: &[(&str, Value)]) -> TerraformRunSpec {
    let mut spec = json!({
        "terraform": { "name": "app", "uid": "u1", "generation": 3 }, "action": "PlanAndApply", "trigger": trigger,
        "source": { "kind": "GitRepository", "namespace": "ns", "name": "repo" }, "attempt": 1, "deadline": "2h",
    });
    for (field, value) in change {
        spec[*field] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

fn terraform(change: &[(&str, Value)]) -> Terraform {
    let mut object = json!({
        "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
        "metadata": { "name": "app", "namespace": "ns", "uid": "u1", "generation": 3 },
        "spec": { "interval": "1h", "sourceRef": { "kind": "GitRepository", "name": "repo" }, "approvePlan": "auto" },
    });
    for (pointer, value) in change {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn decide(run: &TerraformRunSpec, terraform: Option<&Terraform>) -> Gate {
    decide_from(run, terraform, "")
}

/// Decides about a plan whose state differs so from the known one.
fn decide_from(run: &TerraformRunSpec, terraform: Option<&Terraform>, state_mismatch: &str) -> Gate {
    let id = format!("plan-main-b8e362c206-{EFFECT}");
    check_new_plan(
        run,
        terraform,
        CandidatePlan {
            id: &id,
            effects: Some(&PlanEffects {
                updates: 1,
                ..PlanEffects::default()
            }),
            state_mismatch,
            ..CandidatePlan::default()
        },
    )
}

/// Returns the run that applies the stored plan of this id.
fn apply_run(trigger: &str, id: &str) -> TerraformRunSpec {
    let plan = ("plan", json!({ "id": id, "run": "app-1" }));
    run(trigger, &[("action", json!("Apply")), plan])
}

/// Returns the approval of this plan by alice.
fn approvals(id: &str) -> Vec<PlanApproval> {
    serde_json::from_value(json!([{
        "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "PlanApproval",
        "metadata": { "name": "of-alice", "creationTimestamp": "2026-01-08T09:05:00Z" },
        "spec": { "approver": "alice", "comment": "reviewed", "planID": id, "terraformRef": { "name": "app" } } }]))
    .unwrap()
}

/// Returns the evidence of these approvals, for a plan that has waited since before them.
fn evidence(approvals: &[PlanApproval]) -> ApprovalEvidence<'_> {
    ApprovalEvidence {
        approvals,
        author: "",
        since: Some("2026-01-08T09:00:00Z".parse().unwrap()),
    }
}

#[test]
fn the_current_policy_decides() {
    let edited = Gate::Wait(WaitReason::SpecChanged { planned: 3, now: 4 });
    let waits = |approval| Gate::Wait(WaitReason::NotApproved(approval));
    for (change, wanted) in [
        (vec![], Gate::Apply),
        (
            vec![("/spec/approvePlan", json!(""))],
            waits(ApprovalDecision::Pending),
        ),
        (
            vec![("/spec/approvePlan", json!("disable"))],
            waits(ApprovalDecision::Disabled),
        ),
        (vec![("/spec/approvePlan", json!(EFFECT))], Gate::Apply),
        (
            vec![("/spec/planOnly", json!(true))],
            waits(ApprovalDecision::PlanOnly),
        ),
        (
            vec![("/spec/approvePlan", json!("")), ("/spec/force", json!(true))],
            Gate::Apply,
        ),
        (
            vec![("/spec/suspend", json!(true))],
            Gate::Wait(WaitReason::Suspended),
        ),
        (vec![("/metadata/generation", json!(4))], edited),
        (
            vec![("/metadata/uid", json!("u2"))],
            Gate::Wait(WaitReason::ObjectGone),
        ),
        (
            vec![("/spec/destroy", json!(true))],
            Gate::Wait(WaitReason::SpecChanged { planned: 3, now: 3 }),
        ),
        (
            vec![("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))],
            Gate::Wait(WaitReason::Deleting),
        ),
    ] {
        assert_eq!(
            decide(&run("Revision", &[]), Some(&terraform(&change))),
            wanted,
            "{change:?}"
        );
    }
    assert_eq!(
        decide(&run("Revision", &[]), None),
        Gate::Wait(WaitReason::ObjectGone)
    );
}

#[test]
fn a_run_that_only_plans_never_applies() {
    for action in ["Plan", "Apply", "Unlock"] {
        let run = run("Revision", &[("action", json!(action))]);
        assert_eq!(
            decide(&run, Some(&terraform(&[]))),
            Gate::Wait(WaitReason::PlanOnlyRun)
        );
    }
}

#[test]
fn auto_apply_limits_hold_plans() {
    let held = |policy: Value| {
        let stack = terraform(&[("/spec/autoApply", policy)]);
        matches!(
            decide(&run("Revision", &[]), Some(&stack)),
            Gate::Wait(WaitReason::OnHold(_))
        )
    };
    assert!(held(json!({ "hold": ["update"] })));
    assert!(held(json!({ "maxChanges": 0 })));
    assert!(!held(json!({ "hold": ["delete"] })));
    // The deletion with destroyResourcesOnDeletion is the approval.
    let gone = ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let stack = terraform(&[
        gone,
        ("/spec/destroyResourcesOnDeletion", json!(true)),
        ("/spec/autoApply", json!({ "maxChanges": 0 })),
    ]);
    assert_eq!(
        decide(&run("Deletion", &[("destroy", json!(true))]), Some(&stack)),
        Gate::Apply
    );
}

#[test]
fn a_deletion_destroys_only_with_destroy_resources_on_deletion() {
    let gone = ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let consent = ("/spec/destroyResourcesOnDeletion", json!(true));
    let manual = ("/spec/approvePlan", json!(""));
    let destroy = run("Deletion", &[("destroy", json!(true))]);
    let later = ("/metadata/generation", json!(4));
    for (change, wanted) in [
        (vec![gone.clone(), consent.clone(), manual, later], Gate::Apply),
        (vec![gone.clone()], Gate::Wait(WaitReason::Deleting)),
        (vec![consent.clone()], Gate::Wait(WaitReason::Deleting)),
    ] {
        assert_eq!(decide(&destroy, Some(&terraform(&change))), wanted, "{change:?}");
    }
    let no_destroy = run("Deletion", &[]);
    assert_eq!(
        decide(&no_destroy, Some(&terraform(&[gone, consent]))),
        Gate::Wait(WaitReason::Deleting)
    );
}

#[test]
fn a_deletion_destroys_another_state_only_with_an_approval_by_its_plan() {
    let destroy = run("Deletion", &[("destroy", json!(true))]);
    let stack = |approve: &str| {
        terraform(&[
            ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            ("/spec/destroyResourcesOnDeletion", json!(true)),
            ("/spec/approvePlan", json!(approve)),
            ("/spec/force", json!(true)),
        ])
    };
    let mismatch = "the CLI finds another state";
    let id = format!("plan-main-b8e362c206-{EFFECT}");
    let other = format!("plan-main-b8e362c206-{}", EFFECT.replace('0', "1"));
    for approve in ["auto", "", "disable", other.as_str()] {
        let decided = decide_from(&destroy, Some(&stack(approve)), mismatch);
        let Gate::Wait(WaitReason::OnHold(held)) = decided else {
            panic!("{approve}: {decided:?}")
        };
        assert_eq!(held.to_string(), mismatch);
    }
    for approve in [id.as_str(), EFFECT] {
        assert_eq!(
            decide_from(&destroy, Some(&stack(approve)), mismatch),
            Gate::Apply,
            "{approve}"
        );
    }
    assert_eq!(decide(&destroy, Some(&stack("auto"))), Gate::Apply);
}

/// A stack with this annotation, which rejects plans, and this change.
fn rejecting(annotation: &str, change: &[(&str, Value)]) -> Terraform {
    let mut all = vec![("/metadata/annotations", json!({ REJECTED_PLAN: annotation }))];
    all.extend_from_slice(change);
    terraform(&all)
}

#[test]
fn an_approval_and_a_rejection_of_the_same_plan_never_end_in_an_apply() {
    let id = format!("plan-main-b8e362c206-{EFFECT}");
    let other = format!("plan-main-b8e362c206-{}", EFFECT.replace('0', "1"));
    let apply = apply_run("Approval", &id);
    let approvals = approvals(&id);
    let evidence = evidence(&approvals);
    let recorded: TerraformRunStatus =
        serde_json::from_value(json!({ "rejection": { "rejectedBy": "bob" } })).unwrap();
    for policy in [
        ("/spec/approvePlan", json!(id)),
        ("/spec/approvePlan", json!(EFFECT)),
        ("/spec/approvePlan", json!("auto")),
        ("/spec/force", json!(true)),
        ("/spec/approval", json!({})),
    ] {
        let policy = std::slice::from_ref(&policy);
        let check = |annotation: &str, plan: Option<&TerraformRunStatus>| {
            let stack = rejecting(annotation, policy);
            check_stored_plan(&apply, Some(&stack), plan, evidence).map(|_| ())
        };
        // A forged or stale annotation does nothing.
        for nothing in ["", "plan-main-b8e362c206", other.as_str()] {
            assert_eq!(check(nothing, None), Ok(()), "{policy:?} {nothing}");
        }
        let by = |user: &str| PlanRejection {
            rejected_by: user.to_owned(),
            ..PlanRejection::default()
        };
        assert_eq!(
            check(id.as_str(), None),
            Err(WaitReason::Rejected(by(""))),
            "{policy:?}"
        );
        // What the run records counts without the annotation.
        assert_eq!(
            check(other.as_str(), Some(&recorded)),
            Err(WaitReason::Rejected(by("bob"))),
            "{policy:?}"
        );
    }
}

#[test]
fn a_rejected_plan_is_not_applied_by_the_run_that_makes_it_or_by_a_deletion() {
    let id = format!("plan-main-b8e362c206-{EFFECT}");
    let rejected = |run: &TerraformRunSpec, change: &[(&str, Value)]| {
        let decided = decide(run, Some(&rejecting(&id, change)));
        matches!(decided, Gate::Wait(WaitReason::Rejected(_)))
    };
    let plans = run("Revision", &[]);
    assert!(rejected(&plans, &[]));
    assert!(rejected(&plans, &[("/spec/approvePlan", json!(id))]));
    let deletion = run("Deletion", &[("destroy", json!(true))]);
    assert!(rejected(
        &deletion,
        &[
            ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            ("/spec/destroyResourcesOnDeletion", json!(true)),
            ("/spec/approvePlan", json!(id)),
        ]
    ));
    // Nothing is applied here anyway, and a requested plan replaces the rejected one.
    for (change, wanted) in [
        (("/spec/planOnly", json!(true)), ApprovalDecision::PlanOnly),
        (
            ("/spec/approvePlan", json!("disable")),
            ApprovalDecision::Disabled,
        ),
        (("/spec/approvePlan", json!("replan")), ApprovalDecision::Replan),
    ] {
        let decided = decide(&plans, Some(&rejecting(&id, std::slice::from_ref(&change))));
        assert_eq!(decided, Gate::Wait(WaitReason::NotApproved(wanted)), "{change:?}");
    }
}

#[test]
fn a_new_plan_waits_for_the_required_approvals() {
    let stack = terraform(&[("/spec/approval", json!({}))]);
    let waits = decide(&run("Revision", &[]), Some(&stack));
    assert!(
        matches!(waits, Gate::Wait(WaitReason::ApprovalsMissing(_))),
        "{waits:?}"
    );
}
