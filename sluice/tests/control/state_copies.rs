//! Copies of states of whole stacks: what the controller passes to runs, and what remains of a deleted stack.

use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::environment::TestEnvironment;

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
