//! Runners that are killed, controllers that restart, places that are few.

use crate::looks::{appears, condition};
use crate::world::World;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use sluice_api::run::TerraformRun;

/// Its apply says that it has begun, and waits to be let go on.
const SLOW: &str = r#"
variable "marker" {}
resource "terraform_data" "slow" {
  provisioner "local-exec" { command = "echo x >> ${var.marker}; until [ -e ${var.marker}.go ]; do sleep 0.05; done" }
}
"#;

fn spec(world: &World, name: &str) -> serde_json::Value {
    json!({ "vars": [{ "name": "marker", "value": world.path(name) }] })
}

fn applying(run: &TerraformRun) -> bool {
    run.status
        .as_ref()
        .is_some_and(|s| s.phase.as_str() == "Applying")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_runner_is_lost_and_followed_by_a_plan() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", SLOW)]).await;
    world.stack("net", spec(&world, "net")).await;
    appears(&world.path("net")).await;
    let run = world.run("net", "applying", applying).await;
    let process = run.status.unwrap().claim.unwrap().process;
    let id: i32 = process.rsplit_once(':').unwrap().1.parse().unwrap();
    kill_process(Pid::from_raw(id).unwrap(), Signal::KILL).unwrap();
    std::fs::write(world.path("net.go"), "").unwrap();
    world
        .run("net", "lost", |run| {
            run.status.as_ref().is_some_and(|s| s.phase.as_str() == "Lost")
        })
        .await;
    let done = world.ready("net", "True ").await;
    assert_eq!(
        std::fs::read_to_string(world.path("net")).unwrap(),
        "x\n",
        "it was applied once"
    );
    assert_eq!(done.status.unwrap().reconciliation_failures, 0);
    insta::assert_snapshot!(world.history("net").await, @"
    1 PlanAndApply Revision 1: Lost RunLost +1 ~0 -0
    2 PlanAndApply Retry 2: Succeeded TerraformPlannedNoChanges +0 ~0 -0
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_cannot_be_started_is_told_and_tried_again() {
    let mut world = World::without_controller().await;
    world.runner = Some("/nowhere/tf-runner".to_owned());
    world.start(1).await;
    world.commit("a", &[("main.tf", "")]).await;
    world.stack("net", json!({})).await;
    let failed = world
        .ready(
            "net",
            "False TFExecNewFailed cannot start the runner /nowhere/tf-runner",
        )
        .await;
    assert!(condition(&failed, "Reconciling").starts_with("True ProgressingWithRetry"));
    world.stop().await;
    world.runner = None;
    world.start(1).await;
    world.ready("net", "True TerraformPlannedNoChanges").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_controller_adopts_the_run_in_progress_and_its_place() {
    let mut world = World::without_controller().await;
    world.start(1).await;
    world.commit("a", &[("main.tf", SLOW)]).await;
    world.stack("net", spec(&world, "net")).await;
    appears(&world.path("net")).await;
    world.run("net", "applying", applying).await;
    world.stop().await;
    world.stack("other", spec(&world, "other")).await;
    world.start(1).await;
    world
        .until("other", "to wait for a place", |s| {
            condition(s, "Ready").contains("free place")
        })
        .await;
    assert!(
        world.runs("other").await.is_empty(),
        "there is one place, and it is taken"
    );
    std::fs::write(world.path("other.go"), "").unwrap();
    std::fs::write(world.path("net.go"), "").unwrap();
    world.ready("net", "True TerraformAppliedSucceed").await;
    world.ready("other", "True TerraformAppliedSucceed").await;
    assert_eq!(world.runs("net").await.len(), 1);
    assert_eq!(std::fs::read_to_string(world.path("net")).unwrap(), "x\n");
}
