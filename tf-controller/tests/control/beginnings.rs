//! Before the first pass and behind the last one: what nobody has looked at says so; which resources a run is limited to.

use crate::looks::condition;
use crate::world::World;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use sluice_api::terraform::Terraform;

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;
const THREE: &str = "resource \"terraform_data\" \"one\" {}\nresource \"terraform_data\" \"two\" {}\n\
    resource \"terraform_data\" \"three\" { input = terraform_data.two.id }\n";

/// The generation that a pass has observed (none: -1), and whether one has put its finalizer.
async fn observed(world: &World, name: &str) -> (Option<i64>, bool) {
    let api: Api<Terraform> = world.api();
    let stack = api.get(name).await.unwrap();
    let generation = stack
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    (generation, !stack.finalizers().is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_has_observed_a_new_object_and_a_stopped_controller_looks_at_none() {
    let mut world = World::without_controller().await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("net", json!({})).await;
    assert_eq!(observed(&world, "net").await, (Some(-1), false));
    world.start(4).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(observed(&world, "net").await, (Some(1), true));
    world.stop().await;
    world.stack("other", json!({})).await;
    world.edit("net", json!({ "interval": "2h" })).await;
    assert_eq!(observed(&world, "other").await, (Some(-1), false));
    assert_eq!(observed(&world, "net").await, (Some(1), true));
    world.start(4).await;
    world.ready("other", "True TerraformAppliedSucceed").await;
    world.ready("net", "True TerraformAppliedSucceed").await;
}

/// Addresses in the state, without the types.
async fn held(world: &World, name: &str) -> Vec<String> {
    let state: Value = serde_json::from_str(&world.state(name).await).unwrap();
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
    let world = World::new().await;
    world.commit("a", &[("main.tf", THREE)]).await;
    let spec = json!({ "targets": ["terraform_data.three"], "destroyResourcesOnDeletion": true });
    world.stack("net", spec).await;
    let applied = world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(
        held(&world, "net").await,
        ["three", "two"],
        "a target and what it builds on"
    );
    assert!(condition(&applied, "Plan").starts_with("True TerraformPlannedWithChanges"));
    world.edit("net", json!({ "targets": null })).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(held(&world, "net").await, ["one", "three", "two"]);
    world
        .edit("net", json!({ "targets": ["terraform_data.two"] }))
        .await;
    world.ready("net", "True TerraformPlannedNoChanges").await;
    world.delete("net").await;
    world.gone("net").await;
    assert_eq!(
        held(&world, "net").await,
        ["one"],
        "what builds on a target goes with it"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_of_artifacts_is_replaced_for_the_controller_and_its_runs() {
    let mut world = World::without_controller().await;
    world.artifact_host = Some(world.artifacts.url.trim_start_matches("http://").to_owned());
    world.start(4).await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("net", json!({})).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(
        world.artifacts.times_served("a.tar.gz"),
        2,
        "the controller and the run"
    );
}
