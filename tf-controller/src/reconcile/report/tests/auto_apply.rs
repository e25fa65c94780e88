//! Plans that `autoApply` holds, drift by class, and the modes that withhold or force.

use super::*;

/// A plan with these effects.
fn effects(number: i64, action: &str, trigger: &str, effects: &Value) -> Value {
    let status = json!({ "hasChanges": true, "planId": id(), "humanPlan": "~ it", "effects": effects,
        "changeEntries": [{ "action": "delete", "address": "a.b" }] });
    run(number, json!({ "action": action, "trigger": trigger }), status)
}

#[test]
fn a_held_plan_reports_its_hold() {
    let auto = |policy: Value| json!({ "approvePlan": "auto", "autoApply": policy });
    let deletes = json!({ "deletes": 1, "types": ["a"] });
    let first = || vec![effects(1, "PlanAndApply", "Revision", &deletes)];
    let drift = || vec![applied(1, &[]), effects(2, "Plan", "Interval", &deletes)];
    insta::assert_snapshot!(table(&[
        case("held", auto(json!({ "hold": ["delete"] })), first()),
        case("not held", auto(json!({ "hold": ["replace"] })), first()),
        case("held, no record", auto(json!({})), vec![run(1, json!({}), json!({ "hasChanges": true, "planId": id() }))]),
        case("held, force", json!({ "force": true, "autoApply": { "maxChanges": 0 } }), first()),
        case("held drift", auto(json!({ "hold": ["delete"] })), drift()),
        case("held, approved", json!({ "approvePlan": id(), "autoApply": { "hold": ["delete"] } }), first()),
    ]), @r#"
    held:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown TerraformPlannedWithChanges: Plan generated: set approvePlan: "ID" to approve this plan. It is not applied automatically: 1 delete (autoApply.hold): a.b. Set approvePlan back afterwards.
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
      event Normal TerraformPlanSucceed: Planned.\nPlan generated: set approvePlan: "ID" to approve this plan. It is not applied automatically: 1 delete (autoApply.hold): a.b. Set approvePlan back afterwards.
    not held:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Initializing
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
    held, no record:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown TerraformPlannedWithChanges: Plan generated: set approvePlan: "ID" to approve this plan. It is not applied automatically: the effects of the plan are not recorded. Set approvePlan back afterwards.
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
      event Normal TerraformPlanSucceed: Planned.\nPlan generated: set approvePlan: "ID" to approve this plan. It is not applied automatically: the effects of the plan are not recorded. Set approvePlan back afterwards.
    held, force:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown TerraformPlannedWithChanges: Plan generated: set approvePlan: "ID" to approve this plan. It is not applied automatically: changes of 1 resources, more than 0 (autoApply.maxChanges). Set approvePlan back afterwards.
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
      event Normal TerraformPlanSucceed: Planned.\nPlan generated: set approvePlan: "ID" to approve this plan. It is not applied automatically: changes of 1 resources, more than 0 (autoApply.maxChanges). Set approvePlan back afterwards.
    held drift:
      Reconciling True ProgressingWithRetry: Drift detected (1 delete): set approvePlan: "ID" to approve this plan. It is not applied automatically: 1 delete (autoApply.hold): a.b. Set approvePlan back afterwards.
      Ready False DriftDetected: Drift detected (1 delete): set approvePlan: "ID" to approve this plan. It is not applied automatically: 1 delete (autoApply.hold): a.b. Set approvePlan back afterwards.\n~ it
      Apply True TerraformAppliedSucceed: Applied successfully
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
      event Warning DriftDetected: Drift detected (1 delete).\n~ it
    held, approved:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Initializing
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
    "#);
}

#[test]
fn drift_is_reported_by_class() {
    let drift = |effects_: Value| vec![applied(1, &[]), effects(2, "Plan", "Interval", &effects_)];
    insta::assert_snapshot!(table(&[
        case("manual", json!({}), drift(json!({ "updates": 2, "replaces": 1, "types": ["a"] }))),
        case("auto", json!({ "approvePlan": "auto" }), drift(json!({ "deletes": 1, "updates": 1, "ignored": 1 }))),
        case("disabled", json!({ "approvePlan": "disable", "force": true }), drift(json!({ "outputs": 1 }))),
    ]), @r#"
    manual:
      Reconciling True ProgressingWithRetry: Drift detected (1 replace, 2 in-place): set approvePlan: "ID" to approve this plan.
      Ready False DriftDetected: Drift detected (1 replace, 2 in-place): set approvePlan: "ID" to approve this plan.\n~ it
      Apply True TerraformAppliedSucceed: Applied successfully
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
      event Warning DriftDetected: Drift detected (1 replace, 2 in-place).\n~ it
    auto:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready False DriftDetected: Drift detected (1 delete, 1 in-place; 1 of them ignored)\n~ it
      Apply True TerraformAppliedSucceed: Applied successfully
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
      event Warning DriftDetected: Drift detected (1 delete, 1 in-place; 1 of them ignored).\n~ it
    disabled:
      Reconciling True ProgressingWithRetry: Drift detected (1 output-only)
      Ready False DriftDetected: Drift detected (1 output-only)\n~ it
      Apply True TerraformAppliedSucceed: Applied successfully
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
      event Warning DriftDetected: Drift detected (1 output-only).\n~ it
    "#);
}

#[test]
fn force_overrides_approval_and_plan_only_but_not_a_held_destroy() {
    let first = || vec![planned(1, "Revision")];
    let destroy = || {
        vec![run(
            1,
            json!({ "destroy": true, "action": "Plan" }),
            json!({ "hasChanges": true, "planId": id() }),
        )]
    };
    insta::assert_snapshot!(table(&[
        case("force", json!({ "force": true }), first()),
        case("force, plan only", json!({ "force": true, "planOnly": true }), first()),
        case("force, disabled", json!({ "force": true, "approvePlan": "disable" }), first()),
        case("force, destroy", json!({ "force": true, "destroy": true }), destroy()),
        case("force, plan only, destroy", json!({ "force": true, "planOnly": true, "destroy": true }), destroy()),
    ]), @r"
    force:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Initializing
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
    force, plan only:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Initializing
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
    force, disabled:
      Reconciling True ProgressingWithRetry: ~ it
      Ready False DriftDetected: ~ it
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
      event Warning DriftDetected: Drift detected.\n~ it
    force, destroy:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Initializing
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
    force, plan only, destroy:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown TerraformPlannedWithChanges: Plan generated: This object is in the plan only mode.
      Plan True TerraformPlannedWithChanges: Plan generated
      a plan waits
      event Normal TerraformPlanSucceed: Planned.\nPlan generated: This object is in the plan only mode.
    ");
}
