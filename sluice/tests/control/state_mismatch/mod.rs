//! Plans that are made from another state than the last apply left: they are held, in every mode, until the state is found again or
//! a user approves them by their id.

mod deletions;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use sluice_api::run::TerraformRun;

use crate::environment::TestEnvironment;
use crate::observe::{condition, pending};

const MODULE: &str = "variable \"size\" { default = \"one\" }\nresource \"terraform_data\" \"it\" { input = var.size }\n\
    resource \"terraform_data\" \"more\" {}\n";
const APPLIED: &str = "True TerraformAppliedSucceed";
const HELD: &str = "Unknown TerraformPlannedWithChanges Plan generated: set approvePlan: ";

async fn applied_stack(name: &str, spec: Value) -> TestEnvironment {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", MODULE)]).await;
    env.stack(name, spec).await;
    env.wait_ready(name, APPLIED).await;
    env
}

/// Waits until the plan is held with these parts in `Ready`. Returns its id.
async fn held(env: &TestEnvironment, name: &str, parts: &[&str]) -> String {
    let waiting = env.wait_ready(name, HELD).await;
    let message = condition(&waiting, "Ready");
    for part in parts {
        assert!(message.contains(part), "{part}: {message}");
    }
    pending(&waiting)
}

/// Returns the newest run.
async fn last_run(env: &TestEnvironment, name: &str) -> TerraformRun {
    env.runs(name)
        .await
        .into_iter()
        .max_by_key(crate::observe::number)
        .unwrap()
}

fn suffix(suffix: &str) -> Value {
    json!({ "backendConfig": { "secretSuffix": suffix } })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_that_finds_no_state_is_held_until_it_is_undone_or_approved() {
    let env = applied_stack("net", json!({})).await;
    let first = last_run(&env, "net").await.status.unwrap().state.unwrap();
    assert_eq!(first.resources, 2);
    assert_eq!(first.location["workspace"], "default");

    env.edit("net", json!({ "workspace": "blue" })).await;
    let parts = [
        "It is not applied automatically: the CLI finds no state with resources, and run ",
        " left 2 resources in the state with the lineage ",
        first.lineage.as_str(),
        "since then: workspace: default -> blue",
        "Set approvePlan back afterwards.",
    ];
    held(&env, "net", &parts).await;
    let status = last_run(&env, "net").await.status.unwrap();
    assert!(!status.attempted_apply && status.state.is_none(), "{status:?}");
    assert!(
        status.auto_apply_hold.contains(&status.state_mismatch),
        "{status:?}"
    );
    assert!(
        status.human_plan.starts_with("Note: the CLI finds no state"),
        "{}",
        status.human_plan
    );

    // Undone: the state is found again.
    env.edit("net", json!({ "workspace": "default" })).await;
    env.wait_ready("net", "True TerraformPlannedNoChanges").await;

    // Approved: the other state is the known one from then on.
    env.edit("net", json!({ "workspace": "blue" })).await;
    let id = held(&env, "net", &["workspace: default -> blue"]).await;
    env.edit("net", json!({ "approvePlan": id })).await;
    env.wait_ready("net", APPLIED).await;
    let second = last_run(&env, "net").await.status.unwrap().state.unwrap();
    assert!(
        second.lineage != first.lineage && second.resources == 2,
        "{second:?}"
    );
    let size = json!([{ "name": "size", "value": "two" }]);
    env.edit("net", json!({ "approvePlan": "auto", "vars": size }))
        .await;
    env.wait_ready("net", APPLIED).await;
    insta::assert_snapshot!(env.history("net").await, @"
    1 PlanAndApply Revision 1: Succeeded TerraformAppliedSucceed +2 ~0 -0
    2 PlanAndApply Spec 1: Succeeded TerraformPlannedWithChanges +2 ~0 -0
    3 PlanAndApply Spec 1: Succeeded TerraformPlannedNoChanges +0 ~0 -0
    4 PlanAndApply Spec 1: Succeeded TerraformPlannedWithChanges +2 ~0 -0
    5 Apply Approval 1: Succeeded TerraformAppliedSucceed
    6 PlanAndApply Spec 1: Succeeded TerraformAppliedSucceed +0 ~1 -0
    ");
}

/// Writes a state of the generated backend under a suffix, in place of the empty one that the CLI creates, as `state push -force`
/// would.
async fn write_state(env: &TestEnvironment, mut state: Secret, suffix: &str) {
    let api: Api<Secret> = env.api();
    let name = format!("tfstate-default-{suffix}");
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    state.metadata.name = Some(name);
    state.metadata.uid = None;
    state.metadata.resource_version = None;
    let labels = state.labels_mut();
    labels.insert("tfstateSecretSuffix".to_owned(), suffix.to_owned());
    api.create(&PostParams::default(), &state).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moved_state_is_the_same_state() {
    let env = applied_stack("net", json!({})).await;
    env.edit("net", json!({ "force": true })).await;
    env.edit("net", suffix("other")).await;
    let parts = [
        "the CLI finds no state",
        "backendConfig.secretSuffix: (none) -> other",
    ];
    held(&env, "net", &parts).await;
    let api: Api<Secret> = env.api();
    let state = api.get("tfstate-default-net").await.unwrap();
    write_state(&env, state, "other").await;
    env.request("net", "moved").await;
    env.wait_ready("net", "True TerraformPlannedNoChanges").await;
    // Its location is known now: the next change is applied.
    env.edit("net", json!({ "vars": [{ "name": "size", "value": "two" }] }))
        .await;
    env.wait_ready("net", APPLIED).await;
    let run = last_run(&env, "net").await.status.unwrap();
    assert_eq!(
        (run.changes.as_str(), run.state_mismatch.as_str()),
        ("+0 ~1 -0", "")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_state_of_the_same_lineage_is_held() {
    let env = applied_stack("net", json!({})).await;
    env.edit("net", suffix("other")).await;
    held(&env, "net", &["the CLI finds no state"]).await;
    let api: Api<Secret> = env.api();
    let state = api.get("tfstate-default-net").await.unwrap();
    write_state(&env, state, "other").await;
    env.request("net", "moved").await;
    env.wait_ready("net", "True TerraformPlannedNoChanges").await;
    // The old state stays where it was, and the moved one grows.
    let module = format!("{MODULE}resource \"terraform_data\" \"third\" {{}}\n");
    env.commit("b", &[("main.tf", &module)]).await;
    env.wait_ready("net", APPLIED).await;
    let known = last_run(&env, "net").await.status.unwrap().state.unwrap();
    assert_eq!(known.resources, 3);

    env.edit("net", suffix("net")).await;
    let serial = format!(" and at least the serial {}", known.serial);
    let parts = [
        "the CLI finds an older state (serial ",
        ", 2 resources), and run ",
        " left 3 resources in the state with the lineage ",
        serial.as_str(),
        "backendConfig.secretSuffix: other -> net",
    ];
    held(&env, "net", &parts).await;
    let status = last_run(&env, "net").await.status.unwrap();
    assert_eq!(
        (status.changes.as_str(), status.attempted_apply),
        ("+1 ~0 -0", false)
    );
    env.edit("net", suffix("other")).await;
    env.wait_ready("net", "True TerraformPlannedNoChanges").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_a_failed_first_apply_is_known() {
    let broken = "resource \"terraform_data\" \"broken\" {\n  depends_on = [terraform_data.it, terraform_data.more]\n  \
                  provisioner \"local-exec\" { command = \"exit 1\" }\n}\n";
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", &format!("{MODULE}{broken}"))])
        .await;
    env.stack("net", json!({ "retryInterval": "1h" })).await;
    env.wait_ready("net", "False TFExecApplyFailed").await;
    let state = last_run(&env, "net").await.status.unwrap().state.unwrap();
    assert!(
        state.resources >= 2 && !state.lineage.is_empty() && state.serial > 0,
        "{state:?}"
    );
    // The edit that renames the state is not the cause of duplicates.
    env.edit("net", suffix("other")).await;
    let left = format!(
        " left {} resources in the state with the lineage {}",
        state.resources, state.lineage
    );
    held(&env, "net", &["the CLI finds no state with resources", &left]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_without_changes_does_not_accept_the_state_of_another_stack() {
    let env = applied_stack("net", json!({})).await;
    env.stack("other", json!({})).await;
    env.wait_ready("other", APPLIED).await;
    env.edit("net", suffix("other")).await;
    env.wait_ready("net", "True TerraformPlannedNoChanges").await;
    let size = json!([{ "name": "size", "value": "two" }]);
    env.edit("net", json!({ "vars": size })).await;
    let parts = ["the CLI finds another state", "secretSuffix: (none) -> other"];
    held(&env, "net", &parts).await;
}

/// The number of resources in a state of the generated backend.
async fn resources(env: &TestEnvironment, name: &str) -> usize {
    let state: Value = serde_json::from_str(&env.state(name).await).unwrap();
    state["resources"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_another_stack_is_held_although_nothing_is_created() {
    let env = applied_stack("net", json!({})).await;
    env.stack("other", json!({})).await;
    env.wait_ready("other", APPLIED).await;
    let size = json!([{ "name": "size", "value": "two" }]);
    let mut edit = suffix("other");
    edit["vars"] = size;
    env.edit("net", edit).await;
    let other = last_run(&env, "other").await.status.unwrap().state.unwrap();
    let finds = format!(
        "the CLI finds another state (lineage {}, 2 resources)",
        other.lineage
    );
    held(&env, "net", &[&finds, "secretSuffix: (none) -> other"]).await;
    let status = last_run(&env, "net").await.status.unwrap();
    assert_eq!(
        (status.changes.as_str(), status.attempted_apply),
        ("+0 ~1 -0", false)
    );
    assert!(env.state("other").await.contains("\"one\""), "it is unchanged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_state_is_held_as_drift_and_in_manual_mode() {
    let env = applied_stack("net", json!({})).await;
    let api: Api<Secret> = env.api();
    let state = api.get("tfstate-default-net").await.unwrap();
    api.delete("tfstate-default-net", &DeleteParams::default())
        .await
        .unwrap();
    env.request("net", "drift-detection").await;
    let drift = env.wait_ready("net", "False DriftDetected").await;
    let message = condition(&drift, "Ready");
    for part in [
        "the CLI finds no state",
        "no field changed that determines where the state is",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let empty: Value = serde_json::from_str(&env.state("net").await).unwrap();
    assert_eq!(empty["resources"], json!([]), "nothing was applied");

    // In manual mode the plan waits anyway; its approver is warned.
    env.edit("net", json!({ "approvePlan": "" })).await;
    let manual = env.wait_ready("net", "False DriftDetected").await;
    let message = condition(&manual, "Ready");
    assert!(
        message.contains("Check the state first: the CLI finds no state"),
        "{message}"
    );

    write_state(&env, state, "net").await;
    env.request("net", "restored").await;
    env.wait_ready("net", "True NoDrift").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroyed_stack_may_have_another_state() {
    let env = applied_stack("net", json!({})).await;
    env.edit("net", json!({ "destroy": true })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed Destroy applied successfully")
        .await;
    let state = last_run(&env, "net").await.status.unwrap().state.unwrap();
    assert_eq!(state.resources, 0);
    env.edit("net", json!({ "destroy": false, "workspace": "blue" }))
        .await;
    env.wait_ready("net", "True TerraformAppliedSucceed Applied successfully")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroyed_stack_destroys_no_other_state() {
    let env = applied_stack("net", json!({})).await;
    env.stack("other", json!({})).await;
    env.wait_ready("other", APPLIED).await;
    env.edit("net", json!({ "destroy": true })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed Destroy applied successfully")
        .await;
    env.edit("net", suffix("other")).await;
    let parts = [
        "the CLI finds another state",
        "left 0 resources in the state with the lineage ",
        "An approval destroys the 2 resources of the state that is found",
    ];
    held(&env, "net", &parts).await;
    assert_eq!(resources(&env, "other").await, 2);
}

/// Terraform finds the state of the kubernetes backend by its labels, and writes it by its name: with other labels `init` replaces it.
#[tokio::test(flavor = "multi_thread")]
async fn changed_labels_of_the_backend_do_not_replace_the_state() {
    let labelled =
        |team: &str| json!({ "backendConfig": { "secretSuffix": "net", "labels": { "team": team } } });
    let env = applied_stack("net", labelled("network")).await;
    let before = env.state("net").await;
    env.edit("net", labelled("storage")).await;
    if sluice_harness::cli::terraform().unwrap().ends_with("tofu") {
        env.wait_ready("net", "True TerraformPlannedNoChanges").await;
        return;
    }
    let refused = env.wait_ready("net", "False TFExecInitFailed").await;
    let message = condition(&refused, "Ready");
    for part in [
        "the Secret tfstate-default-net does not have team=storage (labels of spec.backendConfig)",
        "nothing was done",
        "kubectl label secret tfstate-default-net team=storage --overwrite",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(env.state("net").await, before);
    let api: Api<Secret> = env.api();
    let labels = json!({ "metadata": { "labels": { "team": "storage" } } });
    api.patch(
        "tfstate-default-net",
        &PatchParams::default(),
        &Patch::Merge(labels),
    )
    .await
    .unwrap();
    env.wait_ready("net", "True TerraformPlannedNoChanges").await;
    assert_eq!(env.state("net").await, before);
}
