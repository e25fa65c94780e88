//! The approvals of users, as a run reads them right before its apply.

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::run::{PlanApproval, TerraformRun};
use sluice_api::terraform::Terraform;

use crate::environment::{NAMESPACE, RunSetup, STACK, TestEnvironment, assert_ending, ending, status};

const MODULE: &str = "resource \"terraform_data\" \"it\" { input = \"x\" }";

/// Makes a plan of a stack in auto whose spec has these members. Returns the run.
async fn plan_with(env: &TestEnvironment, spec: &Value) -> TerraformRun {
    env.commit(&[("main.tf", MODULE)]);
    let stacks: Api<Terraform> = Api::namespaced(env.client(), NAMESPACE);
    let patch = Patch::Merge(json!({ "spec": spec }));
    stacks
        .patch(STACK, &PatchParams::default(), &patch)
        .await
        .unwrap();
    env.run(RunSetup::plan()).await
}

/// Returns the users whose approvals a run recorded.
fn approvers(run: &TerraformRun) -> Vec<String> {
    let approvals = status(run).approvals.into_iter();
    approvals.map(|approval| approval.approver).collect()
}

async fn approve(api: &Api<PlanApproval>, name: &str, stack: &str, plan: &str) {
    let approval = json!({ "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "PlanApproval", "metadata": { "name": name },
        "spec": { "approver": name, "comment": "looks good", "planID": plan, "terraformRef": { "name": stack } } });
    api.create(&PostParams::default(), &serde_json::from_value(approval).unwrap())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_needs_the_approvals_that_exist_when_it_begins() {
    let env = TestEnvironment::new("auto").await;
    let planned = plan_with(&env, &json!({ "approval": { "count": 2 } })).await;
    let plan = status(&planned).plan_id;
    let api: Api<PlanApproval> = Api::namespaced(env.client(), NAMESPACE);
    approve(&api, "alice", STACK, &plan).await;
    approve(&api, "carol", "another", &plan).await;
    approve(&api, "dave", STACK, &plan).await;
    // The controller may have decided before.
    api.delete("dave", &DeleteParams::default()).await.unwrap();
    let refused = env.run(RunSetup::apply(&planned)).await;
    assert_eq!(ending(&refused), "Superseded Superseded");
    let message = status(&refused).message;
    assert!(
        message.contains("not applied: the plan waits for approval: 1 of 2 approvals (alice), 1 missing"),
        "{message}"
    );
    assert!(!status(&refused).attempted_apply && status(&refused).approvals.is_empty());

    approve(&api, "bob", STACK, &plan).await;
    let applied = env.run(RunSetup::apply(&planned)).await;
    assert_ending(&applied, "Succeeded TerraformAppliedSucceed");
    assert_eq!(approvers(&applied), ["alice", "bob"]);
    let recorded = status(&applied).approvals;
    assert!(
        recorded
            .iter()
            .all(|one| one.comment == "looks good" && one.approved_at.is_some())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_without_required_approvals_reads_that_of_one_user_when_it_begins() {
    // Plans are applied automatically, but for those that a guard rail holds.
    let env = TestEnvironment::new("auto").await;
    let planned = plan_with(&env, &json!({ "autoApply": { "hold": ["create"] } })).await;
    let plan = status(&planned).plan_id;
    let api: Api<PlanApproval> = Api::namespaced(env.client(), NAMESPACE);
    approve(&api, "alice", STACK, &plan).await;
    // The controller may have decided before.
    api.delete("alice", &DeleteParams::default()).await.unwrap();
    let refused = env.run(RunSetup::apply(&planned)).await;
    assert_eq!(ending(&refused), "Superseded Superseded");
    let message = status(&refused).message;
    assert!(message.starts_with("not applied: held: "), "{message}");

    approve(&api, "bob", STACK, &plan).await;
    let applied = env.run(RunSetup::apply(&planned)).await;
    assert_ending(&applied, "Succeeded TerraformAppliedSucceed");
    assert_eq!(approvers(&applied), ["bob"]);
}
