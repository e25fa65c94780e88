//! Successful applies: in auto, by approval, by force; and drift detection without changes.

use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::{FIRST_APPLY, MODULE, STACK, Traced};
use crate::observe::{condition, pending};

#[tokio::test(flavor = "multi_thread")]
async fn a_first_apply_in_auto_without_a_backend_of_the_controllers() {
    let traced = Traced::new().await;
    traced.env.commit("a", &[("main.tf", MODULE)]).await;
    traced
        .env
        .stack(STACK, json!({ "backendConfig": { "disable": true } }))
        .await;
    let stack = traced.env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    let status = stack.status.unwrap();
    let order: Vec<_> = status.conditions.iter().map(|c| c.type_.as_str()).collect();
    assert_eq!(order, ["Ready", "Apply", "Output", "Plan"]);
    assert_eq!(status.available_outputs, ["size"]);
    let secrets: Api<Secret> = traced.env.api();
    let secrets = secrets.list(&ListParams::default()).await.unwrap().items;
    let of = |front: &str| secrets.iter().filter(|s| s.name_any().starts_with(front)).count();
    assert_eq!((of("tfplan-default-net-"), of("tfstate-")), (1, 0));
    traced
        .assert_trace(
            r"
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
",
        )
        .await;
}

/// The trace of [`an_apply_with_outputs_and_drift_checks_without_drift`].
const OUTPUTS_AND_LOOKS: &str = r"
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
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready True NoDrift: No drift: revision a
          - Reconciling
          + Plan False TerraformPlannedNoChanges: Plan no changes
        # Revision b changes no input, so there is no step; tofu-controller plans.
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready Unknown TerraformAppliedSucceed: Applied successfully: revision c
          + Apply True TerraformAppliedSucceed: Applied successfully
        Ready True TerraformOutputsWritten: Outputs written: revision c
          - Reconciling
          + Plan True TerraformPlannedWithChanges: Plan generated
";

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_with_outputs_and_drift_checks_without_drift() {
    let traced = Traced::new().await;
    let files = |other| [("net/main.tf", MODULE), ("readme", other)];
    traced.env.commit("a", &files("1")).await;
    let spec = json!({ "path": "net", "writeOutputsToSecret": { "name": "out" } });
    traced.env.stack(STACK, spec).await;
    traced.env.wait_ready(STACK, "True TerraformOutputsWritten").await;
    traced.request("drift-detection").await;
    let revision = traced.env.commit("b", &files("2")).await;
    traced
        .env
        .wait_for(STACK, "moved on", |s| {
            s.status
                .as_ref()
                .is_some_and(|s| s.last_attempted_revision == revision)
        })
        .await;
    let changed = MODULE.replace("\"one\"", "\"two\"");
    traced.env.commit("c", &[("net/main.tf", &changed)]).await;
    traced
        .env
        .wait_ready(
            STACK,
            "True TerraformOutputsWritten Outputs written: main@sha1:ccc",
        )
        .await;
    traced.assert_trace(OUTPUTS_AND_LOOKS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_without_changes() {
    let traced = Traced::new().await;
    traced.env.commit("a", &[("main.tf", "")]).await;
    traced.env.stack(STACK, json!({ "approvePlan": "" })).await;
    traced
        .env
        .wait_ready(STACK, "True TerraformPlannedNoChanges")
        .await;
    traced
        .assert_trace(
            r"
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready True TerraformPlannedNoChanges: Plan no changes: revision a
          - Reconciling
          + Plan False TerraformPlannedNoChanges: Plan no changes
",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_an_approval_its_apply_and_the_plan_of_the_next_revision() {
    let traced = Traced::new().await;
    let env = &traced.env;
    env.commit("a", &[("main.tf", MODULE)]).await;
    env.stack(STACK, json!({ "approvePlan": "" })).await;
    let waiting = env.wait_ready(STACK, "Unknown TerraformPlannedWithChanges").await;
    env.edit(STACK, json!({ "approvePlan": pending(&waiting) })).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    let next = env
        .commit("b", &[("main.tf", &MODULE.replace("\"one\"", "\"two\""))])
        .await;
    let waiting = env
        .wait_ready(
            STACK,
            "Unknown TerraformPlannedWithChanges Plan generated: set approvePlan: \"plan-main-bbb",
        )
        .await;
    let status = waiting.status.unwrap();
    assert_eq!(status.last_planned_revision, next);
    assert_ne!(status.last_applied_revision, next);
    traced
        .assert_trace(
            r#"
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready Unknown TerraformPlannedWithChanges: Plan generated: set approvePlan: "the id at a" to approve this plan.
          + Plan True TerraformPlannedWithChanges: Plan generated
        # tofu-controller plans once more here.
        Ready Unknown Progressing: Initializing
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Applied successfully: revision a
          - Reconciling
          + Apply True TerraformAppliedSucceed: Applied successfully
          + Output True TerraformOutputsAvailable: Outputs available
        # The approval is left over: it names an effect that was applied.
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready Unknown TerraformPlannedWithChanges: Plan generated: set approvePlan: "the id at b" to approve this plan. (approvePlan names another plan, with the effect APPROVED)
"#,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replan_request_names_the_pending_plan() {
    let traced = Traced::new().await;
    let env = &traced.env;
    env.commit("a", &[("main.tf", MODULE)]).await;
    env.stack(STACK, json!({ "approvePlan": "" })).await;
    let first = pending(&env.wait_ready(STACK, "Unknown TerraformPlannedWithChanges").await);
    env.commit("b", &[("main.tf", &MODULE.replace("\"one\"", "\"two\""))])
        .await;
    let beginning = "Unknown TerraformPlannedWithChanges Plan generated: set approvePlan: \"plan-main-bbb";
    let second = pending(&env.wait_ready(STACK, beginning).await);
    assert_ne!(first, second);
    let expected = format!("replan-{}", second.strip_prefix("plan-").unwrap());
    env.edit(STACK, json!({ "approvePlan": expected })).await;
    let runs = env.wait_run(STACK, "a third plan", |run| {
        crate::observe::number(run) == 3 && run.status.as_ref().is_some_and(|s| s.phase.is_final())
    });
    runs.await;
    let third = pending(&env.wait_ready(STACK, beginning).await);
    env.edit(STACK, json!({ "approvePlan": third })).await;
    let done = env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    assert!(condition(&done, "Ready").contains("main@sha1:bbb"));
    traced
        .assert_trace(
            r#"
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready Unknown TerraformPlannedWithChanges: Plan generated: set approvePlan: "the id at a" to approve this plan.
          + Plan True TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Initializing
        Ready Unknown Progressing: Terraform Planning
        Ready Unknown TerraformPlannedWithChanges: Plan generated: set approvePlan: "the id at b" to approve this plan.
        Ready Unknown Progressing: Initializing
        Ready Unknown Progressing: Terraform Planning
        Ready Unknown TerraformPlannedWithChanges: Plan generated: set approvePlan: "the id at b" to approve this plan.
        Ready Unknown Progressing: Initializing
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Applied successfully: revision b
          - Reconciling
          + Apply True TerraformAppliedSucceed: Applied successfully
          + Output True TerraformOutputsAvailable: Outputs available
"#,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_only_then_force() {
    let traced = Traced::new().await;
    let env = &traced.env;
    env.commit("a", &[("main.tf", MODULE)]).await;
    env.stack(STACK, json!({ "planOnly": true, "approvePlan": "" }))
        .await;
    env.wait_ready(STACK, "Unknown TerraformPlannedWithChanges").await;
    env.edit(STACK, json!({ "force": true })).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    traced.request("drift-detection").await;
    traced
        .assert_trace(
            r"
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        # tofu-controller advises to approve beside it.
        Ready Unknown TerraformPlannedWithChanges: Plan generated: This object is in the plan only mode.
          + Plan True TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Initializing
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Applied successfully: revision a
          - Reconciling
          + Apply True TerraformAppliedSucceed: Applied successfully
          + Output True TerraformOutputsAvailable: Outputs available
        # Nothing to do, whatever is forced.
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready True NoDrift: No drift: revision a
          - Reconciling
          + Plan False TerraformPlannedNoChanges: Plan no changes
",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_auto_holds_and_its_approval() {
    let traced = Traced::new().await;
    let env = &traced.env;
    env.commit("a", &[("main.tf", MODULE)]).await;
    env.stack(STACK, json!({ "autoApply": { "hold": ["create"] } }))
        .await;
    let held_stack = env
        .wait_ready(STACK, "Unknown TerraformPlannedWithChanges Plan generated: set")
        .await;
    env.edit(STACK, json!({ "approvePlan": pending(&held_stack) }))
        .await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    traced
        .assert_trace(
            r#"
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown TerraformPlannedWithChanges: Plan generated: set approvePlan: "the id at a" to approve this plan. It is not applied automatically: 1 create (autoApply.hold): terraform_data.it. Set approvePlan back afterwards.
          + Plan True TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Initializing
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Applied successfully: revision a
          - Reconciling
          + Apply True TerraformAppliedSucceed: Applied successfully
          + Output True TerraformOutputsAvailable: Outputs available
"#,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_plan_is_created_again_under_its_approval() {
    let traced = Traced::new().await;
    let env = &traced.env;
    env.commit("a", &[("main.tf", MODULE)]).await;
    env.stack(STACK, json!({})).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    let vars = json!([{ "name": "size", "value": "two" }]);
    env.edit(STACK, json!({ "approvePlan": "", "vars": vars })).await;
    let id = pending(&env.wait_ready(STACK, "Unknown TerraformPlannedWithChanges").await);
    env.raise_serial(STACK).await;
    env.edit(STACK, json!({ "approvePlan": id })).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
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
        # Nothing was applied. A new plan with the same effect is still approved, and `Ready` reports no failure.
        Ready Unknown Progressing: Initializing
          + Apply False TerraformAppliedFail: nothing was applied, the state has changed since the plan: exit status 1 …
        Ready Unknown Progressing: Terraform Planning
        Ready Unknown Progressing: Initializing
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Applied successfully: revision a
          - Reconciling
          + Apply True TerraformAppliedSucceed: Applied successfully
"#
        ))
        .await;
}
