//! Obstacles to a run: no source, no artifact, missing inputs, a dependency, a lock, a denied reference.

use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_api::source::GitRepository;

use super::{FIRST_APPLY, MODULE, STACK, Traced};
use crate::artifacts::digest;
use crate::environment::SOURCE;
use crate::locks::{ID, lock_state};

#[tokio::test(flavor = "multi_thread")]
async fn no_source_no_artifact_a_broken_artifact_and_a_good_one() {
    let traced = Traced::new().await;
    let env = &traced.env;
    env.stack(STACK, json!({ "retryInterval": "1h" })).await;
    env.wait_ready(STACK, "False ArtifactFailed").await;
    let broken = b"no archive".to_vec();
    let sum = digest(&broken);
    env.publish("a", broken, &sum).await;
    env.wait_ready(STACK, "False ArtifactFailed archive is damaged")
        .await;
    let sources: Api<GitRepository> = env.api();
    let none = json!({ "status": { "artifact": null } });
    sources
        .patch_status(SOURCE, &PatchParams::default(), &Patch::Merge(none))
        .await
        .unwrap();
    env.request(STACK, "drift-detection").await;
    env.wait_ready(STACK, "False ArtifactFailed Source is not ready")
        .await;
    env.commit("b", &[("main.tf", MODULE)]).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    traced
        .assert_trace(
            r#"
        Ready False ArtifactFailed: GitRepository.source.toolkit.fluxcd.io "code" not found
          + Reconciling True ProgressingWithRetry: GitRepository.source.toolkit.fluxcd.io "code" not found
        # The source appears before its artifact does.
        ? Ready False ArtifactFailed: Source is not ready, artifact not found
          + Reconciling True ProgressingWithRetry: Source is not ready, artifact not found
        Ready False ArtifactFailed: archive is damaged: invalid gzip header
          + Reconciling True ProgressingWithRetry: archive is damaged: invalid gzip header
        Ready False ArtifactFailed: Source is not ready, artifact not found
          + Reconciling True ProgressingWithRetry: Source is not ready, artifact not found
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Applied successfully: revision b
          - Reconciling
          + Apply True TerraformAppliedSucceed: Applied successfully
          + Output True TerraformOutputsAvailable: Outputs available
          + Plan True TerraformPlannedWithChanges: Plan generated
"#,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_that_are_missing() {
    let traced = Traced::new().await;
    let env = &traced.env;
    env.commit("a", &[("main.tf", MODULE)]).await;
    let from = json!([{ "kind": "Secret", "name": "late" }]);
    env.stack(STACK, json!({ "varsFrom": from, "retryInterval": "1h" }))
        .await;
    env.wait_ready(STACK, "False VarsGenerationFailed").await;
    env.secret("late", &[("size", "three")]).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    traced
        .assert_trace(
            r#"
        Ready False VarsGenerationFailed: cannot read Secret late of varsFrom: secrets "late" not found
          + Reconciling True ProgressingWithRetry: cannot read Secret late of varsFrom: secrets "late" not found
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
"#,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dependency_that_is_missing_and_then_waits() {
    let traced = Traced::new().await;
    let env = &traced.env;
    env.commit("a", &[("main.tf", MODULE)]).await;
    let spec = json!({ "dependsOn": [{ "name": "below" }], "retryInterval": "1h" });
    env.stack(STACK, spec).await;
    env.wait_ready(STACK, "False DependencyNotReady").await;
    env.stack("below", json!({ "approvePlan": "" })).await;
    env.wait_ready(
        STACK,
        "False DependencyNotReady dependency 'team/below' is not ready",
    )
    .await;
    env.wait_ready("below", "Unknown TerraformPlannedWithChanges")
        .await;
    env.edit("below", json!({ "approvePlan": "auto" })).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    traced
        .assert_trace(
            r#"
        Ready False DependencyNotReady: unable to get 'team/below' dependency: terraforms.infra.contrib.fluxcd.io "below" not found
          + Reconciling True ProgressingWithRetry: unable to get 'team/below' dependency: terraforms.infra.contrib.fluxcd.io "below" not found
        Ready False DependencyNotReady: dependency 'team/below' is not ready
          + Reconciling True ProgressingWithRetry: dependency 'team/below' is not ready
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
"#,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reference_that_is_denied() {
    let traced = Traced::new().await;
    let env = &traced.env;
    env.commit("a", &[("main.tf", MODULE)]).await;
    let elsewhere = json!({ "kind": "GitRepository", "name": SOURCE, "namespace": "other" });
    env.stack(STACK, json!({ "sourceRef": elsewhere })).await;
    env.wait_ready(STACK, "False AccessDenied").await;
    env.edit(STACK, json!({ "sourceRef": { "namespace": null } }))
        .await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    traced
        .assert_trace(
            r"
        Ready False AccessDenied: cannot access other/code, cross-namespace references have been disabled
          + Stalled True AccessDenied: cannot access other/code, cross-namespace references have been disabled
        Ready Unknown Progressing: Initializing
          - Stalled
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

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_lock_and_its_release() {
    let traced = Traced::new().await;
    let env = &traced.env;
    env.commit("a", &[("main.tf", MODULE)]).await;
    env.stack(STACK, json!({ "retryInterval": "1h" })).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    lock_state(env, STACK).await;
    env.commit("b", &[("main.tf", &MODULE.replace("\"one\"", "\"two\""))])
        .await;
    env.wait_ready(STACK, "False TFExecPlanFailed").await;
    let named = json!({ "tfstate": { "forceUnlock": "yes", "lockIdentifier": ID } });
    env.edit(STACK, named).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    traced
        .assert_trace(&format!(
            r"{FIRST_APPLY}
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready False TFExecPlanFailed: error running Plan: exit status 1 …
          + Reconciling True ProgressingWithRetry: error running Plan: exit status 1
          + StateLocked True LockHeld: Terraform Locked with Lock Identifier: 11111111-2222-3333-4444-555555555555
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        # Released, and at once the work that it was in the way of.
        Ready as before
          + StateLocked False ForceUnlock: Terraform Force Unlock with Lock Identifier: 11111111-2222-3333-4444-555555555555
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Applied successfully: revision b
          - Reconciling
          - StateLocked
          + Apply True TerraformAppliedSucceed: Applied successfully
"
        ))
        .await;
}
