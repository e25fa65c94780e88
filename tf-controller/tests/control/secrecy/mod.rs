//! Values that nobody may read: planted in every way in, and looked for everywhere but in the Secrets that hold them. Controller
//! and runner are the programs as they are shipped, which log all that they can.

mod channels;
mod rendered;
mod search;
mod shipped;

use crate::looks::{condition, pending};
use crate::world::World;
use search::{Canaries, READABLE, nothing_found};
use serde_json::json;
use shipped::Shipped;
use sluice_harness::trial::Trial;

/// A value for each way in. None is part of another text of the test.
const VARIABLE: &str = "canary-variable-5f1d";
const SECRET_VARIABLE: &str = "canary-secret-variable-9a2c";
const TOKEN: &str = "canary-token-77be";
const PROVIDER: &str = "canary-of-the-provider-c0de";
const ALL: [&str; 4] = [VARIABLE, SECRET_VARIABLE, TOKEN, PROVIDER];
const HUMAN: &str = "human-seen-by-anybody-4e19";
const JSON: &str = "json-seen-by-anybody-4e19";

fn module(trial: &Trial) -> String {
    let head = trial.module_head_with("var.token");
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

#[tokio::test(flavor = "multi_thread")]
async fn no_value_that_nobody_may_read_is_written_anywhere_but_into_secrets() {
    let canaries = Canaries {
        hidden: &ALL,
        in_specs: &[],
    };
    let trial = Trial::create().unwrap();
    let mut world = World::without_controller().await;
    let config = trial.cli_config().display().to_string();
    world.environment.insert("TF_CLI_CONFIG_FILE".to_owned(), config);
    world
        .secret("given", &[("given", SECRET_VARIABLE), ("token", TOKEN)])
        .await;
    trial.order(&json!({ "secret": PROVIDER })).unwrap();
    let shipped = Shipped::start(&world).await;
    world.commit("a", &[("main.tf", &module(&trial))]).await;
    let spec = json!({ "approvePlan": "", "retryInterval": "1h", "writeOutputsToSecret": { "name": "out" },
        "vars": [{ "name": "hidden", "value": VARIABLE }], "varsFrom": [{ "kind": "Secret", "name": "given" }] });
    for (name, form) in [(HUMAN, "human"), (JSON, "json")] {
        let mut spec = spec.clone();
        spec["storeReadablePlan"] = json!(form);
        // Both stacks would make the same thing: only one of them is ever applied.
        world.stack(name, spec).await;
    }
    let planned = world.ready(HUMAN, "Unknown TerraformPlannedWithChanges").await;
    world.ready(JSON, "Unknown TerraformPlannedWithChanges").await;
    nothing_found(&world, &shipped, canaries, &[READABLE], "planned").await;

    // A provider that tells in its error what it was given, while an apply is made of a stored plan.
    let careless = json!({ "secret": PROVIDER, "steps": { "create": { "fail": "bad token {token}" } } });
    trial.order(&careless).unwrap();
    world
        .edit(HUMAN, json!({ "approvePlan": pending(&planned) }))
        .await;
    let failed = world.ready(HUMAN, "False TFExecApplyFailed").await;
    assert!(
        condition(&failed, "Ready").contains("bad token (sensitive)"),
        "{}",
        condition(&failed, "Ready")
    );
    nothing_found(&world, &shipped, canaries, &[READABLE], "failed").await;

    trial.order(&json!({ "secret": PROVIDER })).unwrap();
    world.edit(HUMAN, json!({ "approvePlan": "auto" })).await;
    world.ready(HUMAN, "True TerraformOutputsWritten").await;
    assert_eq!(
        world.value("out", "out").await.unwrap(),
        format!("{PROVIDER} {VARIABLE}")
    );
    nothing_found(&world, &shipped, canaries, &[READABLE], "applied").await;

    // Drift, and an error while it is planned.
    world.edit(HUMAN, json!({ "approvePlan": "" })).await;
    trial
        .order(&json!({ "secret": PROVIDER, "steps": { "read": { "fail": "no such {token}" } } }))
        .unwrap();
    world.request(HUMAN, "1").await;
    world
        .until(HUMAN, "a failed check", |stack| {
            condition(stack, "Ready").contains("no such (sensitive)")
        })
        .await;
    nothing_found(&world, &shipped, canaries, &[READABLE], "failed to read").await;
}
