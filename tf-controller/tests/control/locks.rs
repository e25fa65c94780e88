//! State locks that somebody else holds: met, shown, released only when the user names them.

use crate::looks::{condition, pending};
use crate::world::{NAMESPACE, World};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use sluice_api::terraform::Terraform;

/// The id of the lock that somebody else holds.
pub(crate) const ID: &str = "11111111-2222-3333-4444-555555555555";

fn module(value: &str) -> String {
    format!("resource \"terraform_data\" \"it\" {{ input = \"{value}\" }}")
}

/// The Lease of a stack's state, as the CLI of somebody else holds it.
fn held(name: &str) -> Value {
    let info = json!({ "ID": ID, "Operation": "OperationTypeApply", "Info": "", "Who": "somebody@elsewhere",
        "Version": "1.11.4", "Created": "2026-01-01T00:00:00Z", "Path": "" });
    json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": format!("lock-tfstate-default-{name}"), "namespace": NAMESPACE,
            "labels": { "tfstate": "true", "tfstateSecretSuffix": name, "tfstateWorkspace": "default",
                "app.kubernetes.io/managed-by": "terraform" },
            "annotations": { "app.terraform.io/lock-info": info.to_string() } },
        "spec": { "holderIdentity": ID } })
}

/// Somebody else takes the lock of a stack's state.
pub(crate) async fn hold(world: &World, name: &str) {
    let api: Api<Lease> = world.api();
    let lease = held(name);
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

async fn holder(world: &World, name: &str) -> Option<String> {
    let api: Api<Lease> = world.api();
    let lease = api.get(&format!("lock-tfstate-default-{name}")).await.unwrap();
    lease
        .spec
        .unwrap()
        .holder_identity
        .filter(|holder| !holder.is_empty())
}

fn shown(stack: &Terraform) -> String {
    let lock = stack.status.as_ref().and_then(|status| status.lock.as_ref());
    lock.map(|lock| lock.pending.clone()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_shows_its_id_and_stays_until_just_it_is_named() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", &module("x"))]).await;
    world.stack("net", json!({})).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    hold(&world, "net").await;
    world
        .edit("net", json!({ "tfstate": { "forceUnlock": "auto" } }))
        .await;
    world.commit("b", &[("main.tf", &module("y"))]).await;
    let met = world
        .ready("net", "False TFExecPlanFailed error running Plan")
        .await;
    let told = format!("True LockHeld Terraform Locked with Lock Identifier: {ID}");
    assert_eq!((shown(&met).as_str(), condition(&met, "StateLocked")), (ID, told));
    world.event("net", "Warning TFExecPlanFailed").await;
    // `auto` releases what a dead run of ours holds, and nothing else; nor does the name of another lock.
    let attempts = met.status.unwrap().reconciliation_failures;
    let other = json!({ "tfstate": { "forceUnlock": "yes", "lockIdentifier": "another" } });
    world.edit("net", other).await;
    world
        .until("net", "more attempts", |s| {
            s.status
                .as_ref()
                .is_some_and(|s| s.reconciliation_failures > attempts)
        })
        .await;
    assert_eq!(holder(&world, "net").await.as_deref(), Some(ID));

    world
        .edit("net", json!({ "tfstate": { "lockIdentifier": ID } }))
        .await;
    let applied = world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(
        (shown(&applied).as_str(), condition(&applied, "StateLocked")),
        ("", String::new())
    );
    assert_eq!(applied.status.unwrap().lock.unwrap().last_applied, ID);
    assert_eq!(holder(&world, "net").await, None);
    world.event("net", "Normal ForceUnlock").await;
    let history = world.history("net").await;
    assert!(
        history.contains("Unlock Retry") && history.contains("Succeeded ForceUnlock"),
        "{history}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_on_a_state_that_does_not_exist_yet_is_shown_and_released() {
    let world = World::new().await;
    hold(&world, "net").await;
    world.commit("a", &[("main.tf", &module("x"))]).await;
    world.stack("net", json!({})).await;
    let met = world.ready("net", "False TFExecInitFailed").await;
    assert_eq!(shown(&met), ID, "{}", condition(&met, "Ready"));
    let named = json!({ "tfstate": { "forceUnlock": "yes", "lockIdentifier": ID } });
    world.edit("net", named).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(holder(&world, "net").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_without_lock_is_made_while_somebody_holds_it() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", &module("x"))]).await;
    world.stack("net", json!({})).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    hold(&world, "net").await;
    world
        .edit("net", json!({ "plan": { "lock": false }, "approvePlan": "" }))
        .await;
    world.observed("net").await;
    world.commit("b", &[("main.tf", &module("y"))]).await;
    let waits = world.ready("net", "Unknown TerraformPlannedWithChanges").await;
    assert!(!pending(&waits).is_empty());
    assert_eq!(holder(&world, "net").await.as_deref(), Some(ID), "nobody took it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_in_the_way_of_a_destroy_on_deletion_is_released_when_named() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", &module("x"))]).await;
    world
        .stack("net", json!({ "destroyResourcesOnDeletion": true }))
        .await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    hold(&world, "net").await;
    world.delete("net").await;
    world.until("net", "locked", |stack| shown(stack) == ID).await;
    let named = json!({ "tfstate": { "forceUnlock": "yes", "lockIdentifier": ID } });
    world.edit("net", named).await;
    world.gone("net").await;
    let state = world.state("net").await;
    assert!(!state.contains("terraform_data"), "{state}");
}
