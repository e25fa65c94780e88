//! Real resources of a provider that is slow, fails, crashes and hangs, and that somebody changes by hand.

use crate::looks::{condition, pending};
use crate::world::World;
use serde_json::json;
use sluice_harness::trial::Trial;

/// Two resources, the second after the first.
const TWO: &str = r#"
resource "trial_thing" "first" {
  name    = "first"
  content = "one"
}
resource "trial_thing" "second" {
  name    = "second"
  content = trial_thing.first.id
}
"#;

async fn world(runs: u16) -> (World, Trial) {
    let trial = Trial::create().unwrap();
    let mut world = World::without_controller().await;
    let config = trial.cli_config().display().to_string();
    world.environment.insert("TF_CLI_CONFIG_FILE".to_owned(), config);
    world.start(runs).await;
    let code = format!("{}{TWO}", trial.module_head());
    world.commit("a", &[("main.tf", &code)]).await;
    (world, trial)
}

fn times(trial: &Trial, call: &str) -> usize {
    trial.calls().iter().filter(|made| *made == call).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_half_way_is_finished_and_nothing_is_made_twice() {
    let (world, trial) = world(1).await;
    let full = json!({ "steps": { "create second": { "fail": "quota exceeded" } } });
    trial.order(&full).unwrap();
    world.stack("net", json!({})).await;
    let failed = world.ready("net", "False TFExecApplyFailed").await;
    assert!(
        condition(&failed, "Ready").contains("quota exceeded"),
        "{}",
        condition(&failed, "Ready")
    );
    trial
        .order(&json!({ "steps": { "create second": { "crash": true } } }))
        .unwrap();
    world
        .until("net", "the provider's crash", |stack| {
            let ready = condition(stack, "Ready");
            ready.starts_with("False TFExecApplyFailed") && !ready.contains("quota exceeded")
        })
        .await;
    trial.order(&json!({})).unwrap();
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(trial.things().unwrap(), ["first", "second"]);
    assert_eq!(times(&trial, "create first"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_that_hangs_is_interrupted_at_its_deadline_and_what_it_made_is_known() {
    let (world, trial) = world(1).await;
    world.stack("net", json!({ "approvePlan": "" })).await;
    let planned = world
        .ready("net", "Unknown TerraformPlannedWithChanges Plan generated")
        .await;
    // The first resource is made, the second never ends.
    trial
        .order(&json!({ "steps": { "create second": { "hang": true } } }))
        .unwrap();
    let approval = json!({ "approvePlan": pending(&planned), "runDeadline": "15s" });
    world.edit("net", approval).await;
    let failed = world.ready("net", "False TFExecApplyFailed").await;
    assert!(
        condition(&failed, "Ready").contains("deadline"),
        "{}",
        condition(&failed, "Ready")
    );
    trial.order(&json!({})).unwrap();
    world.edit("net", json!({ "approvePlan": "auto" })).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(times(&trial, "create first"), 1);
    assert_eq!(trial.content("second").as_deref(), Some("first"));
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_corrected_in_auto_and_waits_for_an_approval_otherwise() {
    let (world, trial) = world(1).await;
    world.stack("net", json!({})).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    trial.drift("first", "by hand").unwrap();
    world.request("net", "1").await;
    world
        .run("net", "the drift's apply", |run| {
            run.spec.trigger.as_str() == "Drift"
        })
        .await;
    let applied = world.until("net", "corrected", |stack| {
        let status = stack.status.as_ref().unwrap();
        status.last_applied_by_drift_detection_at.is_some() && condition(stack, "Ready").starts_with("True")
    });
    applied.await;
    assert_eq!(trial.content("first").as_deref(), Some("one"));

    world.edit("net", json!({ "approvePlan": "" })).await;
    trial.lose("second").unwrap();
    world.request("net", "2").await;
    let drifted = world.ready("net", "False DriftDetected").await;
    assert_eq!(trial.things().unwrap(), ["first"]);
    world
        .edit("net", json!({ "approvePlan": pending(&drifted) }))
        .await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(trial.things().unwrap(), ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_create_survives_the_controller() {
    let (mut world, trial) = world(1).await;
    trial
        .order(&json!({ "steps": { "create": { "delayMs": 1500 } } }))
        .unwrap();
    world.stack("net", json!({})).await;
    world
        .run("net", "creating", |_| times(&trial, "create first") > 0)
        .await;
    world.stop().await;
    world.start(1).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(trial.things().unwrap(), ["first", "second"]);
    assert_eq!(
        (times(&trial, "create first"), times(&trial, "create second")),
        (1, 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_destroy_survives_the_controller() {
    let (mut world, trial) = world(1).await;
    world
        .stack("net", json!({ "destroyResourcesOnDeletion": true }))
        .await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    trial
        .order(&json!({ "steps": { "delete": { "delayMs": 1500 } } }))
        .unwrap();
    world.delete("net").await;
    world
        .run("net", "destroying", |_| times(&trial, "delete second") > 0)
        .await;
    world.stop().await;
    world.start(1).await;
    world.gone("net").await;
    assert_eq!(trial.things().unwrap(), Vec::<String>::new());
    assert_eq!(
        (times(&trial, "delete first"), times(&trial, "delete second")),
        (1, 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_of_the_environment_reaches_the_provider_and_without_one_it_has_none() {
    let (world, trial) = world(1).await;
    let order = json!({ "steps": { "create first": { "fail": "no such host: <{environment}>" } } });
    trial.order(&order).unwrap();
    let env = json!([{ "name": "TRIAL_TOKEN", "value": "vault.invalid" }]);
    let spec = json!({ "runnerPodTemplate": { "spec": { "env": env } }, "retryInterval": "1h" });
    world.stack("net", spec).await;
    let failed = world.ready("net", "False TFExecApplyFailed").await;
    let told = condition(&failed, "Ready");
    // By its name the variable is a secret: what the provider says of it is hidden, which shows that it has it.
    assert!(told.contains("no such host: <(sensitive)>"), "{told}");
    world.edit("net", json!({ "runnerPodTemplate": null })).await;
    let failed = world
        .until("net", "without a variable", |stack| {
            condition(stack, "Ready").contains("no such host: <>")
        })
        .await;
    assert!(condition(&failed, "Ready").starts_with("False TFExecApplyFailed"));
}
