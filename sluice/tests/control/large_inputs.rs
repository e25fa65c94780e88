//! Inputs larger than a Secret: a bundle is passed on standard input as a whole, or is split into several Secrets and used only if
//! the controller created all of them.

use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use sluice_api::terraform::{Terraform, run_name};

use crate::environment::TestEnvironment;

const MODULE: &str = r#"
variable "a" { type = string }
variable "b" { type = string }
variable "c" { type = string }
resource "terraform_data" "it" { input = length(var.a) + length(var.b) + length(var.c) }
output "length" { value = terraform_data.it.output }
"#;
/// Size of each variable in bytes.
const LENGTH: usize = 900_000;

impl TestEnvironment {
    /// Publishes the module and returns the variables.
    async fn publish_large_inputs(&self) -> Value {
        self.commit("a", &[("main.tf", MODULE)]).await;
        for name in ["a", "b", "c"] {
            self.secret(name, &[(name, &name.repeat(LENGTH))]).await;
        }
        let from = ["a", "b", "c"].map(|name| json!({ "kind": "Secret", "name": name }));
        json!({ "varsFrom": from, "writeOutputsToSecret": { "name": "out" }, "destroyResourcesOnDeletion": true })
    }

    /// Returns the Secrets of bundles.
    async fn bundles(&self) -> Vec<String> {
        let mut names = self.secrets("net-").await;
        names.retain(|name| name.contains("-bundle"));
        names
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_in_several_secrets_are_applied_and_destroyed_without_their_source() {
    for is_stored in [false, true] {
        let mut env = TestEnvironment::without_controller().await;
        let spec = env.publish_large_inputs().await;
        env.stack("net", spec).await;
        if is_stored {
            env.start_with_stored_bundles().await;
        } else {
            env.start(4).await;
        }
        env.wait_ready("net", "True TerraformOutputsWritten").await;
        assert_eq!(env.value("out", "length").await.as_deref(), Some("2700000"));
        let secrets = if is_stored { 3 } else { 0 };
        assert_eq!(env.runs("net").await[0].spec.bundle_secrets, secrets);
        assert_eq!(env.bundles().await, Vec::<String>::new());
        env.remove_source().await;
        env.delete("net").await;
        env.wait_gone("net").await;
        assert_eq!(env.bundles().await, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_bundle_that_exists_before_its_run_is_reported_and_not_used() {
    let mut env = TestEnvironment::without_controller().await;
    let spec = env.publish_large_inputs().await;
    env.stack("net", spec).await;
    let stacks: Api<Terraform> = env.api();
    let uid = stacks.get("net").await.unwrap().uid().unwrap();
    let name = format!("{}-bundle-2", run_name("net", &uid, 1));
    let forged = json!({ "metadata": { "name": name }, "stringData": { "bundle": "x" } });
    let secrets: Api<Secret> = env.api();
    secrets
        .create(&PostParams::default(), &serde_json::from_value(forged).unwrap())
        .await
        .unwrap();
    env.start_with_stored_bundles().await;
    env.wait_ready("net", "True TerraformOutputsWritten").await;
    insta::assert_snapshot!(env.history("net").await, @r"
    1 PlanAndApply Revision 1: Failed TFExecNewFailed
    2 PlanAndApply Retry 2: Succeeded TerraformOutputsWritten +1 ~0 -0
    ");
    let message = env.runs("net").await[0].status.as_ref().unwrap().message.clone();
    assert!(
        message.contains(&format!("the Secret {name} is not the bundle")),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_that_are_too_large_are_reported_with_the_limit() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", "variable \"v\" { default = \"\" }")])
        .await;
    let mut files = Vec::new();
    for number in 0..13 {
        let (name, path) = (format!("s{number}"), format!("f{number}"));
        env.secret(&name, &[("v", &number.to_string().repeat(500_000))])
            .await;
        for copy in ["a", "b"] {
            files.push(json!({ "location": "home", "path": format!("{copy}{path}"), "secretRef": { "name": name, "key": "v" } }));
        }
    }
    env.stack("net", json!({ "fileMappings": files, "retryInterval": "1h" }))
        .await;
    let message = env.wait_ready("net", "False VarsGenerationFailed").await;
    let message = crate::observe::condition(&message, "Ready");
    assert!(
        message.contains("more than the limit of 16777216; values from Secrets may count twice"),
        "{message}"
    );
    assert_eq!(env.bundles().await, Vec::<String>::new());
}
