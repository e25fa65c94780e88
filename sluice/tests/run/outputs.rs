//! The annotation of the outputs Secret that says which values are not sensitive, as the CLI marks them.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::annotation::NON_SENSITIVE_OUTPUTS;
use sluice_api::terraform::outputs_secret::non_sensitive_keys;

use crate::environment::{NAMESPACE, RunSetup, TestEnvironment, assert_ending, status};

/// A module whose output `host` has this value and this mark.
fn module(host: &str, sensitive: bool) -> String {
    format!(
        "resource \"terraform_data\" \"it\" {{ input = \"{host}\" }}\n\
         output \"host\" {{\n  value     = terraform_data.it.output\n  sensitive = {sensitive}\n}}\n\
         output \"ports\" {{ value = [80, 443] }}\n\
         output \"token\" {{\n  value     = \"hunter2\"\n  sensitive = true\n}}\n"
    )
}

fn bundle() -> Value {
    json!({ "outputs": { "name": "net-outputs", "outputs": ["host:address", "ports", "token"],
        "annotations": { NON_SENSITIVE_OUTPUTS: "token", "c": "d" } } })
}

async fn read(env: &TestEnvironment) -> Secret {
    secrets(env).get("net-outputs").await.unwrap()
}

fn secrets(env: &TestEnvironment) -> Api<Secret> {
    Api::namespaced(env.client(), NAMESPACE)
}

/// Returns the keys whose values the Secret shows.
async fn shown(env: &TestEnvironment) -> Vec<String> {
    let keys = non_sensitive_keys(&read(env).await);
    keys.expect("the Secret says it").into_iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_secret_says_which_outputs_are_not_sensitive() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", &module("one", false))]);
    let applied = env.run(RunSetup::plan_and_apply().with(bundle())).await;
    assert_ending(&applied, "Succeeded TerraformOutputsWritten");
    assert_eq!(shown(&env).await, ["address", "ports"]);
    let secret = read(&env).await;
    assert_eq!(secret.metadata.annotations.as_ref().unwrap()["c"], "d");
    let keys: Vec<_> = secret.data.as_ref().unwrap().keys().collect();
    assert_eq!(keys, ["address", "ports", "ports__type", "token"]);

    env.commit(&[("main.tf", &module("two", true))]);
    let applied = env.run(RunSetup::plan_and_apply().with(bundle())).await;
    assert_ending(&applied, "Succeeded TerraformOutputsWritten");
    assert_eq!(env.secret("net-outputs").await.unwrap()["address"], "two");
    assert_eq!(shown(&env).await, ["ports"]);
}

/// As tofu-controller, or an earlier version, wrote it.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_without_the_annotation_gets_it_from_a_plan_without_changes() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", &module("one", false))]);
    env.run(RunSetup::plan_and_apply().with(bundle())).await;
    let before = read(&env).await;
    let without = Patch::Merge(json!({ "metadata": { "annotations": { NON_SENSITIVE_OUTPUTS: null } } }));
    let without = secrets(&env)
        .patch("net-outputs", &PatchParams::default(), &without)
        .await
        .unwrap();
    assert_eq!(non_sensitive_keys(&without), None);
    let unchanged = env.run(RunSetup::plan().with(bundle())).await;
    assert_ending(&unchanged, "Succeeded TerraformPlannedNoChanges");
    assert!(!status(&unchanged).outputs_written, "the outputs are the same");
    let after = read(&env).await;
    assert_eq!(after.data, before.data);
    assert_eq!(after.metadata.annotations, before.metadata.annotations);
}
