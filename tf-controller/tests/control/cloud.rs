//! The `cloud` block against a service: the plan that is approved is the plan that is applied, and a destroy destroys.

use crate::looks::{condition, pending};
use crate::service::{ORGANIZATION, Service, TOKEN, WORKSPACE};
use crate::world::World;
use serde_json::{Value, json};

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
    let world = World::new().await;
    let service = Service::start(world.dir.path()).await;
    world.commit("a", &[("main.tf", MODULE)]).await;
    let wanted = json!({ "approvePlan": "", "writeOutputsToSecret": { "name": "out" }, "destroyResourcesOnDeletion": true });
    world.stack("net", spec(&service, wanted)).await;
    let id = pending(&world.ready("net", "Unknown TerraformPlannedWithChanges").await);
    world.edit("net", json!({ "approvePlan": id })).await;
    world.ready("net", "True TerraformOutputsWritten").await;
    assert_eq!((resources(&service), service.refused()), (1, 0));
    assert_eq!(world.value("out", "size").await.as_deref(), Some("one"));
    world.request("net", "look").await;
    world.ready("net", "True NoDrift").await;
    // What is left over approves nothing else.
    world
        .edit("net", json!({ "vars": [{ "name": "size", "value": "two" }] }))
        .await;
    let waiting = world.ready("net", "Unknown TerraformPlannedWithChanges").await;
    assert_ne!(pending(&waiting), id);
    world.delete("net").await;
    world.gone("net").await;
    assert_eq!(resources(&service), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_may_come_from_the_configuration_of_the_cli() {
    let world = World::new().await;
    let service = Service::start(world.dir.path()).await;
    world.commit("a", &[("main.tf", MODULE)]).await;
    let mut without = spec(&service, json!({}));
    without["cloud"]["token"] = json!("");
    world.stack("net", without).await;
    let refused = world.ready("net", "False TFExecInitFailed").await;
    assert!(
        condition(&refused, "Ready").contains("oken"),
        "{}",
        condition(&refused, "Ready")
    );
    let text = format!("credentials \"{}\" {{\n  token = \"{TOKEN}\"\n}}\n", service.host);
    world.secret("cli", &[("cloud.tfrc", &text)]).await;
    world
        .edit("net", json!({ "cliConfigSecretRef": { "name": "cli" } }))
        .await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(resources(&service), 1);
}
