//! Plans, approvals, applies and checks that go well.

use super::*;

#[test]
fn a_first_plan_and_its_approval() {
    let waits = || vec![planned(1, "Revision")];
    insta::assert_snapshot!(table(&[
        case("nothing yet", json!({}), vec![]),
        Case { has_slot: false, ..case("no place", json!({}), vec![]) },
        case("planning", json!({}), vec![going(1, "Plan", "Planning", json!({}))]),
        case("plan waits", json!({}), waits()),
        case("prefix", json!({ "approvePlan": "plan-main-aaaaaaaaaa" }), waits()),
        case("another plan", json!({ "approvePlan": "d".repeat(40) }), waits()),
        case("plan only", json!({ "planOnly": true }), waits()),
    ]), @r#"
    nothing yet:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Initializing
    no place:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Waiting for a free run slot: position 1 in the queue; all run slots are occupied (--concurrent=4)
    planning:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Terraform Planning
    plan waits:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown TerraformPlannedWithChanges: Plan generated: set approvePlan: "ID" to approve this plan.
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
      event Normal TerraformPlanSucceed: Planned.\nPlan generated: set approvePlan: "ID" to approve this plan.
    prefix:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown TerraformPlannedWithChanges: Plan generated: set approvePlan: "ID" to approve this plan. (approvePlan "plan-main-aaaaaaaaaa" is not a complete plan id)
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
      event Normal TerraformPlanSucceed: Planned.\nPlan generated: set approvePlan: "ID" to approve this plan. (approvePlan "plan-main-aaaaaaaaaa" is not a complete plan id)
    another plan:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown TerraformPlannedWithChanges: Plan generated: set approvePlan: "ID" to approve this plan. (approvePlan names another plan, with the effect dddddddddddddddddddddddddddddddddddddddd)
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
      event Normal TerraformPlanSucceed: Planned.\nPlan generated: set approvePlan: "ID" to approve this plan. (approvePlan names another plan, with the effect dddddddddddddddddddddddddddddddddddddddd)
    plan only:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown TerraformPlannedWithChanges: Plan generated: This object is in the plan only mode.
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
      event Normal TerraformPlanSucceed: Planned.\nPlan generated: This object is in the plan only mode.
    "#);
}

#[test]
fn an_approved_plan_is_applied() {
    insta::assert_snapshot!(table(&[
        case("approved", json!({ "approvePlan": id() }), vec![planned(1, "Revision")]),
        case("apply begins", json!({}), vec![planned(1, "Revision"), going(2, "Apply", "Preparing", json!({}))]),
        case("applying", json!({}), vec![planned(1, "Revision"), going(2, "Apply", "Applying", json!({}))]),
        case("no changes", json!({}), vec![clean(1, "Revision")]),
    ]), @"
    approved:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Initializing
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
    apply begins:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Initializing
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
    applying:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Applying
      Apply Unknown Progressing: Apply started
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
    no changes:
      Ready True TerraformPlannedNoChanges: Plan no changes: main@sha1:aaaaaaaaaaaaaaaa
      Plan False TerraformPlannedNoChanges: Plan no changes
    ");
}

#[test]
fn an_apply_in_auto_mode() {
    let secret = || json!({ "approvePlan": "auto", "writeOutputsToSecret": { "name": "out" } });
    insta::assert_snapshot!(table(&[
        case("planned", secret(), vec![going(1, "PlanAndApply", "Planning", json!({ "planId": id(), "hasChanges": true }))]),
        case("writing", secret(), vec![going(1, "PlanAndApply", "WritingOutputs", json!({ "attemptedApply": true, "applied": true }))]),
        case("applied", json!({ "approvePlan": "auto" }), vec![applied(1, &[])]),
        case("outputs there", json!({ "approvePlan": "auto" }), vec![applied(1, &["a"])]),
        case("outputs written", secret(), vec![applied(1, &["a", "b"])]),
        case("destroyed", json!({ "approvePlan": "auto", "destroy": true }), vec![run(1, json!({ "destroy": true }),
            json!({ "hasChanges": true, "planId": id(), "attemptedApply": true }))]),
        case("nothing to destroy", json!({ "approvePlan": "auto", "destroy": true }),
            vec![run(1, json!({ "destroy": true }), json!({ "hasChanges": false }))]),
    ]), @r"
    planned:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown TerraformPlannedWithChanges: Plan generated
    writing:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown TerraformAppliedSucceed: Applied successfully: main@sha1:aaaaaaaaaaaaaaaa
      Apply True TerraformAppliedSucceed: Applied successfully
    applied:
      Ready True TerraformAppliedSucceed: Applied successfully: main@sha1:aaaaaaaaaaaaaaaa
      Apply True TerraformAppliedSucceed: Applied successfully
      Plan True TerraformPlannedWithChanges: Plan generated
      event Normal TerraformAppliedSucceed: Applied successfully
    outputs there:
      Ready True TerraformAppliedSucceed: Applied successfully: main@sha1:aaaaaaaaaaaaaaaa
      Apply True TerraformAppliedSucceed: Applied successfully
      Output True TerraformOutputsAvailable: Outputs available
      Plan True TerraformPlannedWithChanges: Plan generated
      event Normal TerraformAppliedSucceed: Applied successfully
    outputs written:
      Ready True TerraformOutputsWritten: Outputs written: main@sha1:aaaaaaaaaaaaaaaa
      Apply True TerraformAppliedSucceed: Applied successfully
      Output True TerraformOutputsWritten: Outputs written
      Plan True TerraformPlannedWithChanges: Plan generated
      event Normal TerraformAppliedSucceed: Applied successfully
      event Normal TerraformOutputsWritten: Outputs written.\n2 output(s): a, b
    destroyed:
      Ready True TerraformAppliedSucceed: Destroy applied successfully: main@sha1:aaaaaaaaaaaaaaaa
      Apply True TerraformAppliedSucceed: Destroy applied successfully
      Plan True TerraformPlannedWithChanges: Plan generated
      event Normal TerraformDestroySucceed: Destroy applied successfully
    nothing to destroy:
      Ready True TerraformPlannedNoChanges: No objects need to be destroyed: main@sha1:aaaaaaaaaaaaaaaa
      Plan False TerraformPlannedNoChanges: No objects need to be destroyed
    ");
}

#[test]
fn checks_and_drift() {
    let drifted = || vec![applied(1, &[]), planned(2, "Interval")];
    insta::assert_snapshot!(table(&[
        case("no drift", json!({}), vec![applied(1, &[]), clean(2, "Interval")]),
        case("drift, manual", json!({}), drifted()),
        case("drift, auto", json!({ "approvePlan": "auto" }), drifted()),
        case("drift, auto, being corrected", json!({ "approvePlan": "auto" }),
            [drifted(), vec![going(3, "Apply", "Applying", json!({}))]].concat()),
        case("drift, disable", json!({ "approvePlan": "disable" }), drifted()),
        case("drift detection disabled", json!({ "disableDriftDetection": true }), drifted()),
        case("nothing relevant", json!({}), vec![applied(1, &[])])
            .moved(SourceFact::Found { revision: "main@sha1:bbbb".into(), digest: "sha256:cc".into() })
            .with(json!({ "status": { "lastAttemptedRevision": REVISION, "lastPlannedRevision": REVISION } })),
    ]), @r#"
    no drift:
      Ready True NoDrift: No drift: main@sha1:aaaaaaaaaaaaaaaa
      Apply True TerraformAppliedSucceed: Applied successfully
      Plan False TerraformPlannedNoChanges: Plan no changes
    drift, manual:
      Reconciling True ProgressingWithRetry: Drift detected: set approvePlan: "ID" to approve this plan.
      Ready False DriftDetected: Drift detected: set approvePlan: "ID" to approve this plan.\n~ it
      Apply True TerraformAppliedSucceed: Applied successfully
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
      event Warning DriftDetected: Drift detected.\n~ it
    drift, auto:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready False DriftDetected: ~ it
      Apply True TerraformAppliedSucceed: Applied successfully
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
      event Warning DriftDetected: Drift detected.\n~ it
    drift, auto, being corrected:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Applying
      Apply Unknown Progressing: Apply started
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
    drift, disable:
      Reconciling True ProgressingWithRetry: ~ it
      Ready False DriftDetected: ~ it
      Apply True TerraformAppliedSucceed: Applied successfully
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
      event Warning DriftDetected: Drift detected.\n~ it
    drift detection disabled:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown TerraformPlannedWithChanges: Plan generated: set approvePlan: "ID" to approve this plan.
      Apply True TerraformAppliedSucceed: Applied successfully
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
      event Normal TerraformPlanSucceed: Planned.\nPlan generated: set approvePlan: "ID" to approve this plan.
    nothing relevant:
      Ready True TerraformAppliedSucceed: Applied successfully: main@sha1:aaaaaaaaaaaaaaaa
      Apply True TerraformAppliedSucceed: Applied successfully
      Plan True TerraformPlannedWithChanges: Plan generated
      event Normal TerraformAppliedSucceed: Applied successfully
      event Normal NoRelevantChange: main@sha1:bbbb: no input of net has changed; no run
    "#);
}
