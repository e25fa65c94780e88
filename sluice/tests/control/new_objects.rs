//! Objects that no controller has observed, replaced artifact hosts, and runs limited to targets.

use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use sluice_api::terraform::Terraform;

use crate::environment::TestEnvironment;
use crate::observe::condition;

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;
const THREE: &str = "resource \"terraform_data\" \"one\" {}\nresource \"terraform_data\" \"two\" {}\n\
    resource \"terraform_data\" \"three\" { input = terraform_data.two.id }\n";

/// Returns the observed generation (-1 if none) and whether the finalizer is set.
async fn observed_generation(env: &TestEnvironment, name: &str) -> (Option<i64>, bool) {
    let api: Api<Terraform> = env.api();
    let stack = api.get(name).await.unwrap();
    let generation = stack
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    (generation, !stack.finalizers().is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn new_objects_and_objects_of_a_stopped_controller_are_not_observed() {
    let mut env = TestEnvironment::without_controller().await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({})).await;
    assert_eq!(observed_generation(&env, "net").await, (Some(-1), false));
    env.start(4).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(observed_generation(&env, "net").await, (Some(1), true));
    env.stop().await;
    env.stack("other", json!({})).await;
    env.edit("net", json!({ "interval": "2h" })).await;
    assert_eq!(observed_generation(&env, "other").await, (Some(-1), false));
    assert_eq!(observed_generation(&env, "net").await, (Some(1), true));
    env.start(4).await;
    env.wait_ready("other", "True TerraformAppliedSucceed").await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
}

/// Returns the addresses in the state without their types.
async fn addresses(env: &TestEnvironment, name: &str) -> Vec<String> {
    let state: Value = serde_json::from_str(&env.state(name).await).unwrap();
    let resources = state["resources"].as_array().unwrap();
    let mut names: Vec<_> = resources
        .iter()
        .map(|resource| resource["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_limit_applies_and_the_destroy_on_deletion() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", THREE)]).await;
    let spec = json!({ "targets": ["terraform_data.three"], "destroyResourcesOnDeletion": true });
    env.stack("net", spec).await;
    let applied = env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(
        addresses(&env, "net").await,
        ["three", "two"],
        "a target and its dependencies"
    );
    assert!(condition(&applied, "Plan").starts_with("True TerraformPlannedWithChanges"));
    env.edit("net", json!({ "targets": null })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(addresses(&env, "net").await, ["one", "three", "two"]);
    env.edit("net", json!({ "targets": ["terraform_data.two"] }))
        .await;
    env.wait_ready("net", "True TerraformPlannedNoChanges").await;
    env.delete("net").await;
    env.wait_gone("net").await;
    assert_eq!(
        addresses(&env, "net").await,
        ["one"],
        "a target and its dependents"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_artifact_host_is_replaced_for_the_controller_and_its_runs() {
    let mut env = TestEnvironment::without_controller().await;
    env.artifact_host = Some(env.artifacts.url.trim_start_matches("http://").to_owned());
    env.start(4).await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(
        env.artifacts.download_count("a.tar.gz"),
        2,
        "the controller and the run"
    );
}
