//! Destroys and deletions.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::{FIRST_APPLY, MODULE, STACK, Traced};
use crate::environment::TIMEOUT;
use crate::observe::pending;

/// Returns the names of all Secrets.
async fn secrets(traced: &Traced) -> Vec<String> {
    let api: Api<Secret> = traced.env.api();
    let all = api.list(&ListParams::default()).await.unwrap().items;
    all.iter().map(ResourceExt::name_any).collect()
}

/// Waits until the state is the only Secret: objects owned by the stack are collected asynchronously.
async fn only_the_state_is_left(traced: &Traced) {
    let looking = async {
        while secrets(traced).await != ["tfstate-default-net"] {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let is_removed = tokio::time::timeout(TIMEOUT, looking).await.is_ok();
    assert!(is_removed, "more is left: {:?}", secrets(traced).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroy_in_auto() {
    let traced = Traced::new().await;
    let env = &traced.env;
    env.commit("a", &[("main.tf", MODULE)]).await;
    env.stack(STACK, json!({})).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    env.edit(STACK, json!({ "destroy": true })).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed Destroy applied successfully")
        .await;
    traced.request("once more").await;
    traced
        .assert_trace(&format!(
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
    let env = &traced.env;
    env.commit("a", &[("main.tf", MODULE)]).await;
    env.stack(STACK, json!({})).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    env.edit(STACK, json!({ "destroy": true, "approvePlan": "" }))
        .await;
    let waiting = env.wait_ready(STACK, "Unknown TerraformPlannedWithChanges").await;
    env.edit(STACK, json!({ "approvePlan": pending(&waiting) })).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed Destroy applied successfully")
        .await;
    traced
        .assert_trace(&format!(
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
    let env = &traced.env;
    env.commit("a", &[("main.tf", MODULE)]).await;
    let spec = json!({ "destroyResourcesOnDeletion": true, "writeOutputsToSecret": { "name": "out" } });
    env.stack(STACK, spec).await;
    env.wait_ready(STACK, "True TerraformOutputsWritten").await;
    env.delete(STACK).await;
    env.wait_gone(STACK).await;
    only_the_state_is_left(&traced).await;
    traced
        .assert_trace(
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
    let env = &traced.env;
    env.commit("a", &[("main.tf", MODULE)]).await;
    let spec = json!({ "writeOutputsToSecret": { "name": "out" } });
    env.stack(STACK, spec).await;
    env.wait_ready(STACK, "True TerraformOutputsWritten").await;
    let before = secrets(&traced).await;
    assert!(before.contains(&"out".to_owned()) && before.iter().any(|name| name.starts_with("tfplan-")));
    env.delete(STACK).await;
    env.wait_gone(STACK).await;
    only_the_state_is_left(&traced).await;
    traced
        .assert_trace(
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
    let env = &traced.env;
    env.commit("a", &[("main.tf", MODULE)]).await;
    env.stack(STACK, json!({ "destroyResourcesOnDeletion": true }))
        .await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    env.edit(STACK, json!({ "destroy": true })).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed Destroy applied successfully")
        .await;
    env.edit(STACK, json!({ "approvePlan": "" })).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed Destroy applied successfully")
        .await;
    env.delete(STACK).await;
    env.wait_gone(STACK).await;
    traced
        .assert_trace(&format!(
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
    let env = &traced.env;
    env.commit("a", &[("main.tf", MODULE)]).await;
    env.stack(
        STACK,
        json!({ "approvePlan": "", "destroyResourcesOnDeletion": true }),
    )
    .await;
    env.wait_ready(STACK, "Unknown TerraformPlannedWithChanges").await;
    env.edit(STACK, json!({ "suspend": true })).await;
    env.delete(STACK).await;
    env.wait_for(STACK, "to wait", |stack| {
        crate::observe::condition(stack, "Ready").contains("Deletion waits")
    })
    .await;
    env.edit(STACK, json!({ "suspend": false })).await;
    env.wait_gone(STACK).await;
    traced
        .assert_trace(
            r#"
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready Unknown TerraformPlannedWithChanges: Plan generated: set approvePlan: "the id at a" to approve this plan.
          + Plan True TerraformPlannedWithChanges: Plan generated
        # tofu-controller says nothing and hangs.
        Ready Unknown Progressing: Deletion waits: the object is suspended; set spec.suspend to false to resume
        Ready Unknown Progressing: Deletion in progress
        Ready Unknown Progressing: Initializing
        Ready Unknown Progressing: Terraform Planning
        gone
"#,
        )
        .await;
}
