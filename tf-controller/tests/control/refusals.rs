//! An API that takes no run of a stack: it says so on the object, and holds up nobody else.

use crate::looks::condition;
use crate::world::World;
use serde_json::{Value, json};

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

/// The definition of runs, with a rule as an admission policy or a quota would have it.
fn runs_unless(rule: &str) -> Value {
    let all = serde_json::to_value(sluice_api::crds()).unwrap();
    let runs = |one: &&Value| one["spec"]["names"]["kind"] == "TerraformRun";
    let mut runs = all.as_array().unwrap().iter().find(runs).unwrap().clone();
    for version in runs["spec"]["versions"].as_array_mut().unwrap() {
        let rules =
            &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"];
        let refused = json!({ "rule": rule, "message": "exceeded quota" });
        rules.as_array_mut().unwrap().push(refused);
    }
    runs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_whose_runs_are_refused_says_so_and_takes_nobodys_place() {
    let mut world = World::serving(&[runs_unless("self.terraform.name != 'barred'")]).await;
    world.start(1).await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("barred", json!({})).await;
    let barred = world
        .ready("barred", "False TFExecNewFailed cannot make a run: ")
        .await;
    assert!(condition(&barred, "Ready").contains("exceeded quota"));
    assert!(condition(&barred, "Reconciling").contains("ProgressingWithRetry"));
    world.event("barred", "Warning ReconciliationFailed").await;
    world.stack("net", json!({})).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert!(world.runs("barred").await.is_empty());
}
