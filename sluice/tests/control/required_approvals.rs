//! Approvals of users by PlanApprovals, of stacks that require some and of stacks that require none.

use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use sluice_api::annotation::{COMMIT_AUTHOR, COMMIT_SUBJECT};
use sluice_api::run::{Action, PlanApproval, TerraformRun};
use sluice_api::source::GitRepository;
use sluice_api::terraform::run_sequence;

use crate::environment::{SOURCE, TIMEOUT, TestEnvironment};
use crate::observe::pending;

const STACK: &str = r#"
variable "size" { default = "one" }
resource "terraform_data" "it" { input = var.size }
"#;
const PLANNED: &str = "Unknown TerraformPlannedWithChanges Plan generated: ";

impl TestEnvironment {
    /// Publishes the module as a commit of this author.
    async fn commit_of(&self, author: &str) {
        self.commit("a", &[("main.tf", STACK)]).await;
        let api: Api<GitRepository> = self.api();
        let metadata = json!({ COMMIT_AUTHOR: author, COMMIT_SUBJECT: "Add\u{1b}[31m one" });
        let status = json!({ "status": { "artifact": { "metadata": metadata } } });
        api.patch_status(SOURCE, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }

    /// Creates an approval of this plan of the stack `net`.
    async fn approve(&self, name: &str, approver: &str, plan: &str) {
        let approval = json!({ "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "PlanApproval", "metadata": { "name": name },
            "spec": { "approver": approver, "comment": format!("by {approver}"), "planID": plan, "terraformRef": { "name": "net" } } });
        let api: Api<PlanApproval> = self.api();
        api.create(&PostParams::default(), &serde_json::from_value(approval).unwrap())
            .await
            .unwrap();
    }

    /// Waits until the status of an approval has this reason; returns the approval.
    async fn wait_approval(&self, name: &str, reason: &str) -> PlanApproval {
        let api: Api<PlanApproval> = self.api();
        let has_reason = |approval: Option<&PlanApproval>| {
            let status = approval.and_then(|approval| approval.status.as_ref());
            status.is_some_and(|status| status.reason == reason)
        };
        let waiting = Box::pin(await_condition(api.clone(), name, has_reason));
        let Ok(found) = tokio::time::timeout(TIMEOUT, waiting).await else {
            panic!(
                "{name} is not {reason}: {:?}",
                api.get(name).await.unwrap().status
            );
        };
        found.unwrap().unwrap()
    }

    /// Waits for a plan that waits with this message; returns its id.
    async fn wait_for_approvals(&self, message: &str) -> String {
        let stack = self.wait_ready("net", &format!("{PLANNED}{message}")).await;
        pending(&stack)
    }
}

/// Returns who approved the newest apply, from its status.
fn recorded(runs: &[TerraformRun]) -> (String, Value) {
    let applies = runs.iter().filter(|run| run.spec.action == Action::Apply);
    let newest = applies.max_by_key(|run| run_sequence(&run.name_any())).unwrap();
    let approvals = &newest.status.as_ref().unwrap().approvals;
    assert!(approvals.iter().all(|approval| approval.approved_at.is_some()));
    let given: Vec<Value> = approvals
        .iter()
        .map(|approval| json!([approval.name, approval.approver, approval.comment]))
        .collect();
    (newest.spec.approved_by.clone(), json!(given))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_applied_after_the_approvals_of_two_users_who_are_not_its_author() {
    let env = TestEnvironment::new().await;
    env.commit_of("Dora Writer <dora@example.org>").await;
    let policy = json!({ "count": 2, "notByAuthor": true });
    env.stack("net", json!({ "approvePlan": "auto", "approval": policy }))
        .await;
    let id = env
        .wait_for_approvals(
            "0 of 2 approvals, 2 missing (not of the author of the commit). Create a PlanApproval",
        )
        .await;

    env.approve("a-first", "alice", &id).await;
    let one = "1 of 2 approvals (alice), 1 missing (not of the author of the commit)";
    env.wait_for_approvals(&format!("{one}. Create a PlanApproval with planID: \"{id}\""))
        .await;
    let adopted = env.wait_approval("a-first", "Counted").await;
    assert_eq!(adopted.owner_references()[0].name, "net");

    // Neither an id in the spec nor more approvals of the same user, of the author, or of another plan suffice. Approvals of the same
    // second are in the order of their names.
    env.edit("net", json!({ "approvePlan": id })).await;
    env.approve("b-again", "alice", &id).await;
    env.wait_approval("b-again", "Repeated").await;
    env.approve("c-own", "dora", &id).await;
    env.wait_approval("c-own", "ByAuthor").await;
    let other = format!("plan-main-aaaaaaaaaa-{}", "0".repeat(40));
    env.approve("d-other", "bob", &other).await;
    env.wait_approval("d-other", "OtherPlan").await;
    env.wait_for_approvals(&format!(
        "{one}; PlanApproval d-other of bob does not count: it names another plan; "
    ))
    .await;
    assert_eq!(
        env.history("net").await,
        "1 Plan Revision 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0"
    );

    env.approve("e-second", "bob", &id).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let runs = env.runs("net").await;
    // A user who may write the status of the source must not write to the terminals of others.
    assert!(
        runs.iter().all(|run| run.spec.source.subject == "Add[31m one"),
        "{runs:?}"
    );
    let (by, approvals) = recorded(&runs);
    assert_eq!(by, "alice, bob");
    assert_eq!(
        approvals,
        json!([["a-first", "alice", "by alice"], ["e-second", "bob", "by bob"]])
    );

    // They are used up: the next plan is another one.
    env.edit("net", json!({ "vars": [{ "name": "size", "value": "two" }] }))
        .await;
    let next = env.wait_for_approvals("0 of 2 approvals, 2 missing").await;
    assert_ne!(next, id);
    // What an approval was for its own plan stays.
    env.wait_approval("b-again", "OtherPlan").await;
    env.wait_approval("a-first", "Counted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_approvals_are_required_that_of_one_user_applies_a_plan_that_waits() {
    let env = TestEnvironment::new().await;
    env.commit_of("Dora Writer <dora@example.org>").await;
    env.stack("net", json!({ "approvePlan": "" })).await;
    let id = env.wait_for_approvals("set approvePlan: ").await;
    let other = format!("plan-main-aaaaaaaaaa-{}", "0".repeat(40));
    env.approve("a-other", "bob", &other).await;
    env.wait_approval("a-other", "OtherPlan").await;
    assert_eq!(
        env.runs("net").await.len(),
        1,
        "an approval of another plan does nothing"
    );
    env.approve("b-own", "alice", &id).await;
    let applied = env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(applied.spec.approve_plan, "", "the spec stays as it is");
    let (by, approvals) = recorded(&env.runs("net").await);
    assert_eq!(by, "alice");
    assert_eq!(approvals, json!([["b-own", "alice", "by alice"]]));
    env.wait_approval("b-own", "Counted").await;

    // It also ends the hold of a plan that would be applied automatically.
    let hold = json!({ "approvePlan": "auto", "autoApply": { "hold": ["update"] },
        "vars": [{ "name": "size", "value": "two" }] });
    env.edit("net", hold).await;
    let waiting = env.wait_for_approvals("set approvePlan: ").await;
    env.approve("c-held", "bob", &waiting).await;
    let applied = env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(applied.spec.approve_plan, "auto");
    let (by, approvals) = recorded(&env.runs("net").await);
    assert_eq!(by, "bob");
    assert_eq!(approvals, json!([["c-held", "bob", "by bob"]]));
}
