//! Somebody who may write Secrets and nothing else, beside a controller at work: what they put in the place of something is not
//! used, the object says so, and the stack goes on once it is gone.

use crate::looks::{condition, pending};
use crate::world::World;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use sluice_api::{
    run::TerraformRun,
    terraform::{Terraform, run_name},
};
use sluice_tf_runner::{
    applied,
    bundle::{Stack, secret_name},
};

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

impl World {
    /// Puts this Secret in the place of the one of its name.
    async fn put(&self, mut secret: Secret) {
        let api: Api<Secret> = self.api();
        // It may be there, or not.
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

/// A stack without a controller, and a Secret that has the name of its first run's bundle.
async fn with_forged_bundle() -> World {
    let world = World::without_controller().await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("net", json!({})).await;
    let run = run_name("net", &world.uid("net").await, 1);
    let forged = json!({ "metadata": { "name": secret_name(&run) }, "stringData": { "bundle": "{}" } });
    world.put(serde_json::from_value(forged).unwrap()).await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_is_handed_over_is_not_read_from_a_secret() {
    let mut world = with_forged_bundle().await;
    world.start(4).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    insta::assert_snapshot!(world.history("net").await, @"1 PlanAndApply Revision 1: Succeeded TerraformAppliedSucceed +1 ~0 -0");
    assert_eq!(world.runs("net").await[0].spec.bundle_secrets, 0);
    let run = world.runs("net").await[0].name_any();
    assert_eq!(
        world.secrets(&run).await,
        [secret_name(&run)],
        "the forged one alone"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_is_there_before_its_run_is_told_and_not_used() {
    let mut world = with_forged_bundle().await;
    world.start_with_stored_bundles().await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    insta::assert_snapshot!(world.history("net").await, @"
    1 PlanAndApply Revision 1: Failed TFExecNewFailed
    2 PlanAndApply Retry 2: Succeeded TerraformAppliedSucceed +1 ~0 -0
    ");
    let first = &world.runs("net").await[0];
    let told = &first.status.as_ref().unwrap().message;
    assert!(
        told.contains("is not the bundle that the controller made for this run"),
        "{told}"
    );
    assert!(told.ends_with("delete the Secret"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_was_replaced_is_made_again() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("net", json!({ "approvePlan": "" })).await;
    let id = pending(&world.ready("net", "Unknown TerraformPlannedWithChanges").await);
    let api: Api<Secret> = world.api();
    let mut forged = api.get(&world.secrets("tfplan-").await[0]).await.unwrap();
    forged
        .data
        .as_mut()
        .unwrap()
        .get_mut("context")
        .unwrap()
        .0
        .push(0);
    world.put(forged).await;
    world.edit("net", json!({ "approvePlan": id })).await;
    let failed = |run: &TerraformRun| {
        run.status
            .as_ref()
            .is_some_and(|s| s.reason == "TFExecApplyFailed")
    };
    let refused = world.run("net", "an apply that is refused", failed).await;
    let status = refused.status.unwrap();
    assert!(
        status.message.contains("do not hold what the run net-"),
        "{}",
        status.message
    );
    assert!(!status.attempted_apply);
    // The same effect: the approval stands, and what is applied is the plan that was made since.
    world.ready("net", "True TerraformAppliedSucceed").await;
    insta::assert_snapshot!(world.history("net").await, @"
    1 Plan Revision 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0
    2 Apply Approval 1: Failed TFExecApplyFailed
    3 Plan Retry 2: Succeeded TerraformPlannedWithChanges +1 ~0 -0
    4 Apply Approval 2: Succeeded TerraformAppliedSucceed
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_what_was_applied_does_not_destroy() {
    let world = World::new().await;
    let evil = world.path("evil");
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world
        .stack("net", json!({ "destroyResourcesOnDeletion": true }))
        .await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    let api: Api<Secret> = world.api();
    let own = api.get(&world.secrets("tfapplied-").await[0]).await.unwrap();
    let (stack, run) = (
        Stack {
            namespace: own.namespace().unwrap(),
            name: "net".to_owned(),
            uid: world.uid("net").await,
        },
        applied::run_of(&own).to_owned(),
    );
    let mut kept = applied::decode(std::slice::from_ref(&own), &stack, &run, &[]).unwrap();
    let command = format!("touch {}", evil.display());
    let module = format!("data \"external\" \"evil\" {{ program = [\"sh\", \"-c\", \"{command}\"] }}");
    kept.files = Some(crate::artifacts::pack(&[("main.tf", &module)]));
    // In the place of the right one, and beside it as of a later run that never was.
    let later = run_name("net", &stack.uid, 99);
    for of in [run.as_str(), later.as_str()] {
        for secret in applied::encode(&kept, of, None).unwrap() {
            world.put(secret).await;
        }
    }
    api.delete(&own.name_any(), &DeleteParams::default())
        .await
        .unwrap();
    world.remove_source().await;
    world.delete("net").await;
    let refused = world.ready("net", "False ArtifactFailed cannot destroy: ").await;
    let told = condition(&refused, "Ready");
    assert!(
        told.contains("do not hold what it recorded: they were replaced"),
        "{told}"
    );
    // The right one in its place again.
    for name in world.secrets("tfapplied-").await {
        api.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    world.put(own).await;
    world.gone("net").await;
    assert!(!evil.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_somebody_chose_is_not_passed_over() {
    let mut world = World::without_controller().await;
    world.ignore_account = false;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world
        .stack("net", json!({ "serviceAccountName": "deployer" }))
        .await;
    world.stack("usual", json!({})).await;
    world.start(4).await;
    let stuck = world.ready("net", "False ServiceAccountNotUsed").await;
    assert!(condition(&stuck, "Stalled").starts_with("True ServiceAccountNotUsed"));
    assert!(condition(&stuck, "Ready").contains("--ignore-service-account-name"));
    world.ready("usual", "True TerraformAppliedSucceed").await;
    assert!(world.runs("net").await.is_empty());
    world.stop().await;
    world.ignore_account = true;
    world.start(4).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
}
