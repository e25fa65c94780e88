//! Killed runners, restarted controllers, and a small number of run slots.

use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use sluice_api::run::TerraformRun;
use sluice_tf_controller::executor::ProcessExecutor;

use crate::environment::{TIMEOUT, TestEnvironment};
use crate::fake_executor::EvictedApplies;
use crate::observe::{condition, pending as pending_plan, wait_for_file};

/// Its apply reports that it has started, and waits for a file.
pub(crate) const SLOW: &str = r#"
variable "marker" {}
resource "terraform_data" "slow" {
  provisioner "local-exec" { command = "echo x >> ${var.marker}; until [ -e ${var.marker}.go ]; do sleep 0.05; done" }
}
"#;

pub(crate) fn spec(env: &TestEnvironment, name: &str) -> serde_json::Value {
    json!({ "vars": [{ "name": "marker", "value": env.path(name) }] })
}

pub(crate) fn is_applying(run: &TerraformRun) -> bool {
    run.status
        .as_ref()
        .is_some_and(|s| s.phase.as_str() == "Applying")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_runner_is_lost_and_followed_by_a_plan() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", SLOW)]).await;
    env.stack("net", spec(&env, "net")).await;
    wait_for_file(&env.path("net")).await;
    let run = env.wait_run("net", "applying", is_applying).await;
    let process = run.status.unwrap().claim.unwrap().process;
    let id: i32 = process.rsplit_once(':').unwrap().1.parse().unwrap();
    kill_process(Pid::from_raw(id).unwrap(), Signal::KILL).unwrap();
    std::fs::write(env.path("net.go"), "").unwrap();
    env.wait_run("net", "lost", |run| {
        run.status.as_ref().is_some_and(|s| s.phase.as_str() == "Lost")
    })
    .await;
    let done = env.wait_ready("net", "True ").await;
    assert_eq!(
        std::fs::read_to_string(env.path("net")).unwrap(),
        "x\n",
        "it was applied once"
    );
    assert_eq!(done.status.unwrap().reconciliation_failures, 0);
    insta::assert_snapshot!(env.history("net").await, @"
    1 PlanAndApply Revision 1: Lost RunLost +1 ~0 -0
    2 PlanAndApply Retry 2: Succeeded TerraformPlannedNoChanges +0 ~0 -0
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_cannot_be_started_is_reported_and_retried() {
    let mut env = TestEnvironment::without_controller().await;
    env.runner = Some(vec!["/nowhere/tf-runner".to_owned()]);
    env.start(1).await;
    env.commit("a", &[("main.tf", "")]).await;
    env.stack("net", json!({})).await;
    let failed = env
        .wait_ready(
            "net",
            "False TFExecNewFailed cannot start the runner /nowhere/tf-runner",
        )
        .await;
    assert!(condition(&failed, "Reconciling").starts_with("True ProgressingWithRetry"));
    env.stop().await;
    env.runner = None;
    env.start(1).await;
    env.wait_ready("net", "True TerraformPlannedNoChanges").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_controller_adopts_the_active_run_and_its_slot() {
    let mut env = TestEnvironment::without_controller().await;
    env.start(1).await;
    env.commit("a", &[("main.tf", SLOW)]).await;
    env.stack("net", spec(&env, "net")).await;
    wait_for_file(&env.path("net")).await;
    env.wait_run("net", "applying", is_applying).await;
    env.stop().await;
    env.stack("other", spec(&env, "other")).await;
    env.start(1).await;
    env.wait_for("other", "waiting for a slot", |s| {
        condition(s, "Ready")
            .ends_with("free run slot: position 1 in the queue; all run slots are occupied (--concurrent=1)")
    })
    .await;
    assert!(env.runs("other").await.is_empty(), "the only slot is taken");
    std::fs::write(env.path("other.go"), "").unwrap();
    std::fs::write(env.path("net.go"), "").unwrap();
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.wait_ready("other", "True TerraformAppliedSucceed").await;
    assert_eq!(env.runs("net").await.len(), 1);
    assert_eq!(std::fs::read_to_string(env.path("net")).unwrap(), "x\n");
}

/// Returns a controller that stopped during an apply, and the executor of that run.
async fn stop_during_apply() -> (TestEnvironment, Arc<ProcessExecutor>) {
    let mut env = TestEnvironment::without_controller().await;
    let (executor, ended) = env.executor();
    env.start_with(Arc::clone(&executor), ended, 1).await;
    let before = format!(
        "resource \"terraform_data\" \"before\" {{}}\n{}",
        SLOW.replace("\"slow\" {", "\"slow\" {\n  input = terraform_data.before.id")
    );
    env.commit("a", &[("main.tf", &before)]).await;
    env.stack("net", spec(&env, "net")).await;
    wait_for_file(&env.path("net")).await;
    env.stop().await;
    (env, executor)
}

/// Returns the end of the only run, and the resources in its state.
async fn final_state(env: &TestEnvironment) -> (String, Vec<String>) {
    let run = env.runs("net").await.pop().unwrap();
    let state: serde_json::Value = serde_json::from_str(&env.state("net").await).unwrap();
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
    let (env, executor) = stop_during_apply().await;
    assert!(!executor.is_idle(), "a stopped controller does not end its runs");
    std::fs::write(env.path("net.go"), "").unwrap();
    let finished = executor.finish(TIMEOUT, pending());
    tokio::time::timeout(TIMEOUT, finished).await.unwrap();
    assert_eq!(
        final_state(&env).await,
        (
            "Succeeded TerraformAppliedSucceed".to_owned(),
            vec!["before good".to_owned(), "slow good".to_owned()]
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_exceed_the_grace_period_or_a_second_signal_are_interrupted_and_write_their_state() {
    let expected = (
        "Failed TFExecApplyFailed".to_owned(),
        vec!["before good".to_owned(), "slow tainted".to_owned()],
    );
    let (env, executor) = stop_during_apply().await;
    let finished = executor.finish(Duration::ZERO, pending());
    tokio::time::timeout(TIMEOUT, finished).await.unwrap();
    assert_eq!(final_state(&env).await, expected);
    let (env, executor) = stop_during_apply().await;
    let finished = executor.finish(TIMEOUT * 2, ready(()));
    tokio::time::timeout(TIMEOUT, finished).await.unwrap();
    assert_eq!(final_state(&env).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_ends_ends_a_download_at_once_and_the_next_controller_repeats_the_run() {
    let mut env = TestEnvironment::without_controller().await;
    let (executor, ended) = env.executor();
    env.start_with(Arc::clone(&executor), ended, 1).await;
    // The controller reads the inputs, and the runner gets nothing: it would try again for three and a half minutes.
    env.artifacts.limit_downloads("a.tar.gz", Some(1));
    env.commit("a", &[("main.tf", "resource \"terraform_data\" \"it\" {}\n")])
        .await;
    env.stack("net", json!({})).await;
    env.wait_run("net", "without its artifact", |run| {
        let message = run.status.as_ref().map(|status| status.message.as_str());
        message.is_some_and(|message| message.starts_with("waiting for the artifact"))
    })
    .await;
    env.stop().await;
    let finished = executor.finish(TIMEOUT * 2, pending());
    let finished = tokio::time::timeout(TIMEOUT / 2, finished).await;
    finished.expect("a run that downloads ends at once");
    env.artifacts.limit_downloads("a.tar.gz", None);
    env.start(1).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    insta::assert_snapshot!(env.history("net").await, @"
    1 PlanAndApply Revision 1: Superseded Interrupted
    2 PlanAndApply Revision 1: Succeeded TerraformAppliedSucceed +1 ~0 -0
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_plan_survives_five_evictions_in_a_row_before_its_apply_begins() {
    let mut env = TestEnvironment::without_controller().await;
    let (executor, ended) = env.executor();
    env.start_with(Arc::new(EvictedApplies::new(executor, 6)), ended, 4)
        .await;
    env.commit("a", &[("main.tf", "resource \"terraform_data\" \"it\" {}\n")])
        .await;
    env.stack("net", json!({ "approvePlan": "" })).await;
    let planned = env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await;
    env.edit("net", json!({ "approvePlan": pending_plan(&planned) }))
        .await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    // The sixth eviction in a row is a failure, and a new plan with the same effect is approved already.
    insta::assert_snapshot!(env.history("net").await, @"
    1 Plan Revision 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0
    2 Apply Approval 1: Superseded Interrupted
    3 Apply Approval 1: Superseded Interrupted
    4 Apply Approval 1: Superseded Interrupted
    5 Apply Approval 1: Superseded Interrupted
    6 Apply Approval 1: Superseded Interrupted
    7 Apply Approval 1: Failed Evicted
    8 Plan Retry 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0
    9 Apply Approval 1: Succeeded TerraformAppliedSucceed
    ");
    let runs = env.runs("net").await;
    let counts: Vec<_> = runs.iter().map(|run| run.spec.interruptions).collect();
    assert_eq!(counts, [0, 0, 1, 2, 3, 4, 5, 5, 0]);
}
