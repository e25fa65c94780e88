//! Rejected plans: no approval applies them, and a request makes a new plan.

use serde_json::{Value, json};
use sluice_api::annotation::REJECTED_PLAN;
use sluice_api::run::PlanRejection;

use crate::environment::TestEnvironment;
use crate::observe::pending;

const STACK: &str = r#"resource "terraform_data" "it" {}"#;
const WAITS: &str = "Unknown TerraformPlannedWithChanges";
const REJECTED: &str = "False PlanRejected";

impl TestEnvironment {
    /// Sets the annotation that rejects a plan of the stack `net`; `null` removes it.
    async fn reject(&self, value: Value) {
        self.annotate("net", json!({ REJECTED_PLAN: value })).await;
    }

    /// Returns the rejection that the first run of the stack `net` records.
    async fn recorded(&self) -> Option<PlanRejection> {
        let runs = self.runs("net").await;
        runs[0].status.as_ref().unwrap().rejection.clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_plan_is_never_applied_and_a_request_makes_a_new_plan() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", STACK)]).await;
    env.stack("net", json!({ "approvePlan": "" })).await;
    let id = pending(&env.wait_ready("net", WAITS).await);

    // Another plan, or a part of an id: nothing is rejected. The edit shows that the annotation was seen.
    for (nothing, interval) in [
        (format!("plan-main-aaaaaaaaaa-{}", "0".repeat(40)), "2h"),
        ("plan-main-aaaaaaaaaa".to_owned(), "3h"),
    ] {
        env.reject(json!(nothing)).await;
        env.edit("net", json!({ "interval": interval })).await;
        assert_eq!(pending(&env.wait_ready("net", WAITS).await), id);
    }
    assert_eq!(env.recorded().await, None);

    let request = json!({ "planID": id, "rejectedBy": "alice", "rejectedAt": "2026-01-08T09:00:00Z", "comment": "too big" });
    env.reject(json!(request.to_string())).await;
    let by_alice =
        format!("{REJECTED} Plan {id} was rejected by alice at 2026-01-08T09:00:00Z: too big. A change of ");
    let rejected = env.wait_ready("net", &by_alice).await;
    assert_eq!(pending(&rejected), "");
    env.wait_event("net", "PlanRejected").await;
    let recorded = env.recorded().await.unwrap();
    assert_eq!(
        (recorded.rejected_by.as_str(), recorded.comment.as_str()),
        ("alice", "too big")
    );

    // Neither an approval nor the removal of the annotation revives it.
    env.edit("net", json!({ "approvePlan": id })).await;
    env.wait_ready("net", &by_alice).await;
    env.reject(Value::Null).await;
    env.edit("net", json!({ "interval": "1s" })).await;
    env.wait_ready("net", &by_alice).await;
    let history = "1 Plan Revision 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0";
    assert_eq!(env.history("net").await, history);

    // The new plan has the same effect and another id: the old approval in the spec is void.
    env.request("net", "again").await;
    let replanned = env.wait_ready("net", WAITS).await;
    let next = pending(&replanned);
    assert!(next.starts_with("plan-main-aaaaaaaaaa-") && next != id, "{next}");
    assert_eq!(
        env.history("net").await,
        format!("{history}\n2 Plan Request 1: Succeeded TerraformPlannedWithChanges +1 ~0 -0")
    );
    // Without further checks, whose result would replace that of the apply.
    env.edit("net", json!({ "approvePlan": next, "interval": "1h" }))
        .await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(env.recorded().await, Some(recorded));
}
