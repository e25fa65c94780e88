//! Pending plans, valid approvals and void ones.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use sluice_api::run::TerraformRun;

use crate::environment::TestEnvironment;
use crate::observe::{condition, pending};

const STACK: &str = r#"
variable "size" { default = "one" }
resource "terraform_data" "it" { input = var.size }
output "size" { value = terraform_data.it.output }
"#;

fn vars(size: &str) -> serde_json::Value {
    json!([{ "name": "size", "value": size }])
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_complete_id_approves_a_plan() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", STACK)]).await;
    env.stack("net", json!({ "approvePlan": "" })).await;
    let waiting = env
        .wait_ready(
            "net",
            "Unknown TerraformPlannedWithChanges Plan generated: set approvePlan: ",
        )
        .await;
    let id = pending(&waiting);
    assert!(
        id.starts_with("plan-main-aaaaaaaaaa-") && condition(&waiting, "Ready").contains(&id),
        "{id}"
    );

    for wrong in [
        &id[..id.len() - 1],
        "plan-main-aaaaaaaaaa",
        "p",
        "plan-main-aaaaaaaaaa-0123456789012345678901234567890123456789",
    ] {
        env.edit("net", json!({ "approvePlan": wrong })).await;
        let still = env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await;
        assert_eq!(pending(&still), id);
        assert!(
            condition(&still, "Ready").contains("(approvePlan"),
            "the reason why it approves nothing is reported"
        );
    }
    assert_eq!(
        env.history("net").await,
        "1 Plan Revision 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_approval_approves_nothing_else() {
    let env = TestEnvironment::new().await;
    let revision = env.commit("a", &[("main.tf", STACK)]).await;
    env.stack(
        "net",
        json!({ "approvePlan": "", "writeOutputsToSecret": { "name": "out" } }),
    )
    .await;
    let id = pending(&env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await);
    env.edit("net", json!({ "approvePlan": id })).await;
    let done = env
        .wait_ready(
            "net",
            &format!("True TerraformOutputsWritten Outputs written: {revision}"),
        )
        .await;
    assert_eq!(
        done.status.as_ref().unwrap().plan.as_ref().unwrap().last_applied,
        id
    );
    assert_eq!(env.value("out", "size").await.as_deref(), Some("one"));

    // The spec still has the old id. A later change at the same revision has another effect, so it must wait.
    env.edit("net", json!({ "vars": vars("two") })).await;
    let waiting = env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await;
    assert_ne!(pending(&waiting), id);
    // Reverting the change gives the old effect, but not the old id.
    env.edit("net", json!({ "approvePlan": pending(&waiting) })).await;
    env.wait_ready("net", "True TerraformOutputsWritten").await;
    assert_eq!(env.value("out", "size").await.as_deref(), Some("two"));
    insta::assert_snapshot!(env.history("net").await, @"
    1 Plan Revision 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0
    2 Apply Approval 1: Succeeded TerraformOutputsWritten
    3 Plan Spec 1: Succeeded TerraformPlannedWithChanges +0 ~1 -0
    4 Apply Approval 1: Succeeded TerraformOutputsWritten
    ");
    env.wait_event("net", "TerraformPlanSucceed").await;
    env.wait_event("net", "TerraformAppliedSucceed").await;
    env.wait_event("net", "TerraformOutputsWritten").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_counts_once_even_if_runs_and_state_are_deleted() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", STACK)]).await;
    env.stack("net", json!({ "approvePlan": "" })).await;
    let first = pending(&env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await);
    env.edit("net", json!({ "approvePlan": first })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.edit("net", json!({ "suspend": true })).await;
    env.wait_until_no_bundles().await;
    let runs: Api<TerraformRun> = env.api();
    runs.delete_collection(&DeleteParams::default(), &ListParams::default())
        .await
        .unwrap();
    let secrets: Api<Secret> = env.api();
    secrets
        .delete("tfstate-default-net", &DeleteParams::default())
        .await
        .unwrap();
    // The same plan again with its first id in the spec must wait all the same.
    env.edit("net", json!({ "suspend": false })).await;
    let again = env
        .wait_ready("net", "Unknown TerraformPlannedWithChanges Plan generated: set")
        .await;
    assert_ne!(pending(&again), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_and_new_variables_in_one_edit_apply_the_new_variables() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", STACK)]).await;
    env.stack(
        "net",
        json!({ "approvePlan": "", "writeOutputsToSecret": { "name": "out" } }),
    )
    .await;
    env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await;
    env.edit("net", json!({ "approvePlan": "auto", "vars": vars("new") }))
        .await;
    env.wait_ready("net", "True TerraformOutputsWritten").await;
    assert_eq!(env.value("out", "size").await.as_deref(), Some("new"));
    insta::assert_snapshot!(env.history("net").await, @"
    1 Plan Revision 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0
    2 PlanAndApply Spec 1: Succeeded TerraformOutputsWritten +1 ~0 -0
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_only_shows_plans_and_never_applies_until_it_is_disabled() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", STACK)]).await;
    env.stack("net", json!({ "planOnly": true })).await;
    env.wait_ready(
        "net",
        "Unknown TerraformPlannedWithChanges Plan generated: This object is in the plan only mode.",
    )
    .await;
    env.edit("net", json!({ "planOnly": false })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    insta::assert_snapshot!(env.history("net").await, @"
    1 Plan Revision 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0
    2 Apply Approval 1: Succeeded TerraformAppliedSucceed
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_plan_is_replaced_and_the_same_effect_is_applied() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", STACK)]).await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.edit("net", json!({ "approvePlan": "", "vars": vars("two") }))
        .await;
    let id = pending(&env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await);
    env.raise_serial("net").await;
    env.edit("net", json!({ "approvePlan": id })).await;
    let done = env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(done.status.unwrap().plan.unwrap().last_applied, id);
    insta::assert_snapshot!(env.history("net").await, @"
    1 PlanAndApply Revision 1: Succeeded TerraformAppliedSucceed +1 ~0 -0
    2 Plan Spec 1: Succeeded TerraformPlannedWithChanges +0 ~1 -0
    3 Apply Approval 1: Failed PlanStale
    4 Plan Retry 2: Succeeded TerraformPlannedWithChanges +0 ~1 -0
    5 Apply Approval 2: Succeeded TerraformAppliedSucceed
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replan_request_creates_a_pending_plan_and_keeps_the_approval() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", STACK)]).await;
    for (name, spec) in [
        ("net", json!({ "approvePlan": "" })),
        ("shown", json!({ "planOnly": true })),
    ] {
        env.stack(name, spec).await;
        let id = pending(&env.wait_ready(name, "Unknown TerraformPlannedWithChanges").await);
        // As `tfctl replan`: removes the plan from the status and requests a reconciliation.
        let blank = json!({ "status": { "plan": { "pending": "" }, "lastPlannedRevision": "", "lastAttemptedRevision": "" } });
        let stacks: Api<sluice_api::terraform::Terraform> = env.api();
        stacks
            .patch_status(name, &PatchParams::default(), &Patch::Merge(blank))
            .await
            .unwrap();
        env.request(name, "again").await;
        let waiting = env
            .wait_for(name, "planned again", |stack| {
                let status = stack.status.as_ref();
                status.is_some_and(|status| status.last_handled_reconcile_at == "again")
            })
            .await;
        assert_eq!(pending(&waiting), id, "the same effect has the same id");
        assert!(condition(&waiting, "Ready").starts_with("Unknown TerraformPlannedWithChanges"));
        assert_eq!(
            env.history(name).await,
            "1 Plan Revision 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0\n\
             2 Plan Request 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0"
        );
        env.wait_event(name, "Normal ReplanRequested").await;
    }
    let id = pending(&env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await);
    env.edit("net", json!({ "approvePlan": id })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
}
