//! Destroys and deletions.

use super::{FIRST_APPLY, MODULE, STACK, Traced};
use crate::looks::pending;
use crate::world::DEADLINE;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;
use std::time::Duration;

/// The names of all Secrets.
async fn secrets(traced: &Traced) -> Vec<String> {
    let api: Api<Secret> = traced.world.api();
    let all = api.list(&ListParams::default()).await.unwrap().items;
    all.iter().map(ResourceExt::name_any).collect()
}

/// Waits until the state is the only Secret: what the stack owned is collected behind it.
async fn only_the_state_is_left(traced: &Traced) {
    let looking = async {
        while secrets(traced).await != ["tfstate-default-net"] {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let gone = tokio::time::timeout(DEADLINE, looking).await.is_ok();
    assert!(gone, "more is left: {:?}", secrets(traced).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroy_in_auto() {
    let traced = Traced::new().await;
    let world = &traced.world;
    world.commit("a", &[("main.tf", MODULE)]).await;
    world.stack(STACK, json!({})).await;
    world.ready(STACK, "True TerraformAppliedSucceed").await;
    world.edit(STACK, json!({ "destroy": true })).await;
    world
        .ready(STACK, "True TerraformAppliedSucceed Destroy applied successfully")
        .await;
    traced.request("once more").await;
    traced
        .told(&format!(
            r"{FIRST_APPLY}
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Destroy applied successfully: revision a
          - Reconciling
          + Apply True TerraformAppliedSucceed: Destroy applied successfully
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready True TerraformPlannedNoChanges: No objects need to be destroyed: revision a
          - Reconciling
          + Plan False TerraformPlannedNoChanges: No objects need to be destroyed
"
        ))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroy_that_is_approved() {
    let traced = Traced::new().await;
    let world = &traced.world;
    world.commit("a", &[("main.tf", MODULE)]).await;
    world.stack(STACK, json!({})).await;
    world.ready(STACK, "True TerraformAppliedSucceed").await;
    world
        .edit(STACK, json!({ "destroy": true, "approvePlan": "" }))
        .await;
    let waiting = world.ready(STACK, "Unknown TerraformPlannedWithChanges").await;
    world
        .edit(STACK, json!({ "approvePlan": pending(&waiting) }))
        .await;
    world
        .ready(STACK, "True TerraformAppliedSucceed Destroy applied successfully")
        .await;
    traced
        .told(&format!(
            r#"{FIRST_APPLY}
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready Unknown TerraformPlannedWithChanges: Plan generated: set approvePlan: "the id at a" to approve this plan.
        Ready Unknown Progressing: Initializing
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Destroy applied successfully: revision a
          - Reconciling
          + Apply True TerraformAppliedSucceed: Destroy applied successfully
"#
        ))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_destroys() {
    let traced = Traced::new().await;
    let world = &traced.world;
    world.commit("a", &[("main.tf", MODULE)]).await;
    let spec = json!({ "destroyResourcesOnDeletion": true, "writeOutputsToSecret": { "name": "out" } });
    world.stack(STACK, spec).await;
    world.ready(STACK, "True TerraformOutputsWritten").await;
    world.delete(STACK).await;
    world.gone(STACK).await;
    only_the_state_is_left(&traced).await;
    traced
        .told(
            r"
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready Unknown TerraformAppliedSucceed: Applied successfully: revision a
          + Apply True TerraformAppliedSucceed: Applied successfully
        Ready True TerraformOutputsWritten: Outputs written: revision a
          - Reconciling
          + Output True TerraformOutputsWritten: Outputs written
          + Plan True TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Deletion in progress
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Initializing
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        # No word between the apply and the end: there is no apply of outputs to wait for.
        gone
",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_leaves_everything() {
    let traced = Traced::new().await;
    let world = &traced.world;
    world.commit("a", &[("main.tf", MODULE)]).await;
    let spec = json!({ "writeOutputsToSecret": { "name": "out" } });
    world.stack(STACK, spec).await;
    world.ready(STACK, "True TerraformOutputsWritten").await;
    let before = secrets(&traced).await;
    assert!(before.contains(&"out".to_owned()) && before.iter().any(|name| name.starts_with("tfplan-")));
    world.delete(STACK).await;
    world.gone(STACK).await;
    only_the_state_is_left(&traced).await;
    traced
        .told(
            r"
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready Unknown TerraformAppliedSucceed: Applied successfully: revision a
          + Apply True TerraformAppliedSucceed: Applied successfully
        Ready True TerraformOutputsWritten: Outputs written: revision a
          - Reconciling
          + Output True TerraformOutputsWritten: Outputs written
          + Plan True TerraformPlannedWithChanges: Plan generated
        gone
",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_with_nothing_left_to_destroy_needs_no_approval() {
    let traced = Traced::new().await;
    let world = &traced.world;
    world.commit("a", &[("main.tf", MODULE)]).await;
    world
        .stack(STACK, json!({ "destroyResourcesOnDeletion": true }))
        .await;
    world.ready(STACK, "True TerraformAppliedSucceed").await;
    world.edit(STACK, json!({ "destroy": true })).await;
    world
        .ready(STACK, "True TerraformAppliedSucceed Destroy applied successfully")
        .await;
    world.edit(STACK, json!({ "approvePlan": "" })).await;
    world
        .ready(STACK, "True TerraformAppliedSucceed Destroy applied successfully")
        .await;
    world.delete(STACK).await;
    world.gone(STACK).await;
    traced
        .told(&format!(
            r"{FIRST_APPLY}
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Destroy applied successfully: revision a
          - Reconciling
          + Apply True TerraformAppliedSucceed: Destroy applied successfully
        Ready Unknown Progressing: Deletion in progress
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Initializing
        Ready Unknown Progressing: Terraform Planning
        gone
"
        ))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_while_suspended() {
    let traced = Traced::new().await;
    let world = &traced.world;
    world.commit("a", &[("main.tf", MODULE)]).await;
    world
        .stack(
            STACK,
            json!({ "approvePlan": "", "destroyResourcesOnDeletion": true }),
        )
        .await;
    world.ready(STACK, "Unknown TerraformPlannedWithChanges").await;
    world.edit(STACK, json!({ "suspend": true })).await;
    world.delete(STACK).await;
    world
        .until(STACK, "to wait", |stack| {
            crate::looks::condition(stack, "Ready").contains("Deletion waits")
        })
        .await;
    world.edit(STACK, json!({ "suspend": false })).await;
    world.gone(STACK).await;
    traced
        .told(
            r#"
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready Unknown TerraformPlannedWithChanges: Plan generated: set approvePlan: "the id at a" to approve this plan.
          + Plan True TerraformPlannedWithChanges: Plan generated
        # tofu-controller says nothing and hangs.
        Ready Unknown Progressing: Deletion waits: the object is suspended; set spec.suspend to false to let it go on
        Ready Unknown Progressing: Deletion in progress
        Ready Unknown Progressing: Initializing
        Ready Unknown Progressing: Terraform Planning
        gone
"#,
        )
        .await;
}
