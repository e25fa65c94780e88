//! Objects, plans and states of tofu-controller are taken over.

use std::io::Write;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::terraform::Terraform;

use crate::environment::TestEnvironment;
use crate::observe::{condition, pending};

const STACK: &str = "resource \"terraform_data\" \"it\" { input = \"one\" }";

/// Returns the state of the module after an apply, as the Secret of the kubernetes backend.
fn state() -> Value {
    let value = json!({ "value": "one", "type": "string" });
    let attributes = json!({ "id": "0d9a6f9e-0000-0000-0000-000000000000", "input": value, "output": value, "triggers_replace": null });
    let state = json!({ "version": 4, "terraform_version": "1.9.0", "serial": 3, "outputs": {}, "check_results": null,
        "lineage": "6ce0f7a2-0000-0000-0000-000000000000",
        "resources": [{ "mode": "managed", "type": "terraform_data", "name": "it",
            "provider": "provider[\"terraform.io/builtin/terraform\"]",
            "instances": [{ "schema_version": 0, "attributes": attributes, "sensitive_attributes": [] }] }] });
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(state.to_string().as_bytes()).unwrap();
    json!({ "metadata": { "name": "tfstate-default-net", "annotations": { "encoding": "gzip" },
            "labels": { "tfstate": "true", "tfstateSecretSuffix": "net", "tfstateWorkspace": "default",
                        "app.kubernetes.io/managed-by": "terraform" } },
        "data": { "tfstate": ByteString(gzip.finish().unwrap()) } })
}

/// Returns the Secret of a plan of tofu-controller 0.16: fixed name, labels, owned but not controlled.
fn plan_secret(uid: &str, id: &str) -> Value {
    json!({ "metadata": { "name": "tfplan-default-net",
            "labels": { "infra.contrib.fluxcd.io/plan-name": "net", "infra.contrib.fluxcd.io/plan-workspace": "default" },
            "annotations": { "encoding": "gzip", "savedPlan": id, "infra.contrib.fluxcd.io/plan-full-name": "net",
                "infra.contrib.fluxcd.io/plan-full-workspace": "default", "infra.contrib.fluxcd.io/plan-hash": "00" },
            "ownerReferences": [{ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform", "name": "net", "uid": uid }] },
        "type": "Opaque", "data": { "tfplan": ByteString(b"not ours".to_vec()) } })
}

fn condition_json(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1 })
}

/// Creates the object with finalizer, status, plan and state of the other controller.
async fn create_taken_over(env: &TestEnvironment, spec: Value, status: Value, plan: &str) {
    env.stack("net", spec).await;
    let api: Api<Terraform> = env.api();
    let body = json!({ "metadata": { "finalizers": ["finalizers.tf.contrib.fluxcd.io"] } });
    let stack = api
        .patch("net", &PatchParams::default(), &Patch::Merge(body))
        .await
        .unwrap();
    let status = json!({ "status": status });
    api.patch_status("net", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    let secrets: Api<Secret> = env.api();
    for secret in [state(), plan_secret(&stack.uid().unwrap(), plan)] {
        secrets
            .create(&PostParams::default(), &serde_json::from_value(secret).unwrap())
            .await
            .unwrap();
    }
}

fn applied_status(revision: &str, last_success: &str) -> Value {
    json!({ "observedGeneration": 1, "lastAppliedRevision": revision, "lastAttemptedRevision": revision,
        "lastPlannedRevision": revision, "lastPlannedGeneration": 1, "lastPlanAt": last_success,
        "lastSuccessfulReconcileAt": last_success,
        "plan": { "lastApplied": "plan-main-aaaaaaaaaa", "pending": "", "isDriftDetectionPlan": false },
        "conditions": [
            condition_json("Ready", "True", "TerraformAppliedSucceed", &format!("Applied successfully: {revision}")),
            condition_json("Apply", "True", "TerraformAppliedSucceed", "Applied successfully"),
            condition_json("Plan", "True", "TerraformPlannedWithChanges", "Plan generated"),
        ] })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_applied_stack_is_not_planned_before_its_interval() {
    let mut env = TestEnvironment::without_controller().await;
    let revision = env.commit("a", &[("main.tf", STACK)]).await;
    let revision_now = "2100-01-01T00:00:00Z"; // the interval never ends
    create_taken_over(
        &env,
        json!({ "interval": "1h" }),
        applied_status(&revision, revision_now),
        "plan-main-aaaaaaaaaa",
    )
    .await;
    env.start(4).await;
    // A request starts the first run.
    env.request("net", "first").await;
    let run = env
        .wait_run("net", "the check", |run| {
            run.status.as_ref().is_some_and(|s| s.phase.is_final())
        })
        .await;
    assert_eq!(run.name_any().rsplit('-').next(), Some("1"));
    let ready = env.wait_ready("net", "True").await;
    assert_eq!(
        env.history("net").await,
        "1 Plan Request 1: Succeeded TerraformPlannedNoChanges +0 ~0 -0"
    );
    assert!(condition(&ready, "Apply").starts_with("True TerraformAppliedSucceed"));
    let secrets: Api<Secret> = env.api();
    let old = secrets.get_opt("tfplan-default-net").await.unwrap();
    assert!(old.is_none(), "the plan of tofu-controller is deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_check_of_a_taken_over_stack_is_drift_detection() {
    let mut env = TestEnvironment::without_controller().await;
    let revision = env.commit("a", &[("main.tf", STACK)]).await;
    let long_ago = "2026-01-01T00:00:00Z";
    create_taken_over(
        &env,
        json!({ "interval": "2s" }),
        applied_status(&revision, long_ago),
        "plan-main-aaaaaaaaaa",
    )
    .await;
    env.start(4).await;
    env.wait_ready("net", &format!("True NoDrift No drift: {revision}"))
        .await;
    let history = env.history("net").await;
    assert!(
        history.starts_with("1 Plan Interval 1: Succeeded TerraformPlannedNoChanges +0 ~0 -0"),
        "{history}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn another_revision_or_generation_is_planned() {
    for (revision, generation) in [("main@sha1:before", 1), ("", 7)] {
        let mut env = TestEnvironment::without_controller().await;
        let revision_now = env.commit("a", &[("main.tf", STACK)]).await;
        let revision = if revision.is_empty() {
            &revision_now
        } else {
            revision
        };
        let mut status = applied_status(revision, "2100-01-01T00:00:00Z");
        status["observedGeneration"] = json!(generation);
        create_taken_over(&env, json!({}), status, "plan-main-aaaaaaaaaa").await;
        env.start(4).await;
        env.wait_ready("net", "True TerraformPlannedNoChanges").await;
        assert_eq!(
            env.history("net").await,
            "1 PlanAndApply Revision 1: Succeeded TerraformPlannedNoChanges +0 ~0 -0"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_plan_is_created_again_and_its_old_id_approves_nothing() {
    let mut env = TestEnvironment::without_controller().await;
    let revision = env
        .commit(
            "a",
            &[(
                "main.tf",
                "resource \"terraform_data\" \"it\" { input = \"two\" }",
            )],
        )
        .await;
    let mut status = applied_status(&revision, "2026-01-01T00:00:00Z");
    status["plan"]["pending"] = json!("plan-main-aaaaaaaaaa");
    status["conditions"] = json!([condition_json(
        "Ready",
        "Unknown",
        "TerraformPlannedWithChanges",
        "Plan generated: set approvePlan: \"plan-main-aaaaaaaaaa\" to approve this plan."
    )]);
    // Approved while no controller was running.
    let spec = json!({ "approvePlan": "plan-main-aaaaaaaaaa" });
    create_taken_over(&env, spec, status, "plan-main-aaaaaaaaaa").await;
    env.start(4).await;
    let waiting = env
        .wait_for("net", "a plan of ours", |stack| {
            pending(stack).len() > "plan-main-aaaaaaaaaa".len()
        })
        .await;
    let ready = condition(
        &env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await,
        "Ready",
    );
    assert!(
        ready.contains(&pending(&waiting)) && ready.contains("(approvePlan"),
        "{ready}"
    );
    env.wait_event("net", "TerraformPlanReplaced").await;
    assert_eq!(
        env.history("net").await,
        "1 Plan Revision 1: Succeeded TerraformPlannedWithChanges +0 ~1 -0"
    );
    env.edit("net", json!({ "approvePlan": pending(&waiting) })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
}
