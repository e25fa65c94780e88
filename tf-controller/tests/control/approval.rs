//! Plans that wait, approvals that count and those that do not.

use crate::looks::{condition, pending};
use crate::world::World;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use sluice_api::run::TerraformRun;

const STACK: &str = r#"
variable "size" { default = "one" }
resource "terraform_data" "it" { input = var.size }
output "size" { value = terraform_data.it.output }
"#;

fn vars(size: &str) -> serde_json::Value {
    json!([{ "name": "size", "value": size }])
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_whole_id_approves_a_plan() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", STACK)]).await;
    world.stack("net", json!({ "approvePlan": "" })).await;
    let waiting = world
        .ready(
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
        world.edit("net", json!({ "approvePlan": wrong })).await;
        let still = world.ready("net", "Unknown TerraformPlannedWithChanges").await;
        assert_eq!(pending(&still), id);
        assert!(
            condition(&still, "Ready").contains("(approvePlan"),
            "why it approves nothing is said"
        );
    }
    assert_eq!(
        world.history("net").await,
        "1 Plan Revision 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_is_left_over_approves_nothing_else() {
    let world = World::new().await;
    let revision = world.commit("a", &[("main.tf", STACK)]).await;
    world
        .stack(
            "net",
            json!({ "approvePlan": "", "writeOutputsToSecret": { "name": "out" } }),
        )
        .await;
    let id = pending(&world.ready("net", "Unknown TerraformPlannedWithChanges").await);
    world.edit("net", json!({ "approvePlan": id })).await;
    let done = world
        .ready(
            "net",
            &format!("True TerraformOutputsWritten Outputs written: {revision}"),
        )
        .await;
    assert_eq!(
        done.status.as_ref().unwrap().plan.as_ref().unwrap().last_applied,
        id
    );
    assert_eq!(world.value("out", "size").await.as_deref(), Some("one"));

    // The id still stands in the spec. A later change at the same revision is another effect: it waits.
    world.edit("net", json!({ "vars": vars("two") })).await;
    let waiting = world.ready("net", "Unknown TerraformPlannedWithChanges").await;
    assert_ne!(pending(&waiting), id);
    // And the way back has the old effect, but not the old id.
    world
        .edit("net", json!({ "approvePlan": pending(&waiting) }))
        .await;
    world.ready("net", "True TerraformOutputsWritten").await;
    assert_eq!(world.value("out", "size").await.as_deref(), Some("two"));
    insta::assert_snapshot!(world.history("net").await, @"
    1 Plan Revision 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0
    2 Apply Approval 1: Succeeded TerraformOutputsWritten
    3 Plan Spec 1: Succeeded TerraformPlannedWithChanges +0 ~1 -0
    4 Apply Approval 1: Succeeded TerraformOutputsWritten
    ");
    world.event("net", "TerraformPlanSucceed").await;
    world.event("net", "TerraformAppliedSucceed").await;
    world.event("net", "TerraformOutputsWritten").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_counts_once_even_when_runs_and_state_are_deleted() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", STACK)]).await;
    world.stack("net", json!({ "approvePlan": "" })).await;
    let first = pending(&world.ready("net", "Unknown TerraformPlannedWithChanges").await);
    world.edit("net", json!({ "approvePlan": first })).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    world.edit("net", json!({ "suspend": true })).await;
    world.no_bundles().await;
    let runs: Api<TerraformRun> = world.api();
    runs.delete_collection(&DeleteParams::default(), &ListParams::default())
        .await
        .unwrap();
    let secrets: Api<Secret> = world.api();
    secrets
        .delete("tfstate-default-net", &DeleteParams::default())
        .await
        .unwrap();
    // The very same plan again, and its first id in the spec: it waits all the same.
    world.edit("net", json!({ "suspend": false })).await;
    let again = world
        .ready("net", "Unknown TerraformPlannedWithChanges Plan generated: set")
        .await;
    assert_ne!(pending(&again), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_and_new_variables_in_one_edit_apply_the_new_variables() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", STACK)]).await;
    world
        .stack(
            "net",
            json!({ "approvePlan": "", "writeOutputsToSecret": { "name": "out" } }),
        )
        .await;
    world.ready("net", "Unknown TerraformPlannedWithChanges").await;
    world
        .edit("net", json!({ "approvePlan": "auto", "vars": vars("new") }))
        .await;
    world.ready("net", "True TerraformOutputsWritten").await;
    assert_eq!(world.value("out", "size").await.as_deref(), Some("new"));
    insta::assert_snapshot!(world.history("net").await, @"
    1 Plan Revision 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0
    2 PlanAndApply Spec 1: Succeeded TerraformOutputsWritten +1 ~0 -0
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_only_shows_and_never_applies_until_it_is_lifted() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", STACK)]).await;
    world.stack("net", json!({ "planOnly": true })).await;
    world
        .ready(
            "net",
            "Unknown TerraformPlannedWithChanges Plan generated: This object is in the plan only mode.",
        )
        .await;
    world.edit("net", json!({ "planOnly": false })).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    insta::assert_snapshot!(world.history("net").await, @"
    1 Plan Revision 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0
    2 Apply Approval 1: Succeeded TerraformAppliedSucceed
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_plan_is_made_again_and_the_same_effect_is_applied() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", STACK)]).await;
    world.stack("net", json!({})).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    world
        .edit("net", json!({ "approvePlan": "", "vars": vars("two") }))
        .await;
    let id = pending(&world.ready("net", "Unknown TerraformPlannedWithChanges").await);
    world.raise_serial("net").await;
    world.edit("net", json!({ "approvePlan": id })).await;
    let done = world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(done.status.unwrap().plan.unwrap().last_applied, id);
    insta::assert_snapshot!(world.history("net").await, @"
    1 PlanAndApply Revision 1: Succeeded TerraformAppliedSucceed +1 ~0 -0
    2 Plan Spec 1: Succeeded TerraformPlannedWithChanges +0 ~1 -0
    3 Apply Approval 1: Failed PlanStale
    4 Plan Retry 2: Succeeded TerraformPlannedWithChanges +0 ~1 -0
    5 Apply Approval 2: Succeeded TerraformAppliedSucceed
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_makes_a_plan_that_waits_anew_and_its_approval_stands() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", STACK)]).await;
    for (name, spec) in [
        ("net", json!({ "approvePlan": "" })),
        ("shown", json!({ "planOnly": true })),
    ] {
        world.stack(name, spec).await;
        let id = pending(&world.ready(name, "Unknown TerraformPlannedWithChanges").await);
        // As `tfctl replan` does it: what the status says of the plan is taken away, then a pass is asked for.
        let blank = json!({ "status": { "plan": { "pending": "" }, "lastPlannedRevision": "", "lastAttemptedRevision": "" } });
        let stacks: Api<sluice_api::terraform::Terraform> = world.api();
        stacks
            .patch_status(name, &PatchParams::default(), &Patch::Merge(blank))
            .await
            .unwrap();
        world.request(name, "again").await;
        let waiting = world
            .until(name, "planned again", |stack| {
                let status = stack.status.as_ref();
                status.is_some_and(|status| status.last_handled_reconcile_at == "again")
            })
            .await;
        assert_eq!(pending(&waiting), id, "the same effect has the same id");
        assert!(condition(&waiting, "Ready").starts_with("Unknown TerraformPlannedWithChanges"));
        assert_eq!(
            world.history(name).await,
            "1 Plan Revision 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0\n\
             2 Plan Request 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0"
        );
        world.event(name, "Normal ReplanRequested").await;
    }
    let id = pending(&world.ready("net", "Unknown TerraformPlannedWithChanges").await);
    world.edit("net", json!({ "approvePlan": id })).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
}
