//! `dependsOn`: what is made waits for what it builds on, what goes waits for what builds on it, and circles have names.

use crate::looks::condition;
use crate::world::{NAMESPACE, World};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use sluice_api::terraform::Terraform;

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
/// Writes its name down when it is destroyed.
const MOURNED: &str = r#"
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

fn on(names: &[&str]) -> Value {
    names.iter().map(|name| json!({ "name": name })).collect()
}

impl World {
    async fn finalizers(&self, name: &str) -> Vec<String> {
        let api: Api<Terraform> = self.api();
        api.get(name).await.unwrap().finalizers().to_vec()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_waits_for_the_outputs_that_it_reads() {
    let world = World::new().await;
    world
        .commit("a", &[("net/main.tf", NETWORK), ("app/main.tf", APPLICATION)])
        .await;
    // The dependant first. Its retry is far away: what wakes it is the dependency.
    let reads = json!({ "path": "app", "dependsOn": on(&["net"]), "retryInterval": "1h",
        "varsFrom": [{ "kind": "Secret", "name": "net-outputs" }], "writeOutputsToSecret": { "name": "app-outputs" } });
    world.stack("app", reads).await;
    world
        .ready(
            "app",
            "False DependencyNotReady unable to get 'team/net' dependency: ",
        )
        .await;
    world.event("app", "Normal DependencyNotReady").await;
    let gives =
        json!({ "path": "net", "writeOutputsToSecret": { "name": "net-outputs" }, "approvePlan": "" });
    world.stack("net", gives).await;
    world
        .ready(
            "app",
            "False DependencyNotReady dependency 'team/net' is not ready",
        )
        .await;
    assert!(world.runs("app").await.is_empty());
    assert!(
        world
            .finalizers("net")
            .await
            .contains(&"tf.dependency.of.app".to_owned())
    );
    world.edit("net", json!({ "approvePlan": "auto" })).await;
    world.ready("app", "True TerraformOutputsWritten").await;
    assert_eq!(
        world.value("app-outputs", "seen").await.as_deref(),
        Some("10.0.0.0/8")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_revision_reaches_the_dependency_first() {
    let world = World::new().await;
    world
        .commit("a", &[("net/main.tf", NETWORK), ("app/main.tf", APPLICATION)])
        .await;
    let gives = json!({ "path": "net", "writeOutputsToSecret": { "name": "net-outputs" } });
    world.stack("net", gives).await;
    let reads = json!({ "path": "app", "dependsOn": on(&["net"]), "retryInterval": "1h",
        "varsFrom": [{ "kind": "Secret", "name": "net-outputs" }], "writeOutputsToSecret": { "name": "app-outputs" } });
    world.stack("app", reads).await;
    world.ready("app", "True TerraformOutputsWritten").await;
    let revision = world
        .commit(
            "b",
            &[
                ("net/main.tf", &NETWORK.replace("10.0", "172.16")),
                ("app/main.tf", &APPLICATION.replace("\"seen\"", "\"found\"")),
            ],
        )
        .await;
    world
        .ready(
            "app",
            &format!("True TerraformOutputsWritten Outputs written: {revision}"),
        )
        .await;
    assert_eq!(
        world.value("app-outputs", "found").await.as_deref(),
        Some("172.16.0.0/8"),
        "not what the dependency gave before"
    );
    let runs = world.history("app").await;
    assert_eq!(runs.lines().count(), 2, "one run for the revision: {runs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dependency_in_another_namespace_is_denied() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", ALONE)]).await;
    let elsewhere = json!({ "dependsOn": [{ "name": "net", "namespace": "other" }] });
    world.stack("app", elsewhere).await;
    let denied = world
        .ready(
            "app",
            "False AccessDenied cannot access other/net, cross-namespace references have been disabled",
        )
        .await;
    assert!(condition(&denied, "Stalled").starts_with("True AccessDenied"));
    world.event("app", "Warning AccessDenied").await;
    assert!(world.runs("app").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_circle_is_named_and_ends_with_an_edit() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", ALONE)]).await;
    for (name, next) in [("a", "b"), ("b", "c"), ("c", "a")] {
        world.stack(name, json!({ "dependsOn": on(&[next]) })).await;
    }
    let named = world.ready("a", "False DependencyCycle").await;
    assert_eq!(
        condition(&named, "Ready"),
        "False DependencyCycle dependsOn forms a cycle: team/a -> team/b -> team/c -> team/a; none of them can be first, \
         so remove one of these dependencies"
    );
    assert!(condition(&named, "Stalled").starts_with("True DependencyCycle"));
    world.ready("b", "False DependencyCycle").await;
    world.event("c", "Warning DependencyCycle").await;
    assert!(world.runs("a").await.is_empty() && world.runs("b").await.is_empty());
    world.edit("c", json!({ "dependsOn": null })).await;
    for name in ["c", "b", "a"] {
        world.ready(name, "True TerraformAppliedSucceed").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_deleted_at_once_go_in_reverse_order() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", MOURNED)]).await;
    let file = world.path("gone");
    for (name, below) in [("a", json!([])), ("b", on(&["a"])), ("c", on(&["a", "b"]))] {
        let spec = json!({ "dependsOn": below, "destroyResourcesOnDeletion": true, "retryInterval": "1h",
            "vars": [{ "name": "it", "value": { "name": name, "file": file } }] });
        world.stack(name, spec).await;
    }
    world.ready("c", "True TerraformAppliedSucceed").await;
    world.edit("c", json!({ "suspend": true })).await;
    for name in ["a", "b", "c"] {
        world.delete(name).await;
    }
    for (name, blocked) in [("a", "b, c"), ("b", "c")] {
        let text = format!(
            "False DeletionBlockedByDependantsReason Deletion in progress, but blocked. Please delete {blocked} to resume ..."
        );
        world
            .until(name, &text, |stack| condition(stack, "Ready") == text)
            .await;
        world
            .event(name, "Warning DeletionBlockedByDependantsReason")
            .await;
    }
    world.edit("c", json!({ "suspend": false })).await;
    for name in ["c", "b", "a"] {
        world.gone(name).await;
    }
    for name in ["a", "b", "c"] {
        let state: Value = serde_json::from_str(&world.state(name).await).unwrap();
        assert_eq!(state["resources"], json!([]), "{name}");
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), "c\nb\na\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn destroy_goes_in_reverse_order() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", ALONE)]).await;
    world.stack("a", json!({ "retryInterval": "1h" })).await;
    world
        .stack(
            "b",
            json!({ "dependsOn": on(&["a"]), "approvePlan": "", "retryInterval": "1h" }),
        )
        .await;
    let id = crate::looks::pending(&world.ready("b", "Unknown TerraformPlannedWithChanges").await);
    world.edit("b", json!({ "approvePlan": id })).await;
    world.ready("b", "True TerraformAppliedSucceed").await;
    // The lower one first, as a sorted list of manifests brings them.
    world.edit("a", json!({ "destroy": true })).await;
    let waits = "False DestroyBlockedByDependants Destroy in progress, but blocked. Please destroy or delete b to resume ...";
    world.ready("a", waits).await;
    world
        .edit("b", json!({ "destroy": true, "approvePlan": "" }))
        .await;
    let id = crate::looks::pending(&world.ready("b", "Unknown TerraformPlannedWithChanges").await);
    assert_eq!(world.runs("a").await.len(), 1, "b is not destroyed yet");
    world.edit("b", json!({ "approvePlan": id })).await;
    world
        .ready("b", "True TerraformAppliedSucceed Destroy applied successfully")
        .await;
    let gone = world
        .ready("a", "True TerraformAppliedSucceed Destroy applied successfully")
        .await;
    assert!(gone.status.unwrap().plan.unwrap().is_destroy_plan);
    let end = |run: &sluice_api::run::TerraformRun| run.status.clone().unwrap().finished_at.unwrap();
    let (above, below) = (world.runs("b").await, world.runs("a").await);
    assert!(
        end(above.last().unwrap()) <= below.last().unwrap().metadata.creation_timestamp.clone().unwrap(),
        "the lower one began before the upper one was destroyed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_tolerates_dependencies_that_are_gone_and_finalizers_that_nobody_stands_behind() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", ALONE)]).await;
    world.stack("app", json!({ "dependsOn": on(&["never"]) })).await;
    world.ready("app", "False DependencyNotReady").await;
    world.delete("app").await;
    world.gone("app").await;

    world.stack("net", json!({})).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    let api: Api<Terraform> = Api::namespaced(world.client.clone(), NAMESPACE);
    let own = world.finalizers("net").await;
    let left = json!({ "metadata": { "finalizers": [own[0], "tf.dependency.of.forgotten"] } });
    api.patch("net", &PatchParams::default(), &Patch::Merge(left))
        .await
        .unwrap();
    world.delete("net").await;
    world.gone("net").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_meets_a_dependency_that_is_not_ready_is_echoed_at_once_and_carried_out_later() {
    let world = World::new().await;
    world
        .commit("a", &[("net/main.tf", NETWORK), ("app/main.tf", ALONE)])
        .await;
    world.stack("net", json!({ "path": "net" })).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    world
        .stack(
            "app",
            json!({ "path": "app", "dependsOn": on(&["net"]), "retryInterval": "1h" }),
        )
        .await;
    world.ready("app", "True TerraformAppliedSucceed").await;
    let other = json!({ "vars": [{ "name": "cidr", "value": "10.1.0.0/16" }], "approvePlan": "" });
    world.edit("net", other).await;
    world.ready("net", "Unknown TerraformPlannedWithChanges").await;
    world.request("app", "look").await;
    let waits = world.ready("app", "False DependencyNotReady").await;
    // Whoever asked, `flux reconcile` say, is answered, and sees why nothing was done yet.
    assert_eq!(waits.status.unwrap().last_handled_reconcile_at, "look");
    assert_eq!(world.runs("app").await.len(), 1);
    world.edit("net", json!({ "approvePlan": "auto" })).await;
    world.ready("app", "True NoDrift").await;
    let history = world.history("app").await;
    assert!(history.contains("2 Plan Request 1: Succeeded"), "{history}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dependant_that_cannot_be_read_keeps_what_it_builds_on() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", ALONE)]).await;
    world.stack("net", json!({})).await;
    world.stack("app", json!({ "dependsOn": on(&["net"]) })).await;
    world.ready("app", "True TerraformAppliedSucceed").await;
    // As another version may leave it.
    let resource = ApiResource::erase::<Terraform>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), NAMESPACE, &resource);
    let strange = json!({ "spec": { "interval": "soon" } });
    api.patch("app", &PatchParams::default(), &Patch::Merge(strange))
        .await
        .unwrap();
    world.delete("net").await;
    let text = "False DeletionBlockedByDependantsReason Deletion in progress, but blocked. \
        Please delete app (cannot be read) to resume ...";
    world
        .until("net", text, |stack| condition(stack, "Ready") == text)
        .await;
    world.edit("app", json!({ "interval": "1h" })).await;
    let text = text.replace(" (cannot be read)", "");
    world
        .until("net", &text, |stack| condition(stack, "Ready") == text)
        .await;
    world.delete("app").await;
    world.gone("app").await;
    world.gone("net").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_circle_that_is_deleted_as_a_whole_goes_in_the_order_of_its_names() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", MOURNED)]).await;
    let file = world.path("gone");
    let names = ["a", "b", "c", "d"];
    for (name, below) in [
        ("a", json!([])),
        ("b", on(&["a"])),
        ("c", on(&["b"])),
        ("d", on(&["c"])),
    ] {
        let spec = json!({ "dependsOn": below, "destroyResourcesOnDeletion": true, "retryInterval": "1h",
            "vars": [{ "name": "it", "value": { "name": name, "file": file } }] });
        world.stack(name, spec).await;
    }
    world.ready("d", "True TerraformAppliedSucceed").await;
    world.edit("a", json!({ "dependsOn": on(&["d"]) })).await;
    world.ready("a", "False DependencyCycle").await;
    for name in ["a", "b", "d"] {
        world.delete(name).await;
    }
    let kept = world.ready("a", "False DeletionBlockedByDependantsReason").await;
    assert!(
        condition(&kept, "Ready").contains("Please delete b"),
        "{}",
        condition(&kept, "Ready")
    );
    world.delete("c").await;
    for name in names {
        world.gone(name).await;
    }
    // Without the first one the others are a chain again.
    assert_eq!(std::fs::read_to_string(file).unwrap(), "a\nd\nc\nb\n");
}
