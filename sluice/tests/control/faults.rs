//! Bad input and failing runs: reported on the object, without effect on other objects, and resolved when the cause is fixed.

use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use sluice_api::run::TerraformRun;

use crate::artifacts::{digest, pack};
use crate::environment::{NAMESPACE, TestEnvironment};
use crate::observe::condition;

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;
/// Applies one resource, then fails unless the marker file exists.
const FAILS_WITHOUT_MARKER: &str = r#"
variable "marker" {}
resource "terraform_data" "first" {}
resource "terraform_data" "second" {
  depends_on = [terraform_data.first]
  provisioner "local-exec" { command = "test -e ${var.marker}" }
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn missing_variables_are_reported_and_awaited() {
    let env = TestEnvironment::new().await;
    env.commit(
        "a",
        &[(
            "main.tf",
            "variable \"token\" {}\noutput \"token\" { value = \"<${var.token}>\" }",
        )],
    )
    .await;
    let from = json!([{ "kind": "Secret", "name": "login" }]);
    env.stack(
        "net",
        json!({ "varsFrom": from, "writeOutputsToSecret": { "name": "out" } }),
    )
    .await;
    let missing = env.wait_ready("net", "False VarsGenerationFailed").await;
    assert!(condition(&missing, "Ready").contains("login"));
    assert!(env.runs("net").await.is_empty());
    env.secret("login", &[("token", "t1")]).await;
    env.wait_ready("net", "True TerraformOutputsWritten").await;
    assert_eq!(env.value("out", "token").await.as_deref(), Some("<t1>"));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_code_is_reported_and_fixed_by_a_good_commit() {
    let env = TestEnvironment::new().await;
    env.commit(
        "a",
        &[
            ("parse/main.tf", "resource \"terraform_data"),
            ("plan/main.tf", "output \"x\" { value = file(\"no-such-file\") }"),
            ("good/main.tf", SIMPLE),
        ],
    )
    .await;
    for name in ["parse", "plan", "good", "nowhere"] {
        env.stack(name, json!({ "path": name })).await;
    }
    env.wait_ready("good", "True TerraformAppliedSucceed").await;
    let parse = env.wait_ready("parse", "False TFExecInitFailed").await;
    let plan = env
        .wait_ready("plan", "False TFExecPlanFailed error running Plan: ")
        .await;
    env.wait_ready("nowhere", "False ArtifactFailed").await;
    assert!(
        condition(&plan, "Ready").contains("no-such-file"),
        "{}",
        condition(&plan, "Ready")
    );
    assert!(condition(&parse, "Reconciling").contains("ProgressingWithRetry"));
    env.wait_event("plan", "Warning TFExecPlanFailed").await;
    env.wait_run("plan", "tried again", |run| run.spec.trigger.as_str() == "Retry")
        .await;
    env.commit(
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
        let repaired = env.wait_ready(name, "True TerraformAppliedSucceed").await;
        assert_eq!(repaired.status.unwrap().reconciliation_failures, 0);
    }
    assert_eq!(env.runs("good").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partially_failed_apply_is_planned_again_and_completed() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", FAILS_WITHOUT_MARKER)]).await;
    let vars = |name| json!([{ "name": "marker", "value": env.path(name) }]);
    env.stack("auto", json!({ "vars": vars("auto") })).await;
    env.stack("manual", json!({ "vars": vars("manual"), "approvePlan": "" }))
        .await;
    let first = crate::observe::pending(
        &env.wait_ready(
            "manual",
            "Unknown TerraformPlannedWithChanges Plan generated: set",
        )
        .await,
    );
    env.edit("manual", json!({ "approvePlan": first })).await;
    let failed = env
        .wait_for("auto", "failed", |s| {
            condition(s, "Apply").starts_with("False TerraformAppliedFail")
        })
        .await;
    assert!(failed.status.as_ref().unwrap().reconciliation_failures >= 1);
    env.wait_event("auto", "Warning TFExecApplyFailed").await;
    std::fs::write(env.path("auto"), "").unwrap();
    env.wait_ready("auto", "True TerraformAppliedSucceed").await;
    // In manual mode the new plan has another effect and waits.
    let again = env
        .wait_ready(
            "manual",
            "Unknown TerraformPlannedWithChanges Plan generated: set",
        )
        .await;
    let second = crate::observe::pending(&again);
    assert_ne!(first, second);
    std::fs::write(env.path("manual"), "").unwrap();
    env.edit("manual", json!({ "approvePlan": second })).await;
    env.wait_ready("manual", "True TerraformAppliedSucceed").await;
    insta::assert_snapshot!(env.history("manual").await, @"
    1 Plan Revision 1: Succeeded TerraformPlannedWithChanges +2 ~0 -0
    2 Apply Approval 1: Failed TFExecApplyFailed
    3 Plan Retry 2: Succeeded TerraformPlannedWithChanges +1 ~0 -1
    4 Apply Approval 2: Succeeded TerraformAppliedSucceed
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_retry_limit_keeps_the_failure_and_a_request_resets_it() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", FAILS_WITHOUT_MARKER)]).await;
    let vars = json!([{ "name": "marker", "value": env.path("marker") }]);
    env.stack("net", json!({ "vars": vars, "remediation": { "retries": 2 } }))
        .await;
    let stalled = env
        .wait_for("net", "stalled", |s| {
            condition(s, "Stalled").starts_with("True RetryLimitReached")
        })
        .await;
    assert!(
        condition(&stalled, "Ready").starts_with("False TFExecApplyFailed error running Apply: "),
        "{}",
        condition(&stalled, "Ready")
    );
    assert_eq!(stalled.status.unwrap().reconciliation_failures, 2);
    assert_eq!(env.runs("net").await.len(), 2);
    std::fs::write(env.path("marker"), "").unwrap();
    env.request("net", "again").await;
    let done = env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(condition(&done, "Stalled"), "");
    assert_eq!(done.status.unwrap().last_handled_reconcile_at, "again");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_artifacts_are_refused_and_fixed_by_a_good_one() {
    let env = TestEnvironment::new().await;
    env.stack("net", json!({})).await;
    env.wait_ready(
        "net",
        "False ArtifactFailed GitRepository.source.toolkit.fluxcd.io \"code\" not found",
    )
    .await;
    let evil = pack(&[("main.tf", SIMPLE), ("../outside.tf", "x")]);
    env.publish("a", evil.clone(), &digest(&evil)).await;
    let escape = env
        .wait_for("net", "refused", |s| condition(s, "Ready").contains("outside"))
        .await;
    assert!(
        condition(&escape, "Ready").starts_with("False ArtifactFailed"),
        "{}",
        condition(&escape, "Ready")
    );
    env.publish("b", pack(&[("main.tf", SIMPLE)]), &digest(b"something else"))
        .await;
    let wrong = env
        .wait_for("net", "refused", |s| condition(s, "Ready").contains("digest"))
        .await;
    assert!(
        condition(&wrong, "Ready").starts_with("False ArtifactFailed"),
        "{}",
        condition(&wrong, "Ready")
    );
    assert!(env.runs("net").await.is_empty());
    env.commit("c", &[("main.tf", SIMPLE)]).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_decoded_affects_no_other() {
    let mut env = TestEnvironment::without_controller().await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("bad", json!({ "interval": "soon" })).await;
    env.start(4).await;
    env.stack("good", json!({})).await;
    env.wait_ready("good", "True TerraformAppliedSucceed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_be_decoded_is_reported_and_blocks_new_runs() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    // As a newer version may have written it.
    let resource = ApiResource::erase::<TerraformRun>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(env.client.clone(), NAMESPACE, &resource);
    let first = env.runs("net").await.remove(0);
    let mut strange = serde_json::to_value(&first).unwrap();
    let name = first.name_any().replace("-1", "-2");
    strange["metadata"] = json!({ "name": name, "labels": first.metadata.labels,
        "ownerReferences": first.metadata.owner_references });
    strange["spec"]["deadline"] = json!("not a duration");
    api.create(&PostParams::default(), &serde_json::from_value(strange).unwrap())
        .await
        .unwrap();
    env.commit("b", &[("main.tf", "")]).await;
    let unreadable = env.wait_ready("net", "False RunUnreadable").await;
    assert!(
        condition(&unreadable, "Ready").contains(&format!("TerraformRun {name} cannot be read")),
        "{}",
        condition(&unreadable, "Ready")
    );
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 2);
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
}
