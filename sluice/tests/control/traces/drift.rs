//! Drift.

use serde_json::json;

use super::{DRIFTING, STACK, Traced};
use crate::observe::pending;

/// The first apply in auto of [`DRIFTING`] at revision a.
const FIRST_APPLY: &str = r"
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Applied successfully: revision a
          - Reconciling
          + Apply True TerraformAppliedSucceed: Applied successfully
          + Plan True TerraformPlannedWithChanges: Plan generated
";

/// Creates an applied stack in auto, whose next drift detection finds drift.
async fn create_drift(spec: serde_json::Value) -> Traced {
    let traced = Traced::new().await;
    traced.env.commit("a", &[("main.tf", DRIFTING)]).await;
    let mut full_spec = json!({ "vars": [{ "name": "marker", "value": traced.env.path("marker") }] });
    full_spec
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    traced.env.stack(STACK, full_spec).await;
    traced.env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    traced
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_in_auto() {
    let traced = create_drift(json!({})).await;
    std::fs::write(traced.env.path("marker"), "").unwrap();
    let corrected = traced.request("drift-detection").await;
    let status = corrected.status.unwrap();
    assert!(status.last_drift_detected_at.is_some() && status.last_applied_by_drift_detection_at.is_some());
    traced
        .assert_trace(&format!(
            r"{FIRST_APPLY}
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        # One plan tells the drift and corrects it.
        Ready False DriftDetected: Drift detected (1 in-place) …
        Ready Unknown Progressing: Initializing
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Applied successfully: revision a
          - Reconciling
          + Apply True TerraformAppliedSucceed: Applied successfully
"
        ))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_in_manual_disappears_or_is_approved() {
    let traced = create_drift(json!({})).await;
    let env = &traced.env;
    env.edit(STACK, json!({ "approvePlan": "" })).await;
    std::fs::write(env.path("marker"), "").unwrap();
    let found = traced.request("drift-detection").await;
    assert_eq!(found.status.unwrap().reconciliation_failures, 0);
    std::fs::remove_file(env.path("marker")).unwrap();
    traced.request("again").await;
    std::fs::write(env.path("marker"), "").unwrap();
    let found = traced.request("and again").await;
    env.edit(STACK, json!({ "approvePlan": pending(&found) })).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    traced
        .assert_trace(&format!(
            r#"{FIRST_APPLY}
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        # tofu-controller has no plan to approve here, and comes back as after a failure.
        Ready False DriftDetected: Drift detected (1 in-place): set approvePlan: "the id at a" to approve this plan. …
          + Reconciling True ProgressingWithRetry: Drift detected (1 in-place): set approvePlan: "the id at a" to approve this plan.
        # It went away by itself.
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready True NoDrift: No drift: revision a
          - Reconciling
          + Plan False TerraformPlannedNoChanges: Plan no changes
        # And came again.
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready False DriftDetected: Drift detected (1 in-place): set approvePlan: "the id at a" to approve this plan. …
          + Reconciling True ProgressingWithRetry: Drift detected (1 in-place): set approvePlan: "the id at a" to approve this plan.
          + Plan True TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Applied successfully: revision a
          - Reconciling
          + Apply True TerraformAppliedSucceed: Applied successfully
"#
        ))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_that_is_only_reported() {
    let traced = create_drift(json!({})).await;
    let env = &traced.env;
    env.edit(STACK, json!({ "approvePlan": "disable", "force": true }))
        .await;
    traced.request("drift-detection").await;
    std::fs::write(env.path("marker"), "").unwrap();
    traced.request("again").await;
    assert!(env.state(STACK).await.contains("missing"), "it was not applied");
    traced
        .assert_trace(&format!(
            r"{FIRST_APPLY}
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready True NoDrift: No drift: revision a
          - Reconciling
          + Plan False TerraformPlannedNoChanges: Plan no changes
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready False DriftDetected: Drift detected (1 in-place) …
          + Reconciling True ProgressingWithRetry: Drift detected (1 in-place)
          + Plan True TerraformPlannedWithChanges: Plan generated
"
        ))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_drift_detection_no_difference_is_drift() {
    let traced = create_drift(json!({ "disableDriftDetection": true })).await;
    traced.request("drift-detection").await;
    std::fs::write(traced.env.path("marker"), "").unwrap();
    traced.request("again").await;
    traced
        .assert_trace(&format!(
            r"{FIRST_APPLY}
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready True TerraformPlannedNoChanges: Plan no changes: revision a
          - Reconciling
          + Plan False TerraformPlannedNoChanges: Plan no changes
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready Unknown Progressing: Initializing
          + Plan True TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Applied successfully: revision a
          - Reconciling
          + Apply True TerraformAppliedSucceed: Applied successfully
"
        ))
        .await;
}
