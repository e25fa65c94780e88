//! Resources of a provider that is slow, fails, crashes and hangs, and manual changes of them.

use serde_json::json;
use sluice_api::run::Phase;
use sluice_harness::trial::TrialProvider;

use crate::environment::TestEnvironment;
use crate::observe::{condition, pending};

/// Two resources; the second depends on the first.
const TWO_RESOURCES: &str = r#"
resource "trial_thing" "first" {
  name    = "first"
  content = "one"
}
resource "trial_thing" "second" {
  name    = "second"
  content = trial_thing.first.id
}
"#;

async fn env(runs: u16) -> (TestEnvironment, TrialProvider) {
    let trial = TrialProvider::create().unwrap();
    let mut env = TestEnvironment::without_controller().await;
    let config = trial.cli_config().display().to_string();
    env.environment.insert("TF_CLI_CONFIG_FILE".to_owned(), config);
    env.start(runs).await;
    let code = format!("{}{TWO_RESOURCES}", trial.provider_block());
    env.commit("a", &[("main.tf", &code)]).await;
    (env, trial)
}

fn count_calls(trial: &TrialProvider, call: &str) -> usize {
    trial.calls().iter().filter(|made| *made == call).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partial_failure_is_completed_and_nothing_is_created_twice() {
    let (env, trial) = env(1).await;
    let full = json!({ "steps": { "create second": { "fail": "quota exceeded" } } });
    trial.set_behaviour(&full).unwrap();
    env.stack("net", json!({})).await;
    let failed = env.wait_ready("net", "False TFExecApplyFailed").await;
    assert!(
        condition(&failed, "Ready").contains("quota exceeded"),
        "{}",
        condition(&failed, "Ready")
    );
    trial
        .set_behaviour(&json!({ "steps": { "create second": { "crash": true } } }))
        .unwrap();
    env.wait_for("net", "the provider's crash", |stack| {
        let ready = condition(stack, "Ready");
        ready.starts_with("False TFExecApplyFailed") && !ready.contains("quota exceeded")
    })
    .await;
    trial.set_behaviour(&json!({})).unwrap();
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(trial.resources().unwrap(), ["first", "second"]);
    assert_eq!(count_calls(&trial, "create first"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_apply_is_interrupted_at_its_deadline_and_its_resources_are_recorded() {
    let (env, trial) = env(1).await;
    env.stack("net", json!({ "approvePlan": "" })).await;
    let planned = env
        .wait_ready("net", "Unknown TerraformPlannedWithChanges Plan generated")
        .await;
    // The first resource is created, the second hangs.
    trial
        .set_behaviour(&json!({ "steps": { "create second": { "hang": true } } }))
        .unwrap();
    let approval = json!({ "approvePlan": pending(&planned), "runDeadline": "15s" });
    env.edit("net", approval).await;
    // In the run: the object shows it only until the retry.
    env.wait_run("net", "the interrupted apply", |run| {
        let status = run.status.as_ref();
        status.is_some_and(|status| status.phase == Phase::Failed && status.message.contains("deadline"))
    })
    .await;
    trial.set_behaviour(&json!({})).unwrap();
    env.edit("net", json!({ "approvePlan": "auto" })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(count_calls(&trial, "create first"), 1);
    assert_eq!(trial.content("second").as_deref(), Some("first"));
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_corrected_in_auto_and_otherwise_needs_an_approval() {
    let (env, trial) = env(1).await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    trial.drift("first", "by hand").unwrap();
    env.request("net", "1").await;
    env.wait_run("net", "the drift's apply", |run| {
        run.spec.trigger.as_str() == "Drift"
    })
    .await;
    let applied = env.wait_for("net", "corrected", |stack| {
        let status = stack.status.as_ref().unwrap();
        status.last_applied_by_drift_detection_at.is_some() && condition(stack, "Ready").starts_with("True")
    });
    applied.await;
    assert_eq!(trial.content("first").as_deref(), Some("one"));

    env.edit("net", json!({ "approvePlan": "" })).await;
    trial.delete_resource("second").unwrap();
    env.request("net", "2").await;
    let drifted = env.wait_ready("net", "False DriftDetected").await;
    assert_eq!(trial.resources().unwrap(), ["first"]);
    env.edit("net", json!({ "approvePlan": pending(&drifted) })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(trial.resources().unwrap(), ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_create_survives_the_controller() {
    let (mut env, trial) = env(1).await;
    trial
        .set_behaviour(&json!({ "steps": { "create": { "delayMs": 1500 } } }))
        .unwrap();
    env.stack("net", json!({})).await;
    env.wait_run("net", "creating", |_| count_calls(&trial, "create first") > 0)
        .await;
    env.stop().await;
    env.start(1).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(trial.resources().unwrap(), ["first", "second"]);
    assert_eq!(
        (
            count_calls(&trial, "create first"),
            count_calls(&trial, "create second")
        ),
        (1, 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_destroy_survives_the_controller() {
    let (mut env, trial) = env(1).await;
    env.stack("net", json!({ "destroyResourcesOnDeletion": true }))
        .await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    trial
        .set_behaviour(&json!({ "steps": { "delete": { "delayMs": 1500 } } }))
        .unwrap();
    env.delete("net").await;
    env.wait_run("net", "destroying", |_| count_calls(&trial, "delete second") > 0)
        .await;
    env.stop().await;
    env.start(1).await;
    env.wait_gone("net").await;
    assert_eq!(trial.resources().unwrap(), Vec::<String>::new());
    assert_eq!(
        (
            count_calls(&trial, "delete first"),
            count_calls(&trial, "delete second")
        ),
        (1, 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_variable_reaches_the_provider_only_if_it_is_set() {
    let (env, trial) = env(1).await;
    let order = json!({ "steps": { "create first": { "fail": "no such host: <{environment}>" } } });
    trial.set_behaviour(&order).unwrap();
    let variables = json!([{ "name": "TRIAL_TOKEN", "value": "vault.invalid" }]);
    let spec = json!({ "runnerPodTemplate": { "spec": { "env": variables } }, "retryInterval": "1h" });
    env.stack("net", spec).await;
    let failed = env.wait_ready("net", "False TFExecApplyFailed").await;
    let message = condition(&failed, "Ready");
    // Its name marks the variable as secret: its value is redacted, which shows that the provider has it.
    assert!(message.contains("no such host: <(sensitive)>"), "{message}");
    env.edit("net", json!({ "runnerPodTemplate": null })).await;
    let failed = env
        .wait_for("net", "without a variable", |stack| {
            condition(stack, "Ready").contains("no such host: <>")
        })
        .await;
    assert!(condition(&failed, "Ready").starts_with("False TFExecApplyFailed"));
}
