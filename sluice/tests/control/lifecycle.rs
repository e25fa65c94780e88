//! From the first apply to the last destroy: intervals, drift, suspension, requests, deletion.

use serde_json::json;

use crate::environment::TestEnvironment;
use crate::observe::{condition, number, pending};

/// The plan depends on an external file: creating or removing it simulates drift.
const DRIFTING: &str = r#"
variable "marker" {}
resource "terraform_data" "it" { input = fileexists(var.marker) ? "there" : "missing" }
output "it" { value = terraform_data.it.output }
"#;
const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

fn marker(env: &TestEnvironment) -> serde_json::Value {
    json!([{ "name": "marker", "value": env.path("marker") }])
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_corrected_in_auto_and_detected_at_the_interval() {
    let env = TestEnvironment::new().await;
    let revision = env.commit("a", &[("main.tf", DRIFTING)]).await;
    env.stack("net", json!({ "interval": "2s", "vars": marker(&env) }))
        .await;
    env.wait_ready("net", &format!("True NoDrift No drift: {revision}"))
        .await;
    std::fs::write(env.path("marker"), "").unwrap();
    env.wait_event("net", "Warning DriftDetected").await;
    let corrected = env
        .wait_for("net", "drift corrected", |stack| {
            stack
                .status
                .as_ref()
                .is_some_and(|s| s.last_applied_by_drift_detection_at.is_some())
        })
        .await;
    assert!(corrected.status.unwrap().last_drift_detected_at.is_some());
    env.wait_ready("net", "True NoDrift").await;
    let history = env.history("net").await;
    assert!(
        history.starts_with(
            "1 PlanAndApply Revision 1: Succeeded TerraformAppliedSucceed +1 ~0 -0\n2 Plan Interval 1: "
        ),
        "{history}"
    );
    assert!(
        history.contains("Apply Drift 1: Succeeded TerraformAppliedSucceed"),
        "{history}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_reported_with_a_plan_to_approve_in_manual() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", DRIFTING)]).await;
    env.stack("net", json!({ "vars": marker(&env) })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.edit("net", json!({ "approvePlan": "", "interval": "2s" }))
        .await;
    env.wait_ready("net", "True NoDrift").await;
    std::fs::write(env.path("marker"), "").unwrap();
    let drifted = env.wait_ready("net", "False DriftDetected").await;
    let id = pending(&drifted);
    assert!(
        !id.is_empty() && condition(&drifted, "Ready").contains(&id),
        "{}",
        condition(&drifted, "Ready")
    );
    assert_eq!(
        drifted.status.unwrap().reconciliation_failures,
        0,
        "drift is not a failure"
    );
    // The drift disappears by itself and occurs again.
    std::fs::remove_file(env.path("marker")).unwrap();
    assert_eq!(pending(&env.wait_ready("net", "True NoDrift").await), "");
    std::fs::write(env.path("marker"), "").unwrap();
    env.wait_ready("net", "False DriftDetected").await;
    env.edit("net", json!({ "approvePlan": id, "interval": "1h" }))
        .await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_stack_and_a_restarted_controller_run_nothing() {
    let mut env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({ "approvePlan": "" })).await;
    env.stack("other", json!({})).await;
    env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await;
    env.wait_ready("other", "True TerraformAppliedSucceed").await;
    let before = (env.history("net").await, env.history("other").await);
    env.stop().await;
    env.start(4).await;
    // The new controller reconciles both because of a field without effect.
    env.edit("net", json!({ "retryInterval": "9s" })).await;
    env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await;
    env.edit("other", json!({ "retryInterval": "9s" })).await;
    env.wait_ready("other", "True TerraformAppliedSucceed").await;
    assert_eq!((env.history("net").await, env.history("other").await), before);

    env.edit("net", json!({ "suspend": true, "approvePlan": "auto" }))
        .await;
    env.request("net", "then").await;
    env.wait_for("net", "handled", |s| {
        s.status
            .as_ref()
            .is_some_and(|s| s.last_handled_reconcile_at == "then")
    })
    .await;
    assert_eq!(env.history("net").await, before.0);
    env.edit("net", json!({ "suspend": false })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    // A request on a stack in sync runs drift detection, and is handled when that run has ended.
    env.request("other", "drift-detection").await;
    let handled = env
        .wait_for("other", "handled", |s| {
            s.status
                .as_ref()
                .is_some_and(|s| s.last_handled_reconcile_at == "drift-detection")
        })
        .await;
    assert!(
        condition(&handled, "Ready").starts_with("True NoDrift"),
        "{}",
        condition(&handled, "Ready")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_does_not_touch_the_inputs_runs_nothing() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("net/main.tf", SIMPLE), ("readme", "1")]).await;
    env.stack("net", json!({ "path": "net" })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let revision = env.commit("b", &[("net/main.tf", SIMPLE), ("readme", "2")]).await;
    let moved = env
        .wait_for("net", "moved on", |s| {
            s.status
                .as_ref()
                .is_some_and(|s| s.last_attempted_revision == revision)
        })
        .await;
    assert_eq!(moved.status.unwrap().last_planned_revision, revision);
    env.wait_event("net", "Normal NoRelevantChange").await;
    assert_eq!(env.runs("net").await.len(), 1);
    env.commit("c", &[("net/main.tf", &SIMPLE.replace('x', "y"))])
        .await;
    env.wait_run("net", "a second run", |run| {
        run.spec.trigger.as_str() == "Revision" && number(run) == 2
    })
    .await;
    env.wait_ready(
        "net",
        "True TerraformAppliedSucceed Applied successfully: main@sha1:cccc",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroy_by_field_or_deletion_destroys_and_a_plain_deletion_keeps_the_resources() {
    let env = TestEnvironment::new().await;
    let revision = env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({})).await;
    env.stack("kept", json!({ "writeOutputsToSecret": { "name": "out" } }))
        .await;
    env.stack(
        "gone",
        json!({ "destroyResourcesOnDeletion": true, "approvePlan": "" }),
    )
    .await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.edit("net", json!({ "destroy": true })).await;
    env.wait_ready(
        "net",
        &format!("True TerraformAppliedSucceed Destroy applied successfully: {revision}"),
    )
    .await;
    insta::assert_snapshot!(env.history("net").await, @"
    1 PlanAndApply Revision 1: Succeeded TerraformAppliedSucceed +1 ~0 -0
    2 PlanAndApply destroy Spec 1: Succeeded TerraformAppliedSucceed +0 ~0 -1
    ");

    let id = pending(
        &env.wait_ready("gone", "Unknown TerraformPlannedWithChanges")
            .await,
    );
    env.edit("gone", json!({ "approvePlan": id })).await;
    env.wait_ready("gone", "True TerraformAppliedSucceed").await;
    env.edit("gone", json!({ "suspend": true })).await;
    env.delete("gone").await;
    env.wait_for("gone", "to wait", |s| {
        condition(s, "Ready").contains("Deletion waits")
    })
    .await;
    env.wait_event("gone", "DeletionSuspended").await;
    env.edit("gone", json!({ "suspend": false })).await;
    env.wait_gone("gone").await;
    let state = env.state("gone").await;
    assert!(
        state.contains("\"resources\": []") || state.contains("\"resources\":[]"),
        "{state}"
    );

    env.wait_ready("kept", "True TerraformAppliedSucceed").await;
    let sources: kube::Api<sluice_api::source::GitRepository> = env.api();
    sources
        .delete(crate::environment::SOURCE, &kube::api::DeleteParams::default())
        .await
        .unwrap();
    env.delete("kept").await;
    env.wait_gone("kept").await;
    assert!(
        env.state("kept").await.contains("terraform_data"),
        "the resources had to stay"
    );
}
