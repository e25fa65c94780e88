//! Deletions of stacks whose plan is made from another state than the last apply left.

use serde_json::json;

use super::{APPLIED, HELD, MODULE, applied_stack, held, resources, suffix};
use crate::environment::TestEnvironment;
use crate::observe::{condition, pending};

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_destroys_another_state_only_if_its_plan_is_approved() {
    let destroy = json!({ "deletionPolicy": "Destroy", "retryInterval": "1s" });
    let env = applied_stack("net", destroy).await;
    env.stack("other", json!({})).await;
    env.wait_ready("other", APPLIED).await;
    env.edit("net", suffix("other")).await;
    env.wait_ready("net", "True TerraformPlannedNoChanges").await;
    env.delete("net").await;
    let withheld = "False TerraformPlannedWithChanges Plan generated, and not applied: held: the CLI finds another state";
    let waiting = env.wait_ready("net", withheld).await;
    let id = pending(&waiting);
    let message = condition(&waiting, "Ready");
    assert!(
        message.contains(&format!("Set approvePlan: \"{id}\" to approve this plan")),
        "{message}"
    );
    let destroys = "deletionPolicy: Retain to delete the object and nothing else. An approval destroys the 2 resources of the state";
    assert!(message.contains(destroys), "{message}");
    assert_eq!(resources(&env, "other").await, 2, "nothing is destroyed");
    env.edit("net", json!({ "approvePlan": id })).await;
    env.wait_gone("net").await;
    assert_eq!(
        (resources(&env, "other").await, resources(&env, "net").await),
        (0, 2)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_finds_no_state_releases_nothing() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", MODULE)]).await;
    let spec = json!({ "deletionPolicy": "Destroy", "retryInterval": "1s" });
    for (name, remedy, remaining) in [
        ("undo", json!({ "backendConfig": null }), 0),
        ("retain", json!({ "deletionPolicy": "Retain" }), 2),
    ] {
        env.stack(name, spec.clone()).await;
        env.wait_ready(name, APPLIED).await;
        env.edit(name, suffix(&format!("{name}-lost"))).await;
        held(&env, name, &["the CLI finds no state"]).await;
        env.delete(name).await;
        let failed = env
            .wait_ready(
                name,
                "False TFExecPlanFailed nothing was destroyed, and the object stays: ",
            )
            .await;
        let message = condition(&failed, "Ready");
        for part in [
            "the CLI finds no state with resources",
            "backendConfig.secretSuffix: (none) -> ",
            "deletionPolicy: Retain releases the object",
        ] {
            assert!(message.contains(part), "{message}");
        }
        env.edit(name, remedy).await;
        env.wait_gone(name).await;
        assert_eq!(resources(&env, name).await, remaining, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deletion_of_an_object_that_never_applied_destroys_no_other_state() {
    let env = applied_stack("other", json!({})).await;
    let mut wrong = suffix("other");
    wrong["approvePlan"] = json!("");
    wrong["deletionPolicy"] = json!("Destroy");
    wrong["vars"] = json!([{ "name": "size", "value": "two" }]);
    env.stack("net", wrong).await;
    env.wait_ready("net", HELD).await;
    env.delete("net").await;
    let withheld = "False TerraformPlannedWithChanges Plan generated, and not applied: held: the CLI finds a state (lineage ";
    let waiting = env.wait_ready("net", withheld).await;
    let message = condition(&waiting, "Ready");
    for part in [
        "2 resources), and no run of this object has applied anything",
        "deletionPolicy: Retain",
    ] {
        assert!(message.contains(part), "{message}");
    }
    env.edit("net", json!({ "deletionPolicy": "Retain" })).await;
    env.wait_gone("net").await;
    assert_eq!(resources(&env, "other").await, 2);
}
