//! Guard rails: what `auto` applies by itself and what waits, `force`, `planOnly` and `disable`, told by whole passes.

use crate::looks::{condition, pending};
use crate::world::World;
use serde_json::{Value, json};
use sluice_embedded::Server;
use sluice_runtime::{probes::Readiness, shutdown::Token};
use sluice_tf_controller::definitions;

/// Each variable leads to another class of change.
const CLASSES: &str = r#"
variable "size" { default = "one" }
variable "mark" { default = "a" }
variable "copies" { default = 1 }
resource "terraform_data" "it" {
  input            = var.size
  triggers_replace = var.mark
}
resource "terraform_data" "more" { count = var.copies }
"#;

/// `vars` that lead to these values.
fn vars(size: &str, copies: i64, mark: &str) -> Value {
    json!({ "vars": [{ "name": "size", "value": size }, { "name": "copies", "value": copies }, { "name": "mark", "value": mark }] })
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_applies_what_the_policy_allows_and_the_rest_waits_for_its_id() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", CLASSES)]).await;
    let policy = json!({ "allow": ["create", "update"], "hold": ["delete"] });
    world.stack("net", json!({ "autoApply": policy })).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    world.edit("net", vars("two", 1, "a")).await;
    world.ready("net", "True TerraformAppliedSucceed").await;

    // A delete waits, says why, and the run has it on record.
    world.edit("net", vars("two", 0, "a")).await;
    let prompt = "Unknown TerraformPlannedWithChanges Plan generated: set approvePlan: ";
    let waiting = world.ready("net", prompt).await;
    let (id, told) = (pending(&waiting), condition(&waiting, "Ready"));
    let why = "1 delete (autoApply.hold): terraform_data.more[0]";
    assert!(told.contains(&id) && told.contains(why), "{told}");
    let held = world.run("net", "held", |run| {
        run.status.as_ref().is_some_and(|s| !s.held.is_empty())
    });
    let said = held.await.status.unwrap();
    assert_eq!((said.held.as_str(), said.plan_id.as_str()), (why, id.as_str()));
    assert!(
        !said.attempted_apply && world.state("net").await.contains("\"more\""),
        "nothing was applied"
    );
    world.edit("net", json!({ "approvePlan": id })).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert!(!world.state("net").await.contains("\"more\""));

    // Back to auto: nothing to do, and a replacement waits, as it destroys.
    world.edit("net", json!({ "approvePlan": "auto" })).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    world.edit("net", vars("two", 0, "b")).await;
    let told = condition(&world.ready("net", prompt).await, "Ready");
    assert!(
        told.contains("1 replace (autoApply.hold): terraform_data.it"),
        "{told}"
    );
    // What is left of the policy lets it through: no new plan is needed for that.
    let wider = json!({ "allow": ["create", "update", "replace"], "hold": null });
    world.edit("net", json!({ "autoApply": wider })).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    insta::assert_snapshot!(world.history("net").await, @"
    1 PlanAndApply Revision 1: Succeeded TerraformAppliedSucceed +2 ~0 -0
    2 PlanAndApply Spec 1: Succeeded TerraformAppliedSucceed +0 ~1 -0
    3 PlanAndApply Spec 1: Succeeded TerraformPlannedWithChanges +0 ~0 -1
    4 Apply Approval 1: Succeeded TerraformAppliedSucceed
    5 PlanAndApply Spec 1: Succeeded TerraformPlannedWithChanges +1 ~0 -1
    6 Apply Approval 1: Succeeded TerraformAppliedSucceed
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn types_and_numbers_hold_a_plan_and_so_they_do_with_force() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", CLASSES)]).await;
    world
        .stack(
            "typed",
            json!({ "autoApply": { "holdResourceTypes": ["terraform_*"] } }),
        )
        .await;
    world
        .stack(
            "many",
            json!({ "approvePlan": "", "force": true, "autoApply": { "maxChanges": 1 } }),
        )
        .await;
    let typed = condition(
        &world.ready("typed", "Unknown TerraformPlannedWithChanges").await,
        "Ready",
    );
    assert!(
        typed.contains("changes of a held type (autoApply.holdResourceTypes): terraform_data"),
        "{typed}"
    );
    let waiting = world.ready("many", "Unknown TerraformPlannedWithChanges").await;
    let many = condition(&waiting, "Ready");
    assert!(
        many.contains("changes of 2 resources, more than 1 (autoApply.maxChanges)"),
        "{many}"
    );
    world
        .edit("many", json!({ "approvePlan": pending(&waiting) }))
        .await;
    world.ready("many", "True TerraformAppliedSucceed").await;
}

/// Its plan depends on a file outside: made, it is what somebody did behind the stack's back.
const DRIFTING: &str = r#"
variable "marker" {}
resource "terraform_data" "it" { input = fileexists(var.marker) ? "there" : "missing" }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn ignored_differences_are_no_drift_and_hide_no_other() {
    let world = World::new().await;
    let revision = world.commit("a", &[("main.tf", DRIFTING)]).await;
    let both = json!([{ "addresses": ["terraform_data.*"], "attributes": ["input", "output"] }]);
    let vars = json!([{ "name": "marker", "value": world.path("marker") }]);
    world
        .stack(
            "net",
            json!({ "interval": "2s", "vars": vars, "ignoreDrift": both }),
        )
        .await;
    world
        .ready("net", &format!("True NoDrift No drift: {revision}"))
        .await;
    std::fs::write(world.path("marker"), "").unwrap();
    let told = format!("True NoDrift No drift: {revision} (1 in-place; 1 of them ignored)");
    let steady = world.ready("net", &told).await;
    assert!(pending(&steady).is_empty() && world.state("net").await.contains("missing"));
    // The output changes as well: one attribute alone does not cover it.
    world
        .edit("net", json!({ "ignoreDrift": [{ "attributes": ["input"] }] }))
        .await;
    world.event("net", "Warning DriftDetected").await;
    let corrected = world.until("net", "drift corrected", |stack| {
        stack
            .status
            .as_ref()
            .is_some_and(|s| s.last_applied_by_drift_detection_at.is_some())
    });
    corrected.await;
    assert!(world.state("net").await.contains("there"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_definition_is_told_and_nothing_begins() {
    let mut older = serde_json::to_value(sluice_api::crds()).unwrap();
    for version in older[1]["spec"]["versions"].as_array_mut().unwrap() {
        let spec = "/schema/openAPIV3Schema/properties/spec/properties";
        version
            .pointer_mut(spec)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove("autoApply");
    }
    let older = Server::builder()
        .crds(serde_json::from_value::<Vec<_>>(older).unwrap())
        .build()
        .unwrap();
    let said = definitions::check(&older.client()).await.unwrap_err().to_string();
    let named = "terraforms.infra.contrib.fluxcd.io does not declare spec.autoApply, ";
    let advice = "config/crd/bases/infra.contrib.fluxcd.io_terraforms.yaml";
    assert!(said.contains(named) && said.contains(advice), "{said}");
    let (ready, stop) = (Readiness::default(), Token::new());
    let client = older.client();
    let waiting = definitions::wait(&client, &ready, &stop);
    let stopping = async {
        stop.cancel();
    };
    tokio::join!(waiting, stopping);
    assert!(!ready.is_set());

    let none = Server::builder()
        .crds(sluice_api::crds().into_iter().take(1))
        .build()
        .unwrap();
    let said = definitions::check(&none.client()).await.unwrap_err().to_string();
    assert!(
        said.contains("terraforms.infra.contrib.fluxcd.io is not installed"),
        "{said}"
    );
    let current = Server::builder().crds(sluice_api::crds()).build().unwrap();
    definitions::wait(&current.client(), &ready, &Token::new()).await;
    assert!(ready.is_set());
}
