//! `dependsOn`: applies wait for dependencies, deletions wait for dependents, and cycles are reported.

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use sluice_api::terraform::Terraform;

use crate::environment::{NAMESPACE, TestEnvironment};
use crate::observe::condition;

const NETWORK: &str = r#"
variable "cidr" { default = "10.0.0.0/8" }
resource "terraform_data" "it" { input = var.cidr }
output "cidr" { value = terraform_data.it.output }
output "zones" { value = ["a", "b"] }
"#;
const APPLICATION: &str = r#"
variable "cidr" {}
resource "terraform_data" "it" { input = var.cidr }
output "seen" { value = terraform_data.it.output }
"#;
/// Records its name when it is destroyed.
const RECORDS_DESTROY: &str = r#"
variable "it" { type = object({ name = string, file = string }) }
resource "terraform_data" "it" {
  input = var.it
  provisioner "local-exec" {
    when    = destroy
    command = "echo ${self.input.name} >> ${self.input.file}"
  }
}
"#;
const ALONE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

fn depends_on(names: &[&str]) -> Value {
    names.iter().map(|name| json!({ "name": name })).collect()
}

impl TestEnvironment {
    async fn finalizers(&self, name: &str) -> Vec<String> {
        let api: Api<Terraform> = self.api();
        api.get(name).await.unwrap().finalizers().to_vec()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_waits_for_the_outputs_that_it_reads() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("net/main.tf", NETWORK), ("app/main.tf", APPLICATION)])
        .await;
    // The dependent first. Its retry interval is long: the dependency must trigger it.
    let reads = json!({ "path": "app", "dependsOn": depends_on(&["net"]), "retryInterval": "1h",
        "varsFrom": [{ "kind": "Secret", "name": "net-outputs" }], "writeOutputsToSecret": { "name": "app-outputs" } });
    env.stack("app", reads).await;
    env.wait_ready(
        "app",
        "False DependencyNotReady unable to get 'team/net' dependency: ",
    )
    .await;
    env.wait_event("app", "Normal DependencyNotReady").await;
    let gives =
        json!({ "path": "net", "writeOutputsToSecret": { "name": "net-outputs" }, "approvePlan": "" });
    env.stack("net", gives).await;
    env.wait_ready(
        "app",
        "False DependencyNotReady dependency 'team/net' is not ready",
    )
    .await;
    assert!(env.runs("app").await.is_empty());
    assert!(
        env.finalizers("net")
            .await
            .contains(&"tf.dependency.of.app".to_owned())
    );
    env.edit("net", json!({ "approvePlan": "auto" })).await;
    env.wait_ready("app", "True TerraformOutputsWritten").await;
    assert_eq!(
        env.value("app-outputs", "seen").await.as_deref(),
        Some("10.0.0.0/8")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_revision_reaches_the_dependency_first() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("net/main.tf", NETWORK), ("app/main.tf", APPLICATION)])
        .await;
    let gives = json!({ "path": "net", "writeOutputsToSecret": { "name": "net-outputs" } });
    env.stack("net", gives).await;
    let reads = json!({ "path": "app", "dependsOn": depends_on(&["net"]), "retryInterval": "1h",
        "varsFrom": [{ "kind": "Secret", "name": "net-outputs" }], "writeOutputsToSecret": { "name": "app-outputs" } });
    env.stack("app", reads).await;
    env.wait_ready("app", "True TerraformOutputsWritten").await;
    let revision = env
        .commit(
            "b",
            &[
                ("net/main.tf", &NETWORK.replace("10.0", "172.16")),
                ("app/main.tf", &APPLICATION.replace("\"seen\"", "\"found\"")),
            ],
        )
        .await;
    env.wait_ready(
        "app",
        &format!("True TerraformOutputsWritten Outputs written: {revision}"),
    )
    .await;
    assert_eq!(
        env.value("app-outputs", "found").await.as_deref(),
        Some("172.16.0.0/8"),
        "not the previous output of the dependency"
    );
    let runs = env.history("app").await;
    assert_eq!(runs.lines().count(), 2, "one run for the revision: {runs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dependency_in_another_namespace_is_denied() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", ALONE)]).await;
    let elsewhere = json!({ "dependsOn": [{ "name": "net", "namespace": "other" }] });
    env.stack("app", elsewhere).await;
    let denied = env
        .wait_ready(
            "app",
            "False AccessDenied cannot access other/net, cross-namespace references have been disabled",
        )
        .await;
    assert!(condition(&denied, "Stalled").starts_with("True AccessDenied"));
    env.wait_event("app", "Warning AccessDenied").await;
    assert!(env.runs("app").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_is_reported_and_ends_with_an_edit() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", ALONE)]).await;
    for (name, next) in [("a", "b"), ("b", "c"), ("c", "a")] {
        env.stack(name, json!({ "dependsOn": depends_on(&[next]) })).await;
    }
    let named = env.wait_ready("a", "False DependencyCycle").await;
    assert_eq!(
        condition(&named, "Ready"),
        "False DependencyCycle dependsOn forms a cycle: team/a -> team/b -> team/c -> team/a; remove one of these dependencies"
    );
    assert!(condition(&named, "Stalled").starts_with("True DependencyCycle"));
    env.wait_ready("b", "False DependencyCycle").await;
    env.wait_event("c", "Warning DependencyCycle").await;
    assert!(env.runs("a").await.is_empty() && env.runs("b").await.is_empty());
    env.edit("c", json!({ "dependsOn": null })).await;
    for name in ["c", "b", "a"] {
        env.wait_ready(name, "True TerraformAppliedSucceed").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stacks_deleted_together_are_destroyed_in_reverse_order() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", RECORDS_DESTROY)]).await;
    let file = env.path("gone");
    for (name, dependency) in [
        ("a", json!([])),
        ("b", depends_on(&["a"])),
        ("c", depends_on(&["a", "b"])),
    ] {
        let spec = json!({ "dependsOn": dependency, "destroyResourcesOnDeletion": true, "retryInterval": "1h",
            "vars": [{ "name": "it", "value": { "name": name, "file": file } }] });
        env.stack(name, spec).await;
    }
    env.wait_ready("c", "True TerraformAppliedSucceed").await;
    env.edit("c", json!({ "suspend": true })).await;
    for name in ["a", "b", "c"] {
        env.delete(name).await;
    }
    for (name, blocked) in [("a", "b, c"), ("b", "c")] {
        let text = format!(
            "False DeletionBlockedByDependantsReason Deletion in progress, but blocked. Please delete {blocked} to resume ..."
        );
        env.wait_for(name, &text, |stack| condition(stack, "Ready") == text)
            .await;
        env.wait_event(name, "Warning DeletionBlockedByDependantsReason")
            .await;
    }
    env.edit("c", json!({ "suspend": false })).await;
    for name in ["c", "b", "a"] {
        env.wait_gone(name).await;
    }
    for name in ["a", "b", "c"] {
        let state: Value = serde_json::from_str(&env.state(name).await).unwrap();
        assert_eq!(state["resources"], json!([]), "{name}");
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), "c\nb\na\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn destroy_runs_in_reverse_order() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", ALONE)]).await;
    env.stack("a", json!({ "retryInterval": "1h" })).await;
    env.stack(
        "b",
        json!({ "dependsOn": depends_on(&["a"]), "approvePlan": "", "retryInterval": "1h" }),
    )
    .await;
    let id = crate::observe::pending(&env.wait_ready("b", "Unknown TerraformPlannedWithChanges").await);
    env.edit("b", json!({ "approvePlan": id })).await;
    env.wait_ready("b", "True TerraformAppliedSucceed").await;
    // The dependency first, as in a sorted list of manifests.
    env.edit("a", json!({ "destroy": true })).await;
    let blocked = "False DestroyBlockedByDependants Destroy in progress, but blocked. Please destroy or delete b to resume ...";
    env.wait_ready("a", blocked).await;
    env.edit("b", json!({ "destroy": true, "approvePlan": "" })).await;
    let id = crate::observe::pending(&env.wait_ready("b", "Unknown TerraformPlannedWithChanges").await);
    assert_eq!(env.runs("a").await.len(), 1, "b is not destroyed yet");
    env.edit("b", json!({ "approvePlan": id })).await;
    env.wait_ready("b", "True TerraformAppliedSucceed Destroy applied successfully")
        .await;
    let destroyed = env
        .wait_ready("a", "True TerraformAppliedSucceed Destroy applied successfully")
        .await;
    assert!(destroyed.status.unwrap().plan.unwrap().is_destroy_plan);
    let end = |run: &sluice_api::run::TerraformRun| run.status.clone().unwrap().finished_at.unwrap();
    let (above, dependency) = (env.runs("b").await, env.runs("a").await);
    assert!(
        end(above.last().unwrap())
            <= dependency
                .last()
                .unwrap()
                .metadata
                .creation_timestamp
                .clone()
                .unwrap(),
        "the dependency was destroyed before its dependent"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_tolerates_missing_dependencies_and_stale_finalizers() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", ALONE)]).await;
    env.stack("app", json!({ "dependsOn": depends_on(&["never"]) }))
        .await;
    env.wait_ready("app", "False DependencyNotReady").await;
    env.delete("app").await;
    env.wait_gone("app").await;

    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let api: Api<Terraform> = Api::namespaced(env.client.clone(), NAMESPACE);
    let own = env.finalizers("net").await;
    let finalizers = json!({ "metadata": { "finalizers": [own[0], "tf.dependency.of.forgotten"] } });
    api.patch("net", &PatchParams::default(), &Patch::Merge(finalizers))
        .await
        .unwrap();
    env.delete("net").await;
    env.wait_gone("net").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_during_a_dependency_wait_is_acknowledged_at_once_and_executed_later() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("net/main.tf", NETWORK), ("app/main.tf", ALONE)])
        .await;
    env.stack("net", json!({ "path": "net" })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.stack(
        "app",
        json!({ "path": "app", "dependsOn": depends_on(&["net"]), "retryInterval": "1h" }),
    )
    .await;
    env.wait_ready("app", "True TerraformAppliedSucceed").await;
    let other = json!({ "vars": [{ "name": "cidr", "value": "10.1.0.0/16" }], "approvePlan": "" });
    env.edit("net", other).await;
    env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await;
    env.request("app", "drift-detection").await;
    let blocked = env.wait_ready("app", "False DependencyNotReady").await;
    // The requester, such as `flux reconcile`, gets a response and sees why nothing has happened yet.
    assert_eq!(
        blocked.status.unwrap().last_handled_reconcile_at,
        "drift-detection"
    );
    assert_eq!(env.runs("app").await.len(), 1);
    env.edit("net", json!({ "approvePlan": "auto" })).await;
    env.wait_ready("app", "True NoDrift").await;
    let history = env.history("app").await;
    assert!(history.contains("2 Plan Request 1: Succeeded"), "{history}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_dependent_blocks_the_deletion_of_its_dependency() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", ALONE)]).await;
    env.stack("net", json!({})).await;
    env.stack("app", json!({ "dependsOn": depends_on(&["net"]) }))
        .await;
    env.wait_ready("app", "True TerraformAppliedSucceed").await;
    // As another version may have written it.
    let resource = ApiResource::erase::<Terraform>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(env.client.clone(), NAMESPACE, &resource);
    let strange = json!({ "spec": { "interval": "soon" } });
    api.patch("app", &PatchParams::default(), &Patch::Merge(strange))
        .await
        .unwrap();
    env.delete("net").await;
    let text = "False DeletionBlockedByDependantsReason Deletion in progress, but blocked. \
        Please delete app (cannot be read) to resume ...";
    env.wait_for("net", text, |stack| condition(stack, "Ready") == text)
        .await;
    env.edit("app", json!({ "interval": "1h" })).await;
    let text = text.replace(" (cannot be read)", "");
    env.wait_for("net", &text, |stack| condition(stack, "Ready") == text)
        .await;
    env.delete("app").await;
    env.wait_gone("app").await;
    env.wait_gone("net").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_that_is_deleted_as_a_whole_is_destroyed_in_the_order_of_names() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", RECORDS_DESTROY)]).await;
    let file = env.path("gone");
    let names = ["a", "b", "c", "d"];
    for (name, dependency) in [
        ("a", json!([])),
        ("b", depends_on(&["a"])),
        ("c", depends_on(&["b"])),
        ("d", depends_on(&["c"])),
    ] {
        let spec = json!({ "dependsOn": dependency, "destroyResourcesOnDeletion": true, "retryInterval": "1h",
            "vars": [{ "name": "it", "value": { "name": name, "file": file } }] });
        env.stack(name, spec).await;
    }
    env.wait_ready("d", "True TerraformAppliedSucceed").await;
    env.edit("a", json!({ "dependsOn": depends_on(&["d"]) })).await;
    env.wait_ready("a", "False DependencyCycle").await;
    for name in ["a", "b", "d"] {
        env.delete(name).await;
    }
    let blocked_stack = env
        .wait_ready("a", "False DeletionBlockedByDependantsReason")
        .await;
    assert!(
        condition(&blocked_stack, "Ready").contains("Please delete b"),
        "{}",
        condition(&blocked_stack, "Ready")
    );
    env.delete("c").await;
    for name in names {
        env.wait_gone(name).await;
    }
    // Without the first one, the others are a chain.
    assert_eq!(std::fs::read_to_string(file).unwrap(), "a\nd\nc\nb\n");
}
