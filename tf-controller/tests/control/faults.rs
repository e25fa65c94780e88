//! Bad input and failing runs: said on the object, no business of the others, over when the cause is gone.

use crate::artifacts::{digest, pack};
use crate::looks::condition;
use crate::world::{NAMESPACE, World};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams},
};
use serde_json::json;
use sluice_api::run::TerraformRun;

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;
/// Applies one resource, then fails unless the marker is there.
const HALF: &str = r#"
variable "marker" {}
resource "terraform_data" "first" {}
resource "terraform_data" "second" {
  depends_on = [terraform_data.first]
  provisioner "local-exec" { command = "test -e ${var.marker}" }
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn missing_variables_are_named_and_awaited() {
    let world = World::new().await;
    world
        .commit(
            "a",
            &[(
                "main.tf",
                "variable \"token\" {}\noutput \"token\" { value = \"<${var.token}>\" }",
            )],
        )
        .await;
    let from = json!([{ "kind": "Secret", "name": "login" }]);
    world
        .stack(
            "net",
            json!({ "varsFrom": from, "writeOutputsToSecret": { "name": "out" } }),
        )
        .await;
    let missing = world.ready("net", "False VarsGenerationFailed").await;
    assert!(condition(&missing, "Ready").contains("login"));
    assert!(world.runs("net").await.is_empty());
    world.secret("login", &[("token", "t1")]).await;
    world.ready("net", "True TerraformOutputsWritten").await;
    assert_eq!(world.value("out", "token").await.as_deref(), Some("<t1>"));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_code_fails_by_name_and_a_good_commit_mends_it() {
    let world = World::new().await;
    world
        .commit(
            "a",
            &[
                ("parse/main.tf", "resource \"terraform_data"),
                ("plan/main.tf", "output \"x\" { value = file(\"no-such-file\") }"),
                ("good/main.tf", SIMPLE),
            ],
        )
        .await;
    for name in ["parse", "plan", "good", "nowhere"] {
        world.stack(name, json!({ "path": name })).await;
    }
    world.ready("good", "True TerraformAppliedSucceed").await;
    let parse = world.ready("parse", "False TFExecInitFailed").await;
    let plan = world
        .ready("plan", "False TFExecPlanFailed error running Plan: ")
        .await;
    world.ready("nowhere", "False ArtifactFailed").await;
    assert!(
        condition(&plan, "Ready").contains("no-such-file"),
        "{}",
        condition(&plan, "Ready")
    );
    assert!(condition(&parse, "Reconciling").contains("ProgressingWithRetry"));
    world.event("plan", "Warning TFExecPlanFailed").await;
    world
        .run("plan", "tried again", |run| run.spec.trigger.as_str() == "Retry")
        .await;
    world
        .commit(
            "b",
            &[
                ("parse/main.tf", SIMPLE),
                ("plan/main.tf", SIMPLE),
                ("good/main.tf", SIMPLE),
                ("nowhere/main.tf", SIMPLE),
            ],
        )
        .await;
    for name in ["parse", "plan", "nowhere"] {
        let mended = world.ready(name, "True TerraformAppliedSucceed").await;
        assert_eq!(mended.status.unwrap().reconciliation_failures, 0);
    }
    assert_eq!(world.runs("good").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_that_fails_half_way_is_planned_again_and_finished() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", HALF)]).await;
    let vars = |name| json!([{ "name": "marker", "value": world.path(name) }]);
    world.stack("auto", json!({ "vars": vars("auto") })).await;
    world
        .stack("manual", json!({ "vars": vars("manual"), "approvePlan": "" }))
        .await;
    let first = crate::looks::pending(
        &world
            .ready(
                "manual",
                "Unknown TerraformPlannedWithChanges Plan generated: set",
            )
            .await,
    );
    world.edit("manual", json!({ "approvePlan": first })).await;
    let failed = world
        .until("auto", "failed", |s| {
            condition(s, "Apply").starts_with("False TerraformAppliedFail")
        })
        .await;
    assert!(failed.status.as_ref().unwrap().reconciliation_failures >= 1);
    world.event("auto", "Warning TFExecApplyFailed").await;
    std::fs::write(world.path("auto"), "").unwrap();
    world.ready("auto", "True TerraformAppliedSucceed").await;
    // In manual the new plan is another effect, and waits.
    let again = world
        .ready(
            "manual",
            "Unknown TerraformPlannedWithChanges Plan generated: set",
        )
        .await;
    let second = crate::looks::pending(&again);
    assert_ne!(first, second);
    std::fs::write(world.path("manual"), "").unwrap();
    world.edit("manual", json!({ "approvePlan": second })).await;
    world.ready("manual", "True TerraformAppliedSucceed").await;
    insta::assert_snapshot!(world.history("manual").await, @"
    1 Plan Revision 1: Succeeded TerraformPlannedWithChanges +2 ~0 -0
    2 Apply Approval 1: Failed TFExecApplyFailed
    3 Plan Retry 2: Succeeded TerraformPlannedWithChanges +1 ~0 -1
    4 Apply Approval 2: Succeeded TerraformAppliedSucceed
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_retry_limit_keeps_the_failure_and_a_request_gives_new_tries() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", HALF)]).await;
    let vars = json!([{ "name": "marker", "value": world.path("marker") }]);
    world
        .stack("net", json!({ "vars": vars, "remediation": { "retries": 2 } }))
        .await;
    let stalled = world
        .until("net", "stalled", |s| {
            condition(s, "Stalled").starts_with("True RetryLimitReached")
        })
        .await;
    assert!(
        condition(&stalled, "Ready").starts_with("False TFExecApplyFailed error running Apply: "),
        "{}",
        condition(&stalled, "Ready")
    );
    assert_eq!(stalled.status.unwrap().reconciliation_failures, 2);
    assert_eq!(world.runs("net").await.len(), 2);
    std::fs::write(world.path("marker"), "").unwrap();
    world.request("net", "again").await;
    let done = world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(condition(&done, "Stalled"), "");
    assert_eq!(done.status.unwrap().last_handled_reconcile_at, "again");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_artifacts_are_refused_and_a_good_one_mends_it() {
    let world = World::new().await;
    world.stack("net", json!({})).await;
    world
        .ready(
            "net",
            "False ArtifactFailed GitRepository.source.toolkit.fluxcd.io \"code\" not found",
        )
        .await;
    let evil = pack(&[("main.tf", SIMPLE), ("../outside.tf", "x")]);
    world.publish("a", evil.clone(), &digest(&evil)).await;
    let escape = world
        .until("net", "refused", |s| condition(s, "Ready").contains("outside"))
        .await;
    assert!(
        condition(&escape, "Ready").starts_with("False ArtifactFailed"),
        "{}",
        condition(&escape, "Ready")
    );
    world
        .publish("b", pack(&[("main.tf", SIMPLE)]), &digest(b"something else"))
        .await;
    let wrong = world
        .until("net", "refused", |s| condition(s, "Ready").contains("digest"))
        .await;
    assert!(
        condition(&wrong, "Ready").starts_with("False ArtifactFailed"),
        "{}",
        condition(&wrong, "Ready")
    );
    assert!(world.runs("net").await.is_empty());
    world.commit("c", &[("main.tf", SIMPLE)]).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_does_not_decode_stops_nobody() {
    let mut world = World::without_controller().await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("bad", json!({ "interval": "soon" })).await;
    world.start(4).await;
    world.stack("good", json!({})).await;
    world.ready("good", "True TerraformAppliedSucceed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_does_not_decode_is_named_and_nothing_is_started_beside_it() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("net", json!({})).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    // As a newer version may have left it.
    let resource = ApiResource::erase::<TerraformRun>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), NAMESPACE, &resource);
    let first = world.runs("net").await.remove(0);
    let mut strange = serde_json::to_value(&first).unwrap();
    let name = first.name_any().replace("-1", "-2");
    strange["metadata"] = json!({ "name": name, "labels": first.metadata.labels,
        "ownerReferences": first.metadata.owner_references });
    strange["spec"]["deadline"] = json!("until the cows come home");
    api.create(&PostParams::default(), &serde_json::from_value(strange).unwrap())
        .await
        .unwrap();
    world.commit("b", &[("main.tf", "")]).await;
    let told = world.ready("net", "False RunUnreadable").await;
    assert!(
        condition(&told, "Ready").contains(&format!("TerraformRun {name} cannot be read")),
        "{}",
        condition(&told, "Ready")
    );
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 2);
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    world.ready("net", "True TerraformAppliedSucceed").await;
}
