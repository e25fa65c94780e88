//! State locks of other holders: detected, shown, and released only when the user names them.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::terraform::Terraform;

use crate::environment::{NAMESPACE, TestEnvironment};
use crate::observe::{condition, pending};

/// The id of the foreign lock.
pub(crate) const ID: &str = "11111111-2222-3333-4444-555555555555";

fn module(value: &str) -> String {
    format!("resource \"terraform_data\" \"it\" {{ input = \"{value}\" }}")
}

/// Returns the Lease of a stack's state, locked by another CLI.
fn foreign_lock(name: &str) -> Value {
    let info = json!({ "ID": ID, "Operation": "OperationTypeApply", "Info": "", "Who": "other@elsewhere",
        "Version": "1.11.4", "Created": "2026-01-01T00:00:00Z", "Path": "" });
    json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": format!("lock-tfstate-default-{name}"), "namespace": NAMESPACE,
            "labels": { "tfstate": "true", "tfstateSecretSuffix": name, "tfstateWorkspace": "default",
                "app.kubernetes.io/managed-by": "terraform" },
            "annotations": { "app.terraform.io/lock-info": info.to_string() } },
        "spec": { "holderIdentity": ID } })
}

/// Locks a stack's state as another holder.
pub(crate) async fn lock_state(env: &TestEnvironment, name: &str) {
    let api: Api<Lease> = env.api();
    let lease = foreign_lock(name);
    let name = lease["metadata"]["name"].as_str().unwrap();
    if api.get_opt(name).await.unwrap().is_some() {
        api.patch(name, &PatchParams::default(), &Patch::Merge(&lease))
            .await
            .unwrap();
    } else {
        api.create(
            &PostParams::default(),
            &serde_json::from_value(lease.clone()).unwrap(),
        )
        .await
        .unwrap();
    }
}

/// Returns who holds the lock of a stack's state.
pub(crate) async fn holder(env: &TestEnvironment, name: &str) -> Option<String> {
    let api: Api<Lease> = env.api();
    let lease = api.get(&format!("lock-tfstate-default-{name}")).await.unwrap();
    lease
        .spec
        .unwrap()
        .holder_identity
        .filter(|holder| !holder.is_empty())
}

fn state_locked(stack: &Terraform) -> String {
    let lock = stack.status.as_ref().and_then(|status| status.lock.as_ref());
    lock.map(|lock| lock.pending.clone()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_lock_shows_its_id_and_stays_until_it_is_named() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", &module("x"))]).await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    lock_state(&env, "net").await;
    env.edit("net", json!({ "tfstate": { "forceUnlock": "auto" } }))
        .await;
    env.commit("b", &[("main.tf", &module("y"))]).await;
    let met = env
        .wait_ready("net", "False TFExecPlanFailed error running Plan")
        .await;
    let expected = format!("True LockHeld Terraform Locked with Lock Identifier: {ID}");
    assert_eq!(
        (state_locked(&met).as_str(), condition(&met, "StateLocked")),
        (ID, expected)
    );
    env.wait_event("net", "Warning TFExecPlanFailed").await;
    // `auto` only releases locks of our dead runs; the name of another lock has no effect.
    let attempts = met.status.unwrap().reconciliation_failures;
    let other = json!({ "tfstate": { "forceUnlock": "yes", "lockIdentifier": "another" } });
    env.edit("net", other).await;
    env.wait_for("net", "more attempts", |s| {
        s.status
            .as_ref()
            .is_some_and(|s| s.reconciliation_failures > attempts)
    })
    .await;
    assert_eq!(holder(&env, "net").await.as_deref(), Some(ID));

    env.edit("net", json!({ "tfstate": { "lockIdentifier": ID } }))
        .await;
    let applied = env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(
        (
            state_locked(&applied).as_str(),
            condition(&applied, "StateLocked")
        ),
        ("", String::new())
    );
    assert_eq!(applied.status.unwrap().lock.unwrap().last_applied, ID);
    assert_eq!(holder(&env, "net").await, None);
    env.wait_event("net", "Normal ForceUnlock").await;
    let history = env.history("net").await;
    assert!(
        history.contains("Unlock Retry") && history.contains("Succeeded ForceUnlock"),
        "{history}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_on_a_missing_state_is_shown_and_released() {
    let env = TestEnvironment::new().await;
    lock_state(&env, "net").await;
    env.commit("a", &[("main.tf", &module("x"))]).await;
    env.stack("net", json!({})).await;
    let met = env.wait_ready("net", "False TFExecInitFailed").await;
    assert_eq!(state_locked(&met), ID, "{}", condition(&met, "Ready"));
    let named = json!({ "tfstate": { "forceUnlock": "yes", "lockIdentifier": ID } });
    env.edit("net", named).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(holder(&env, "net").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_without_lock_runs_while_another_holder_has_the_lock() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", &module("x"))]).await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    lock_state(&env, "net").await;
    env.edit("net", json!({ "plan": { "lock": false }, "approvePlan": "" }))
        .await;
    env.wait_observed("net").await;
    env.commit("b", &[("main.tf", &module("y"))]).await;
    let pending_stack = env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await;
    assert!(!pending(&pending_stack).is_empty());
    assert_eq!(
        holder(&env, "net").await.as_deref(),
        Some(ID),
        "the lock was not taken"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_blocks_a_destroy_on_deletion_is_released_when_named() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", &module("x"))]).await;
    env.stack("net", json!({ "destroyResourcesOnDeletion": true }))
        .await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    lock_state(&env, "net").await;
    env.delete("net").await;
    env.wait_for("net", "locked", |stack| state_locked(stack) == ID)
        .await;
    let named = json!({ "tfstate": { "forceUnlock": "yes", "lockIdentifier": ID } });
    env.edit("net", named).await;
    env.wait_gone("net").await;
    let state = env.state("net").await;
    assert!(!state.contains("terraform_data"), "{state}");
}
