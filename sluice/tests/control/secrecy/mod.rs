//! Secret values, one for each input, must only occur in the Secrets that store them. Controller and runner are the real programs
//! with full logging.

mod channels;
mod programs;
mod rendered;
mod search;

use programs::Programs;
use search::{READABLE, SecretValues, assert_no_leak};
use serde_json::json;
use sluice_harness::trial::TrialProvider;

use crate::environment::{NAMESPACE, TestEnvironment};
use crate::observe::{condition, pending};

/// One value per input. None is part of another text of the test.
const VARIABLE: &str = "canary-variable-5f1d";
const SECRET_VARIABLE: &str = "canary-secret-variable-9a2c";
const TOKEN: &str = "canary-token-77be";
const PROVIDER: &str = "canary-of-the-provider-c0de";
const ALL: [&str; 4] = [VARIABLE, SECRET_VARIABLE, TOKEN, PROVIDER];
const HUMAN: &str = "human-seen-by-anybody-4e19";
const JSON: &str = "json-seen-by-anybody-4e19";

fn module(trial: &TrialProvider) -> String {
    let head = trial.provider_block_with_token("var.token");
    head + r#"
variable "token" { sensitive = true }
variable "hidden" { sensitive = true }
variable "given" {}
resource "trial_thing" "it" {
  name    = "seen-by-anybody-4e19"
  content = var.given
}
resource "terraform_data" "copy" {
  input = [var.hidden, var.given, trial_thing.it.secret]
}
output "out" {
  value     = "${trial_thing.it.secret} ${var.hidden}"
  sensitive = true
}
"#
}

/// Asserts that the metrics that were searched include those of stacks.
fn assert_exports_metrics_of_stacks(programs: &Programs) {
    let page = programs.metrics();
    let stacks = format!("sluice_terraform_stacks{{stack_namespace=\"{NAMESPACE}\",ready=\"True\"}} ");
    assert!(
        page.contains("sluice_terraform_run_slots 3\n") && page.contains(&stacks),
        "{page}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_values_are_written_only_to_secrets() {
    let canaries = SecretValues {
        hidden: &ALL,
        in_specs: &[],
    };
    let trial = TrialProvider::create().unwrap();
    let mut env = TestEnvironment::without_controller().await;
    let config = trial.cli_config().display().to_string();
    env.environment.insert("TF_CLI_CONFIG_FILE".to_owned(), config);
    env.secret("given", &[("given", SECRET_VARIABLE), ("token", TOKEN)])
        .await;
    trial.set_behaviour(&json!({ "secret": PROVIDER })).unwrap();
    let programs = Programs::start(&env).await;
    env.commit("a", &[("main.tf", &module(&trial))]).await;
    let spec = json!({ "approvePlan": "", "retryInterval": "1h", "writeOutputsToSecret": { "name": "out" },
        "vars": [{ "name": "hidden", "value": VARIABLE }], "varsFrom": [{ "kind": "Secret", "name": "given" }] });
    for (name, form) in [(HUMAN, "human"), (JSON, "json")] {
        let mut spec = spec.clone();
        spec["storeReadablePlan"] = json!(form);
        // Both stacks would create the same resource: only one of them is ever applied.
        env.stack(name, spec).await;
    }
    let planned = env.wait_ready(HUMAN, "Unknown TerraformPlannedWithChanges").await;
    env.wait_ready(JSON, "Unknown TerraformPlannedWithChanges").await;
    assert_no_leak(&env, &programs, canaries, &[READABLE], "planned").await;

    // The provider prints its token in an error during the apply of a stored plan.
    let careless = json!({ "secret": PROVIDER, "steps": { "create": { "fail": "bad token {token}" } } });
    trial.set_behaviour(&careless).unwrap();
    env.edit(HUMAN, json!({ "approvePlan": pending(&planned) })).await;
    let failed = env.wait_ready(HUMAN, "False TFExecApplyFailed").await;
    assert!(
        condition(&failed, "Ready").contains("bad token (sensitive)"),
        "{}",
        condition(&failed, "Ready")
    );
    assert_no_leak(&env, &programs, canaries, &[READABLE], "failed").await;

    trial.set_behaviour(&json!({ "secret": PROVIDER })).unwrap();
    env.edit(HUMAN, json!({ "approvePlan": "auto" })).await;
    env.wait_ready(HUMAN, "True TerraformOutputsWritten").await;
    assert_eq!(
        env.value("out", "out").await.unwrap(),
        format!("{PROVIDER} {VARIABLE}")
    );
    assert_no_leak(&env, &programs, canaries, &[READABLE], "applied").await;
    assert_exports_metrics_of_stacks(&programs);

    // Drift, and an error during a plan.
    env.edit(HUMAN, json!({ "approvePlan": "" })).await;
    trial
        .set_behaviour(&json!({ "secret": PROVIDER, "steps": { "read": { "fail": "no such {token}" } } }))
        .unwrap();
    env.request(HUMAN, "1").await;
    env.wait_for(HUMAN, "a failed check", |stack| {
        condition(stack, "Ready").contains("no such (sensitive)")
    })
    .await;
    assert_no_leak(&env, &programs, canaries, &[READABLE], "failed to read").await;
}
