//! From the first apply to the last destroy: intervals, drift, suspension, requests, deletion.

use crate::looks::{condition, number, pending};
use crate::world::World;
use serde_json::json;

/// A stack whose plan depends on a file outside: made or removed, it is what somebody did behind the stack's back.
const DRIFTING: &str = r#"
variable "marker" {}
resource "terraform_data" "it" { input = fileexists(var.marker) ? "there" : "missing" }
output "it" { value = terraform_data.it.output }
"#;
const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

fn marker(world: &World) -> serde_json::Value {
    json!([{ "name": "marker", "value": world.path("marker") }])
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_corrected_in_auto_and_looked_for_at_the_interval() {
    let world = World::new().await;
    let revision = world.commit("a", &[("main.tf", DRIFTING)]).await;
    world
        .stack("net", json!({ "interval": "2s", "vars": marker(&world) }))
        .await;
    world
        .ready("net", &format!("True NoDrift No drift: {revision}"))
        .await;
    std::fs::write(world.path("marker"), "").unwrap();
    world.event("net", "Warning DriftDetected").await;
    let corrected = world
        .until("net", "drift corrected", |stack| {
            stack
                .status
                .as_ref()
                .is_some_and(|s| s.last_applied_by_drift_detection_at.is_some())
        })
        .await;
    assert!(corrected.status.unwrap().last_drift_detected_at.is_some());
    world.ready("net", "True NoDrift").await;
    let history = world.history("net").await;
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
    let world = World::new().await;
    world.commit("a", &[("main.tf", DRIFTING)]).await;
    world.stack("net", json!({ "vars": marker(&world) })).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    world
        .edit("net", json!({ "approvePlan": "", "interval": "2s" }))
        .await;
    world.ready("net", "True NoDrift").await;
    std::fs::write(world.path("marker"), "").unwrap();
    let drifted = world.ready("net", "False DriftDetected").await;
    let id = pending(&drifted);
    assert!(
        !id.is_empty() && condition(&drifted, "Ready").contains(&id),
        "{}",
        condition(&drifted, "Ready")
    );
    assert_eq!(
        drifted.status.unwrap().reconciliation_failures,
        0,
        "drift is no failure"
    );
    // It goes away by itself, and comes back.
    std::fs::remove_file(world.path("marker")).unwrap();
    assert_eq!(pending(&world.ready("net", "True NoDrift").await), "");
    std::fs::write(world.path("marker"), "").unwrap();
    world.ready("net", "False DriftDetected").await;
    world
        .edit("net", json!({ "approvePlan": id, "interval": "1h" }))
        .await;
    world.ready("net", "True TerraformAppliedSucceed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_stack_and_a_restarted_controller_run_nothing() {
    let mut world = World::new().await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("net", json!({ "approvePlan": "" })).await;
    world.stack("other", json!({})).await;
    world.ready("net", "Unknown TerraformPlannedWithChanges").await;
    world.ready("other", "True TerraformAppliedSucceed").await;
    let before = (world.history("net").await, world.history("other").await);
    world.stop().await;
    world.start(4).await;
    // A pass of the new controller over both, for a field of no effect.
    world.edit("net", json!({ "retryInterval": "9s" })).await;
    world.ready("net", "Unknown TerraformPlannedWithChanges").await;
    world.edit("other", json!({ "retryInterval": "9s" })).await;
    world.ready("other", "True TerraformAppliedSucceed").await;
    assert_eq!((world.history("net").await, world.history("other").await), before);

    world
        .edit("net", json!({ "suspend": true, "approvePlan": "auto" }))
        .await;
    world.request("net", "then").await;
    world
        .until("net", "handled", |s| {
            s.status
                .as_ref()
                .is_some_and(|s| s.last_handled_reconcile_at == "then")
        })
        .await;
    assert_eq!(world.history("net").await, before.0);
    world.edit("net", json!({ "suspend": false })).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    // A request on a stack that is as wanted looks for drift, and is handled when that run has ended.
    world.request("other", "look").await;
    let handled = world
        .until("other", "handled", |s| {
            s.status
                .as_ref()
                .is_some_and(|s| s.last_handled_reconcile_at == "look")
        })
        .await;
    assert!(
        condition(&handled, "Ready").starts_with("True NoDrift"),
        "{}",
        condition(&handled, "Ready")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_the_stack_does_not_read_runs_nothing() {
    let world = World::new().await;
    world
        .commit("a", &[("net/main.tf", SIMPLE), ("readme", "1")])
        .await;
    world.stack("net", json!({ "path": "net" })).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    let revision = world
        .commit("b", &[("net/main.tf", SIMPLE), ("readme", "2")])
        .await;
    let moved = world
        .until("net", "moved on", |s| {
            s.status
                .as_ref()
                .is_some_and(|s| s.last_attempted_revision == revision)
        })
        .await;
    assert_eq!(moved.status.unwrap().last_planned_revision, revision);
    world.event("net", "Normal NoRelevantChange").await;
    assert_eq!(world.runs("net").await.len(), 1);
    world
        .commit("c", &[("net/main.tf", &SIMPLE.replace('x', "y"))])
        .await;
    world
        .run("net", "a second run", |run| {
            run.spec.trigger.as_str() == "Revision" && number(run) == 2
        })
        .await;
    world
        .ready(
            "net",
            "True TerraformAppliedSucceed Applied successfully: main@sha1:cccc",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn destroy_and_deletion() {
    let world = World::new().await;
    let revision = world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("net", json!({})).await;
    world
        .stack("kept", json!({ "writeOutputsToSecret": { "name": "out" } }))
        .await;
    world
        .stack(
            "gone",
            json!({ "destroyResourcesOnDeletion": true, "approvePlan": "" }),
        )
        .await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    world.edit("net", json!({ "destroy": true })).await;
    world
        .ready(
            "net",
            &format!("True TerraformAppliedSucceed Destroy applied successfully: {revision}"),
        )
        .await;
    insta::assert_snapshot!(world.history("net").await, @"
    1 PlanAndApply Revision 1: Succeeded TerraformAppliedSucceed +1 ~0 -0
    2 PlanAndApply destroy Spec 1: Succeeded TerraformAppliedSucceed +0 ~0 -1
    ");

    let id = pending(&world.ready("gone", "Unknown TerraformPlannedWithChanges").await);
    world.edit("gone", json!({ "approvePlan": id })).await;
    world.ready("gone", "True TerraformAppliedSucceed").await;
    world.edit("gone", json!({ "suspend": true })).await;
    world.delete("gone").await;
    world
        .until("gone", "to wait", |s| {
            condition(s, "Ready").contains("Deletion waits")
        })
        .await;
    world.event("gone", "DeletionSuspended").await;
    world.edit("gone", json!({ "suspend": false })).await;
    world.gone("gone").await;
    let state = world.state("gone").await;
    assert!(
        state.contains("\"resources\": []") || state.contains("\"resources\":[]"),
        "{state}"
    );

    world.ready("kept", "True TerraformAppliedSucceed").await;
    let sources: kube::Api<sluice_api::source::GitRepository> = world.api();
    sources
        .delete(crate::world::SOURCE, &kube::api::DeleteParams::default())
        .await
        .unwrap();
    world.delete("kept").await;
    world.gone("kept").await;
    assert!(
        world.state("kept").await.contains("terraform_data"),
        "the resources were to stay"
    );
}
