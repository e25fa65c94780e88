//! Copies of states of whole stacks: what the controller passes to runs, and what remains of a deleted stack.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use sluice_api::run::TerraformRun;

use crate::environment::{TIMEOUT, TestEnvironment};
use crate::observe::pending;

const MODULE: &str =
    "variable \"size\" { default = \"one\" }\nresource \"terraform_data\" \"it\" { input = var.size }\n";

fn size(size: &str) -> Value {
    json!({ "vars": [{ "name": "size", "value": size }] })
}

/// Returns the serials of the copies of a stack.
async fn serials(env: &TestEnvironment, stack: &str) -> Vec<String> {
    let api: Api<Secret> = env.api();
    let params = ListParams::default().labels(&format!("infra.sluice.dev/state-copy={stack}"));
    let found = api.list(&params).await.unwrap();
    let mut serials: Vec<_> = found
        .iter()
        .map(|copy| copy.labels()["infra.sluice.dev/state-serial"].clone())
        .collect();
    serials.sort_unstable();
    serials
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_stay_with_a_retained_state_and_are_deleted_otherwise() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", MODULE)]).await;
    let policies = ["Retain", "Destroy", "Orphan"];
    for policy in policies {
        let name = policy.to_lowercase();
        env.stack(&name, json!({ "deletionPolicy": policy })).await;
        env.wait_ready(&name, "True TerraformAppliedSucceed").await;
        assert_eq!(serials(&env, &name).await, Vec::<String>::new(), "{policy}");
        env.edit(&name, size("two")).await;
        let updated = env.wait_run(&name, "the second apply", |run| {
            run.status
                .as_ref()
                .is_some_and(|s| s.applied && !s.state_copy.is_empty())
        });
        updated.await;
        assert_eq!(serials(&env, &name).await.len(), 1, "{policy}");
    }
    for policy in policies {
        let name = policy.to_lowercase();
        env.delete(&name).await;
        env.wait_gone(&name).await;
        let remaining = serials(&env, &name).await.len();
        assert_eq!(remaining, usize::from(policy == "Retain"), "{policy}");
    }
    // The next object of the name has the state, and continues with its copies.
    let mut spec = size("three");
    spec["deletionPolicy"] = "Retain".into();
    env.stack("retain", spec).await;
    env.wait_ready("retain", "True TerraformAppliedSucceed").await;
    assert_eq!(serials(&env, "retain").await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroy_deletes_the_copies_of_its_workspace_only() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", MODULE)]).await;
    env.stack("net", json!({ "deletionPolicy": "Destroy" })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let wait_copies = async |count: usize| {
        let copied = |run: &&TerraformRun| {
            let status = run.status.as_ref();
            status.is_some_and(|status| status.applied && !status.state_copy.is_empty())
        };
        let search = async {
            while env.runs("net").await.iter().filter(copied).count() != count {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, search).await.unwrap();
    };
    env.edit("net", size("two")).await;
    wait_copies(1).await;
    env.edit("net", json!({ "workspace": "blue" })).await;
    let held = env
        .wait_ready(
            "net",
            "Unknown TerraformPlannedWithChanges Plan generated: set approvePlan: ",
        )
        .await;
    env.edit("net", json!({ "approvePlan": pending(&held) })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let mut three = size("three");
    three["approvePlan"] = "auto".into();
    env.edit("net", three).await;
    wait_copies(2).await;
    let api: Api<Secret> = env.api();
    let params = ListParams::default().labels("infra.sluice.dev/state-copy=net");
    let workspaces = async || -> Vec<String> {
        let found = api.list(&params).await.unwrap();
        let mut workspaces: Vec<_> = found
            .iter()
            .map(|copy| copy.labels()["infra.sluice.dev/state-copy-workspace"].clone())
            .collect();
        workspaces.sort_unstable();
        workspaces
    };
    assert_eq!(workspaces().await, ["blue", "default"]);
    env.delete("net").await;
    env.wait_gone("net").await;
    // The resources of the other workspace stay, and so does its state.
    assert_eq!(workspaces().await, ["default"]);
}
