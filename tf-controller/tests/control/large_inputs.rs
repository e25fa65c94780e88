//! Inputs that no single Secret holds: the bundle of a run is handed over whole, or lies in several Secrets and is used only if all
//! of them are what the controller made.

use crate::world::World;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _, api::PostParams};
use serde_json::{Value, json};
use sluice_api::terraform::{Terraform, run_name};

const MODULE: &str = r#"
variable "a" { type = string }
variable "b" { type = string }
variable "c" { type = string }
resource "terraform_data" "it" { input = length(var.a) + length(var.b) + length(var.c) }
output "length" { value = terraform_data.it.output }
"#;
/// Bytes of each variable.
const LENGTH: usize = 900_000;

impl World {
    /// The module, and what it is given.
    async fn large(&self) -> Value {
        self.commit("a", &[("main.tf", MODULE)]).await;
        for name in ["a", "b", "c"] {
            self.secret(name, &[(name, &name.repeat(LENGTH))]).await;
        }
        let from = ["a", "b", "c"].map(|name| json!({ "kind": "Secret", "name": name }));
        json!({ "varsFrom": from, "writeOutputsToSecret": { "name": "out" }, "destroyResourcesOnDeletion": true })
    }

    /// The Secrets of bundles.
    async fn bundles(&self) -> Vec<String> {
        let mut names = self.secrets("net-").await;
        names.retain(|name| name.contains("-bundle"));
        names
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_of_several_secrets_are_applied_and_destroyed_without_their_source() {
    for is_stored in [false, true] {
        let mut world = World::without_controller().await;
        let spec = world.large().await;
        world.stack("net", spec).await;
        if is_stored {
            world.start_with_stored_bundles().await;
        } else {
            world.start(4).await;
        }
        world.ready("net", "True TerraformOutputsWritten").await;
        assert_eq!(world.value("out", "length").await.as_deref(), Some("2700000"));
        let secrets = if is_stored { 3 } else { 0 };
        assert_eq!(world.runs("net").await[0].spec.bundle_secrets, secrets);
        assert_eq!(world.bundles().await, Vec::<String>::new());
        world.remove_source().await;
        world.delete("net").await;
        world.gone("net").await;
        assert_eq!(world.bundles().await, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_bundle_that_is_there_before_its_run_is_told_and_not_used() {
    let mut world = World::without_controller().await;
    let spec = world.large().await;
    world.stack("net", spec).await;
    let stacks: Api<Terraform> = world.api();
    let uid = stacks.get("net").await.unwrap().uid().unwrap();
    let name = format!("{}-bundle-2", run_name("net", &uid, 1));
    let forged = json!({ "metadata": { "name": name }, "stringData": { "bundle": "x" } });
    let secrets: Api<Secret> = world.api();
    secrets
        .create(&PostParams::default(), &serde_json::from_value(forged).unwrap())
        .await
        .unwrap();
    world.start_with_stored_bundles().await;
    world.ready("net", "True TerraformOutputsWritten").await;
    insta::assert_snapshot!(world.history("net").await, @r"
    1 PlanAndApply Revision 1: Failed TFExecNewFailed
    2 PlanAndApply Retry 2: Succeeded TerraformOutputsWritten +1 ~0 -0
    ");
    let told = world.runs("net").await[0]
        .status
        .as_ref()
        .unwrap()
        .message
        .clone();
    assert!(
        told.contains(&format!("the Secret {name} is not the bundle")),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_that_are_too_large_are_told_with_their_bound() {
    let world = World::new().await;
    world
        .commit("a", &[("main.tf", "variable \"v\" { default = \"\" }")])
        .await;
    let mut files = Vec::new();
    for number in 0..13 {
        let (name, path) = (format!("s{number}"), format!("f{number}"));
        world
            .secret(&name, &[("v", &number.to_string().repeat(500_000))])
            .await;
        for copy in ["a", "b"] {
            files.push(json!({ "location": "home", "path": format!("{copy}{path}"), "secretRef": { "name": name, "key": "v" } }));
        }
    }
    world
        .stack("net", json!({ "fileMappings": files, "retryInterval": "1h" }))
        .await;
    let told = world.ready("net", "False VarsGenerationFailed").await;
    let told = crate::looks::condition(&told, "Ready");
    assert!(
        told.contains(
            "more than the 16777216 that are stored; values that come from Secrets may count twice"
        ),
        "{told}"
    );
    assert_eq!(world.bundles().await, Vec::<String>::new());
}
