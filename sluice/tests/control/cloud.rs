//! The `cloud` block with a fake service: the approved plan is applied, and a destroy destroys.

use serde_json::{Value, json};

use crate::environment::TestEnvironment;
use crate::fake_cloud::{ORGANIZATION, Service, TOKEN, WORKSPACE};
use crate::observe::{condition, pending};

const MODULE: &str = "variable \"size\" { default = \"one\" }\nresource \"terraform_data\" \"it\" { input = var.size }\n\
    output \"size\" { value = terraform_data.it.output }\n";

fn spec(service: &Service, more: Value) -> Value {
    let env = json!([{ "name": "SSL_CERT_FILE", "value": service.authority }, { "name": "NO_PROXY", "value": "localhost" }]);
    let mut spec = json!({ "runnerPodTemplate": { "spec": { "env": env } }, "cloud": { "organization": ORGANIZATION,
        "hostname": service.host, "token": TOKEN, "workspaces": { "name": WORKSPACE } } });
    let Value::Object(more) = more else {
        panic!("an object")
    };
    spec.as_object_mut().unwrap().extend(more);
    spec
}

fn resources(service: &Service) -> usize {
    service.state()["resources"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_in_the_cloud_is_planned_approved_and_destroyed() {
    let env = TestEnvironment::new().await;
    let service = Service::start(env.dir.path()).await;
    env.commit("a", &[("main.tf", MODULE)]).await;
    let defaults = json!({ "approvePlan": "", "writeOutputsToSecret": { "name": "out" }, "destroyResourcesOnDeletion": true });
    env.stack("net", spec(&service, defaults)).await;
    let id = pending(&env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await);
    env.edit("net", json!({ "approvePlan": id })).await;
    env.wait_ready("net", "True TerraformOutputsWritten").await;
    assert_eq!((resources(&service), service.refused()), (1, 0));
    assert_eq!(env.value("out", "size").await.as_deref(), Some("one"));
    env.request("net", "drift-detection").await;
    env.wait_ready("net", "True NoDrift").await;
    // The old id approves nothing else.
    env.edit("net", json!({ "vars": [{ "name": "size", "value": "two" }] }))
        .await;
    let waiting = env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await;
    assert_ne!(pending(&waiting), id);
    env.delete("net").await;
    env.wait_gone("net").await;
    assert_eq!(resources(&service), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_may_come_from_the_cli_configuration() {
    let env = TestEnvironment::new().await;
    let service = Service::start(env.dir.path()).await;
    env.commit("a", &[("main.tf", MODULE)]).await;
    let mut without = spec(&service, json!({}));
    without["cloud"]["token"] = json!("");
    env.stack("net", without).await;
    let refused = env.wait_ready("net", "False TFExecInitFailed").await;
    assert!(
        condition(&refused, "Ready").contains("oken"),
        "{}",
        condition(&refused, "Ready")
    );
    let text = format!("credentials \"{}\" {{\n  token = \"{TOKEN}\"\n}}\n", service.host);
    env.secret("cli", &[("cloud.tfrc", &text)]).await;
    env.edit("net", json!({ "cliConfigSecretRef": { "name": "cli" } }))
        .await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(resources(&service), 1);
}
