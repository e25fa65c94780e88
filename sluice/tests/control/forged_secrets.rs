//! An attacker who may write Secrets and nothing else: replaced Secrets are not used and are reported, and the stack recovers once
//! they are removed.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use sluice_api::run::TerraformRun;
use sluice_api::terraform::{Terraform, run_name};
use sluice_tf_core::bundle::{Stack, secret_name};
use sluice_tf_core::last_applied;

use crate::environment::TestEnvironment;
use crate::metrics::wait_lines;
use crate::observe::{condition, pending};

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

impl TestEnvironment {
    /// Creates or replaces a Secret.
    async fn replace_secret(&self, mut secret: Secret) {
        let api: Api<Secret> = self.api();
        // It may exist or not.
        drop(api.delete(&secret.name_any(), &DeleteParams::default()).await);
        secret.metadata.resource_version = None;
        secret.metadata.uid = None;
        api.create(&PostParams::default(), &secret).await.unwrap();
    }

    async fn uid(&self, stack: &str) -> String {
        let api: Api<Terraform> = self.api();
        api.get(stack).await.unwrap().uid().unwrap()
    }
}

/// Creates a stack without a controller, and a Secret with the name of its first run's bundle.
async fn environment_with_forged_bundle() -> TestEnvironment {
    let env = TestEnvironment::without_controller().await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({})).await;
    let run = run_name("net", &env.uid("net").await, 1);
    let forged = json!({ "metadata": { "name": secret_name(&run) }, "stringData": { "bundle": "{}" } });
    env.replace_secret(serde_json::from_value(forged).unwrap()).await;
    env
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_on_standard_input_is_not_read_from_a_secret() {
    let mut env = environment_with_forged_bundle().await;
    env.start(4).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    insta::assert_snapshot!(env.history("net").await, @"1 PlanAndApply Revision 1: Succeeded TerraformAppliedSucceed +1 ~0 -0");
    assert_eq!(env.runs("net").await[0].spec.bundle_secrets, 0);
    let run = env.runs("net").await[0].name_any();
    assert_eq!(
        env.secrets(&run).await,
        [secret_name(&run)],
        "only the forged one"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_exists_before_its_run_is_reported_and_not_used() {
    let mut env = environment_with_forged_bundle().await;
    env.start_with_stored_bundles().await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    insta::assert_snapshot!(env.history("net").await, @"
    1 PlanAndApply Revision 1: Failed TFExecNewFailed
    2 PlanAndApply Retry 2: Succeeded TerraformAppliedSucceed +1 ~0 -0
    ");
    let first = &env.runs("net").await[0];
    let message = &first.status.as_ref().unwrap().message;
    assert!(message.contains("is not the bundle of this run"), "{message}");
    assert!(message.ends_with("delete the Secret"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_waits_until_the_bundle_of_a_deleted_run_of_its_name_is_deleted() {
    let mut env = TestEnvironment::without_controller().await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({})).await;
    let run = run_name("net", &env.uid("net").await, 1);
    let owner = json!({ "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "TerraformRun", "name": run, "uid": "deleted" });
    // The garbage collector deletes it, and the finalizer keeps it.
    let old = json!({ "stringData": { "bundle": "{}" }, "metadata": { "name": secret_name(&run),
        "ownerReferences": [owner], "finalizers": ["example.com/wait"] } });
    env.replace_secret(serde_json::from_value(old).unwrap()).await;
    env.start_with_stored_bundles().await;
    // Counted after the attempt to start it.
    let created = "runs_created_total{action=\"PlanAndApply\",trigger=\"Revision\"} 1";
    wait_lines(&env, &[created]).await;
    let waiting = env.runs("net").await.remove(0);
    assert!(waiting.status.is_none_or(|status| !status.phase.is_final()));
    let api: Api<Secret> = env.api();
    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    api.patch(&secret_name(&run), &PatchParams::default(), &release)
        .await
        .unwrap();
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    insta::assert_snapshot!(env.history("net").await, @"1 PlanAndApply Revision 1: Succeeded TerraformAppliedSucceed +1 ~0 -0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_plan_is_created_again() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({ "approvePlan": "" })).await;
    let id = pending(&env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await);
    let api: Api<Secret> = env.api();
    let mut forged = api.get(&env.secrets("tfplan-").await[0]).await.unwrap();
    forged
        .data
        .as_mut()
        .unwrap()
        .get_mut("context")
        .unwrap()
        .0
        .push(0);
    env.replace_secret(forged).await;
    env.edit("net", json!({ "approvePlan": id })).await;
    let failed = |run: &TerraformRun| {
        run.status
            .as_ref()
            .is_some_and(|s| s.reason == "TFExecApplyFailed")
    };
    let refused = env.wait_run("net", "a refused apply", failed).await;
    let status = refused.status.unwrap();
    assert!(
        status.message.contains("do not have the digest that run net-"),
        "{}",
        status.message
    );
    assert!(!status.attempted_apply);
    // The effect is the same: the approval stays valid, and the new plan is applied.
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    insta::assert_snapshot!(env.history("net").await, @"
    1 Plan Revision 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0
    2 Apply Approval 1: Failed TFExecApplyFailed
    3 Plan Retry 2: Succeeded TerraformPlannedWithChanges +1 ~0 -0
    4 Apply Approval 2: Succeeded TerraformAppliedSucceed
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_configuration_is_not_used_for_a_destroy() {
    let env = TestEnvironment::new().await;
    let evil = env.path("evil");
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({ "destroyResourcesOnDeletion": true }))
        .await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let api: Api<Secret> = env.api();
    let own = api.get(&env.secrets("tfapplied-").await[0]).await.unwrap();
    let (stack, run) = (
        Stack {
            namespace: own.namespace().unwrap(),
            name: "net".to_owned(),
            uid: env.uid("net").await,
        },
        last_applied::run_of(&own).to_owned(),
    );
    let mut stored = last_applied::decode(std::slice::from_ref(&own), &stack, &run, &[]).unwrap();
    let command = format!("touch {}", evil.display());
    let module = format!("data \"external\" \"evil\" {{ program = [\"sh\", \"-c\", \"{command}\"] }}");
    stored.files = Some(crate::artifacts::pack(&[("main.tf", &module)]));
    // In place of the original, and in addition to it as if from a later run.
    let later = run_name("net", &stack.uid, 99);
    for of in [run.as_str(), later.as_str()] {
        for secret in last_applied::encode(&stored, of, None).unwrap() {
            env.replace_secret(secret).await;
        }
    }
    api.delete(&own.name_any(), &DeleteParams::default())
        .await
        .unwrap();
    env.remove_source().await;
    env.delete("net").await;
    let refused = env
        .wait_ready("net", "False ArtifactFailed cannot destroy: ")
        .await;
    let message = condition(&refused, "Ready");
    assert!(
        message.contains("do not have the recorded digest: they were replaced"),
        "{message}"
    );
    // The original is restored.
    for name in env.secrets("tfapplied-").await {
        api.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    env.replace_secret(own).await;
    env.wait_gone("net").await;
    assert!(!evil.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explicitly_chosen_account_is_not_ignored() {
    let mut env = TestEnvironment::without_controller().await;
    env.ignore_account = false;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({ "serviceAccountName": "deployer" }))
        .await;
    env.stack("usual", json!({})).await;
    env.start(4).await;
    let stuck = env.wait_ready("net", "False ServiceAccountNotUsed").await;
    assert!(condition(&stuck, "Stalled").starts_with("True ServiceAccountNotUsed"));
    assert!(condition(&stuck, "Ready").contains("--ignore-service-account-name"));
    env.wait_ready("usual", "True TerraformAppliedSucceed").await;
    assert!(env.runs("net").await.is_empty());
    env.stop().await;
    env.ignore_account = true;
    env.start(4).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
}
