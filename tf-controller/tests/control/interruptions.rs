//! Runners that are killed, controllers that restart, places that are few.

use crate::looks::{appears, condition};
use crate::world::{DEADLINE, World};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use sluice_api::run::TerraformRun;
use sluice_tf_controller::executor::ProcessExecutor;
use std::{
    future::{pending, ready},
    sync::Arc,
    time::Duration,
};

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
    world.runner = Some(vec!["/nowhere/tf-runner".to_owned()]);
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

/// A controller that stopped while its run applies, and the place of that run.
async fn stopped_while_applying() -> (World, Arc<ProcessExecutor>) {
    let mut world = World::without_controller().await;
    let (executor, ended) = world.executor();
    world.start_with(Arc::clone(&executor), ended, 1).await;
    let before = format!(
        "resource \"terraform_data\" \"before\" {{}}\n{}",
        SLOW.replace("\"slow\" {", "\"slow\" {\n  input = terraform_data.before.id")
    );
    world.commit("a", &[("main.tf", &before)]).await;
    world.stack("net", spec(&world, "net")).await;
    appears(&world.path("net")).await;
    world.stop().await;
    (world, executor)
}

/// The end of the only run, and what its state holds.
async fn left(world: &World) -> (String, Vec<String>) {
    let run = world.runs("net").await.pop().unwrap();
    let state: serde_json::Value = serde_json::from_str(&world.state("net").await).unwrap();
    let resources = state["resources"].as_array().unwrap();
    let name = |resource: &serde_json::Value| {
        let instance = &resource["instances"][0];
        let status = instance["status"].as_str().unwrap_or("good");
        format!("{} {status}", resource["name"].as_str().unwrap())
    };
    let status = run.status.unwrap();
    let end = format!("{} {}", status.phase.as_str(), status.reason);
    (end, resources.iter().map(name).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_ends_lets_its_runs_finish() {
    let (world, executor) = stopped_while_applying().await;
    assert!(!executor.is_idle(), "a stopped controller leaves its runs alone");
    std::fs::write(world.path("net.go"), "").unwrap();
    let finished = executor.finish(DEADLINE, pending());
    tokio::time::timeout(DEADLINE, finished).await.unwrap();
    assert_eq!(
        left(&world).await,
        (
            "Succeeded TerraformAppliedSucceed".to_owned(),
            vec!["before good".to_owned(), "slow good".to_owned()]
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_do_not_finish_in_time_or_while_somebody_hurries_are_interrupted_and_write_their_state() {
    let wanted = (
        "Failed TFExecApplyFailed".to_owned(),
        vec!["before good".to_owned(), "slow tainted".to_owned()],
    );
    let (world, executor) = stopped_while_applying().await;
    let finished = executor.finish(Duration::ZERO, pending());
    tokio::time::timeout(DEADLINE, finished).await.unwrap();
    assert_eq!(left(&world).await, wanted);
    let (world, executor) = stopped_while_applying().await;
    let finished = executor.finish(DEADLINE * 2, ready(()));
    tokio::time::timeout(DEADLINE, finished).await.unwrap();
    assert_eq!(left(&world).await, wanted);
}
