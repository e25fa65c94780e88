//! Stacks that wait for a user: suspended ones, and those with a break-glass session.

use serde_json::json;

use super::{MODULE, STACK, Traced};

#[tokio::test(flavor = "multi_thread")]
async fn suspended_from_the_start_then_resumed_suspended_edited_and_resumed() {
    let traced = Traced::new().await;
    let env = &traced.env;
    env.commit("a", &[("main.tf", MODULE)]).await;
    env.stack(STACK, json!({ "suspend": true })).await;
    traced.request("while suspended").await;
    assert!(env.runs(STACK).await.is_empty());
    env.edit(STACK, json!({ "suspend": false })).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    env.edit(STACK, json!({ "suspend": true })).await;
    traced.request("once the suspension is observed").await; // the source has a separate watch, which may be ahead
    env.commit("b", &[("main.tf", &MODULE.replace("\"one\"", "\"two\""))])
        .await;
    traced.request("while suspended again").await;
    assert_eq!(env.runs(STACK).await.len(), 1);
    env.edit(STACK, json!({ "suspend": false })).await;
    env.wait_ready(
        STACK,
        "True TerraformAppliedSucceed Applied successfully: main@sha1:bbb",
    )
    .await;
    traced
        .assert_trace(
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
