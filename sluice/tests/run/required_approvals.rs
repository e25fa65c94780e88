//! The approvals of users, as a run reads them right before its apply.

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use sluice_api::run::PlanApproval;
use sluice_api::terraform::Terraform;

use crate::environment::{NAMESPACE, RunSetup, STACK, TestEnvironment, ending, status};

const MODULE: &str = "resource \"terraform_data\" \"it\" { input = \"x\" }";

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
    env.commit(&[("main.tf", MODULE)]);
    let stacks: Api<Terraform> = Api::namespaced(env.client(), NAMESPACE);
    let policy = Patch::Merge(json!({ "spec": { "approval": { "count": 2 } } }));
    stacks
        .patch(STACK, &PatchParams::default(), &policy)
        .await
        .unwrap();
    let planned = env.run(RunSetup::plan()).await;
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
    assert_eq!(
        ending(&applied),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        applied.status
    );
    let recorded = status(&applied).approvals;
    let users: Vec<&str> = recorded.iter().map(|one| one.approver.as_str()).collect();
    assert_eq!(users, ["alice", "bob"]);
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
    env.commit(&[("main.tf", MODULE)]);
    let stacks: Api<Terraform> = Api::namespaced(env.client(), NAMESPACE);
    let hold = Patch::Merge(json!({ "spec": { "autoApply": { "hold": ["create"] } } }));
    stacks.patch(STACK, &PatchParams::default(), &hold).await.unwrap();
    let planned = env.run(RunSetup::plan()).await;
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
    assert_eq!(
        ending(&applied),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        applied.status
    );
    let recorded = status(&applied).approvals;
    let users: Vec<&str> = recorded.iter().map(|one| one.approver.as_str()).collect();
    assert_eq!(users, ["bob"]);
}
