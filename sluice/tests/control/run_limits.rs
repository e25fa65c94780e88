//! Limits of concurrent runs besides their number: by a label, and by memory.

use serde_json::json;
use sluice_tf_controller::{MemoryQuantity, RunLimits};

use crate::environment::TestEnvironment;
use crate::interruptions::{SLOW, is_applying, spec};
use crate::observe::{condition, wait_for_file};

/// Creates a slow stack with this value of the label `account`.
async fn add_stack(env: &TestEnvironment, name: &str, account: Option<&str>) {
    let mut suspended = spec(env, name);
    suspended["suspend"] = json!(true);
    env.stack(name, suspended).await;
    env.patch(name, json!({ "metadata": { "labels": { "account": account } } }))
        .await;
    env.edit(name, json!({ "suspend": null })).await;
}

/// Lets the apply of a slow stack end.
fn release(env: &TestEnvironment, name: &str) {
    std::fs::write(env.path(&format!("{name}.go")), "").unwrap();
}

/// Waits until `Ready` of a stack that has no run names what it waits for.
async fn wait_until_queued(env: &TestEnvironment, name: &str, limit: &str) {
    env.wait_for(name, "waiting in the queue", |stack| {
        let ready = condition(stack, "Ready");
        ready.contains("free run slot: position 1 in the queue") && ready.contains(limit)
    })
    .await;
    assert!(env.runs(name).await.is_empty(), "{name} does not wait");
}

#[tokio::test(flavor = "multi_thread")]
async fn stacks_with_the_same_label_run_one_after_the_other_also_after_a_restart() {
    let mut env = TestEnvironment::without_controller().await;
    env.limits.per_label = [("account".to_owned(), 1)].into();
    env.start(4).await;
    env.commit("a", &[("main.tf", SLOW)]).await;
    add_stack(&env, "net", Some("prod")).await;
    wait_for_file(&env.path("net")).await;
    env.wait_run("net", "applying", is_applying).await;
    env.stop().await;
    add_stack(&env, "other", Some("prod")).await;
    add_stack(&env, "dev", Some("dev")).await;
    add_stack(&env, "free", None).await;
    env.start(4).await;
    for name in ["dev", "free"] {
        release(&env, name);
        env.wait_ready(name, "True TerraformAppliedSucceed").await;
    }
    let limit =
        "the limit of stacks with the label account=prod is reached (--concurrent-per-label=account=1)";
    wait_until_queued(&env, "other", limit).await;
    release(&env, "other");
    release(&env, "net");
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.wait_ready("other", "True TerraformAppliedSucceed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_waits_until_its_estimated_memory_is_free() {
    let mut env = TestEnvironment::without_controller().await;
    // Less than any run needs: each of them runs alone.
    env.limits = RunLimits {
        memory: MemoryQuantity::from_bytes(1),
        ..RunLimits::of_runs(4)
    };
    env.start(4).await;
    env.commit("a", &[("main.tf", SLOW)]).await;
    env.stack("net", spec(&env, "net")).await;
    wait_for_file(&env.path("net")).await;
    env.stack("other", spec(&env, "other")).await;
    wait_until_queued(&env, "other", "exceed --run-memory-limit=1").await;
    release(&env, "other");
    release(&env, "net");
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.wait_ready("other", "True TerraformAppliedSucceed").await;
    let run = env.runs("net").await.pop().unwrap();
    assert!(
        run.status.unwrap().memory_limit_bytes.is_none(),
        "it had no container"
    );
}
