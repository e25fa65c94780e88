//! Stacks that wait for a person: suspended ones, and those in whose directory somebody works.

use super::{MODULE, STACK, Traced};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn suspended_from_the_start_then_resumed_suspended_edited_and_resumed() {
    let traced = Traced::new().await;
    let world = &traced.world;
    world.commit("a", &[("main.tf", MODULE)]).await;
    world.stack(STACK, json!({ "suspend": true })).await;
    traced.request("while suspended").await;
    assert!(world.runs(STACK).await.is_empty());
    world.edit(STACK, json!({ "suspend": false })).await;
    world.ready(STACK, "True TerraformAppliedSucceed").await;
    world.edit(STACK, json!({ "suspend": true })).await;
    traced.request("once the suspension is seen").await; // the source's watch is another one, and may be ahead
    world
        .commit("b", &[("main.tf", &MODULE.replace("\"one\"", "\"two\""))])
        .await;
    traced.request("while suspended again").await;
    assert_eq!(world.runs(STACK).await.len(), 1);
    world.edit(STACK, json!({ "suspend": false })).await;
    world
        .ready(
            STACK,
            "True TerraformAppliedSucceed Applied successfully: main@sha1:bbb",
        )
        .await;
    traced
        .told(
            r"
        # Suspended, it says nothing.
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Applied successfully: revision a
          - Reconciling
          + Apply True TerraformAppliedSucceed: Applied successfully
          + Output True TerraformOutputsAvailable: Outputs available
          + Plan True TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Applied successfully: revision b
          - Reconciling
          + Apply True TerraformAppliedSucceed: Applied successfully
",
        )
        .await;
}
