//! Deletion: from what is there, from what was applied last, or without anything; what stays and what goes.

use crate::looks::condition;
use crate::world::{NAMESPACE, SOURCE, World};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Namespace, Secret},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use sluice_api::{source::GitRepository, terraform::Terraform};
use std::time::Duration;

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;
/// Needs its variable and its local module to be destroyed, and tells what it was destroyed with.
const NEEDY: &str = r#"
variable "size" {}
module "inner" {
  source = "./inner"
  size   = var.size
}
"#;

pub(crate) fn inner(file: &std::path::Path) -> String {
    format!(
        r#"
variable "size" {{}}
resource "terraform_data" "it" {{
  input = var.size
  provisioner "local-exec" {{
    when    = destroy
    command = "echo ${{self.input}} > {}"
  }}
}}
"#,
        file.display()
    )
}

impl World {
    /// Names of the Secrets of which the name begins so.
    pub(crate) async fn secrets(&self, beginning: &str) -> Vec<String> {
        let api: Api<Secret> = self.api();
        let all = api.list(&ListParams::default()).await.unwrap().items;
        let mut names: Vec<_> = all.iter().map(ResourceExt::name_any).collect();
        names.retain(|name| name.starts_with(beginning));
        names
    }

    /// Waits until the stack has applied this revision.
    pub(crate) async fn applied(&self, name: &str, mark: &str) {
        let revision = format!("main@sha1:{}", mark.repeat(40));
        self.until(name, "applied", |stack| {
            let applied = stack
                .status
                .as_ref()
                .map(|status| status.last_applied_revision.as_str());
            applied == Some(&revision) && condition(stack, "Ready").starts_with("True ")
        })
        .await;
    }

    pub(crate) async fn remove_source(&self) {
        let api: Api<GitRepository> = self.api();
        api.delete(SOURCE, &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_applied_last_destroys_when_source_and_inputs_are_gone() {
    let world = World::new().await;
    let told = world.path("told");
    let module = inner(&told);
    let files = [
        ("app/main.tf", NEEDY),
        ("app/inner/main.tf", module.as_str()),
        ("other/big", "not read"),
    ];
    world.commit("a", &files).await;
    world.secret("sizes", &[("size", "large")]).await;
    let spec = json!({ "path": "app", "varsFrom": [{ "kind": "Secret", "name": "sizes" }],
        "destroyResourcesOnDeletion": true });
    world.stack("app", spec).await;
    world.ready("app", "True TerraformAppliedSucceed").await;
    assert_eq!(world.secrets("tfapplied-default-app-").await.len(), 1);
    world.remove_source().await;
    let secrets: Api<Secret> = world.api();
    secrets.delete("sizes", &DeleteParams::default()).await.unwrap();
    world.delete("app").await;
    world.gone("app").await;
    assert_eq!(std::fs::read_to_string(&told).unwrap().trim(), "large");
    let state: Value = serde_json::from_str(&world.state("app").await).unwrap();
    assert_eq!(state["resources"], json!([]));
    assert!(
        world.secrets("tfapplied-").await.is_empty(),
        "it went with the object"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_good_apply_is_kept_and_a_failed_one_beside_it() {
    let world = World::new().await;
    let stack = |command: &str| {
        format!(
            "variable \"n\" {{}}\nresource \"terraform_data\" \"it\" {{\n  input = var.n\n  \
             provisioner \"local-exec\" {{ command = \"{command}\" }}\n  triggers_replace = [var.n]\n}}"
        )
    };
    let vars = |n: &str| json!({ "vars": [{ "name": "n", "value": n }], "destroyResourcesOnDeletion": true });
    world.commit("a", &[("main.tf", &stack("true"))]).await;
    world.stack("net", vars("1")).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    let first = world.secrets("tfapplied-").await;
    world.edit("net", vars("2")).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    let second = world.secrets("tfapplied-").await;
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first, second, "the newest is the one that is kept");
    let failing = json!({ "vars": [{ "name": "n", "value": "3" }], "retryInterval": "1h" });
    world.edit("net", json!({ "retryInterval": "1h" })).await;
    world.commit("b", &[("main.tf", &stack("false"))]).await;
    world.edit("net", failing).await;
    world.ready("net", "False TFExecApplyFailed").await;
    let both = world.secrets("tfapplied-").await;
    assert!(both.len() == 2 && both.contains(&second[0]), "{both:?}");
    // Nothing that is kept twice grows further.
    world.request("net", "again").await;
    world
        .run("net", "another attempt", |run| {
            crate::looks::number(run) >= 4
                && run.status.as_ref().is_some_and(|status| status.phase.is_final())
        })
        .await;
    let both = world.secrets("tfapplied-").await;
    assert!(both.len() == 2 && both.contains(&second[0]), "{both:?}");
    world.remove_source().await;
    world.delete("net").await;
    world.gone("net").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_destroyed_says_what_is_missing_and_what_to_do() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world
        .stack("net", json!({ "destroyResourcesOnDeletion": true }))
        .await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    let secrets: Api<Secret> = world.api();
    for name in world.secrets("tfapplied-").await {
        secrets.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    world.remove_source().await;
    world.delete("net").await;
    let stuck = world
        .until("net", "stuck", |stack| {
            condition(stack, "Ready").starts_with("False ArtifactFailed cannot destroy: ")
        })
        .await;
    let text = condition(&stuck, "Ready");
    assert!(
        text.contains(
            "GitRepository.source.toolkit.fluxcd.io \"code\" not found; nothing is kept of what was applied"
        ) && text.contains("deletionPolicy: Retain"),
        "{text}"
    );
    world.event("net", "Warning ArtifactFailed").await;
    world
        .edit("net", json!({ "destroyResourcesOnDeletion": false }))
        .await;
    world.gone("net").await;
    assert!(world.state("net").await.contains("terraform_data"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_that_never_had_anything_goes_without_its_source() {
    let world = World::new().await;
    world
        .stack("net", json!({ "destroyResourcesOnDeletion": true }))
        .await;
    world.ready("net", "False ArtifactFailed").await;
    world.delete("net").await;
    world.gone("net").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orphan_keeps_its_resources_and_loses_its_state() {
    let world = World::new().await;
    let told = world.path("told");
    world.commit("a", &[("main.tf", inner(&told).as_str())]).await;
    for (name, policy) in [("orphan", "Orphan"), ("kept", "Retain"), ("other", "Destroy")] {
        let vars = json!([{ "name": "size", "value": name }]);
        world
            .stack(
                name,
                json!({ "deletionPolicy": policy, "vars": vars, "storeReadablePlan": "human" }),
            )
            .await;
        world.ready(name, "True TerraformAppliedSucceed").await;
    }
    let leases: Api<Lease> = world.api();
    let locks = || async {
        let mut names: Vec<_> = leases.list(&ListParams::default()).await.unwrap().items;
        names.retain(|lease| lease.name_any().starts_with("lock-tfstate-"));
        names.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    };
    assert!(locks().await.contains(&"lock-tfstate-default-orphan".to_owned()));
    for name in ["orphan", "kept", "other"] {
        world.delete(name).await;
        world.gone(name).await;
    }
    assert!(world.secrets("tfstate-default-orphan").await.is_empty());
    assert!(!locks().await.contains(&"lock-tfstate-default-orphan".to_owned()));
    assert!(world.state("kept").await.contains("terraform_data"));
    assert!(!world.state("other").await.contains("terraform_data"));
    assert_eq!(
        std::fs::read_to_string(&told).unwrap().trim(),
        "other",
        "only Destroy destroys"
    );
    let maps: Api<ConfigMap> = world.api();
    let left = maps.list(&ListParams::default()).await.unwrap().items;
    assert!(left.iter().all(|map| !map.name_any().starts_with("tfplan-")));
    assert!(world.secrets("tfplan-").await.is_empty() && world.secrets("tfapplied-").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_too_long_for_a_label_and_a_workspace_that_is_none_are_let_go() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    let long = format!("{}-end", "net".repeat(25));
    world.stack(&long, json!({ "deletionPolicy": "Orphan" })).await;
    world.ready(&long, "True TerraformAppliedSucceed").await;
    let state = format!("tfstate-default-{}", sluice_api::terraform::label_value(&long));
    assert_eq!(world.secrets("tfstate-").await, std::slice::from_ref(&state));
    // The CLI takes no such workspace, so nothing was ever made in it.
    let slash = |more: Value| {
        let mut spec = json!({ "workspace": "feature/x" });
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        spec
    };
    world
        .stack("orphan", slash(json!({ "deletionPolicy": "Orphan" })))
        .await;
    world
        .stack("lost", slash(json!({ "destroyResourcesOnDeletion": true })))
        .await;
    for name in ["orphan", "lost"] {
        world.ready(name, "False SelectWorkspaceFailed").await;
    }
    world.remove_source().await;
    for name in [long.as_str(), "orphan", "lost"] {
        world.delete(name).await;
        world.gone(name).await;
    }
    assert!(!world.secrets("tfstate-").await.contains(&state));
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_contradict_each_other_stop_a_stack_and_its_deletion() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("net", json!({})).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    world
        .edit(
            "net",
            json!({ "deletionPolicy": "Retain", "destroyResourcesOnDeletion": true }),
        )
        .await;
    let refused = world
        .ready(
            "net",
            "False ContradictingFields spec.deletionPolicy is Retain and spec.destroyResourcesOnDeletion is true",
        )
        .await;
    assert!(condition(&refused, "Stalled").starts_with("True ContradictingFields"));
    world.event("net", "Warning ContradictingFields").await;
    world.delete("net").await;
    world
        .until("net", "to wait", |stack| {
            stack.metadata.deletion_timestamp.is_some()
                && stack
                    .status
                    .as_ref()
                    .and_then(|status| status.observed_generation)
                    == stack.metadata.generation
        })
        .await;
    world
        .edit("net", json!({ "destroyResourcesOnDeletion": false }))
        .await;
    world.gone("net").await;
    assert!(world.state("net").await.contains("terraform_data"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_definition_refuses_fields_that_contradict_each_other() {
    let embedded = sluice_embedded::Server::builder()
        .crds(sluice_api::crds())
        .build()
        .unwrap();
    let namespace = json!({ "metadata": { "name": NAMESPACE } });
    let namespaces: Api<Namespace> = Api::all(embedded.client());
    namespaces
        .create(
            &PostParams::default(),
            &serde_json::from_value(namespace).unwrap(),
        )
        .await
        .unwrap();
    let api: Api<Terraform> = Api::namespaced(embedded.client(), NAMESPACE);
    let create = async |name: &str, policy: &str, destroys: bool| {
        let stack = json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": { "name": name }, "spec": { "interval": "1h", "deletionPolicy": policy,
            "destroyResourcesOnDeletion": destroys, "sourceRef": { "kind": "GitRepository", "name": "s" } } });
        api.create(&PostParams::default(), &serde_json::from_value(stack).unwrap())
            .await
    };
    for (name, policy, destroys) in [
        ("a", "Destroy", true),
        ("b", "Destroy", false),
        ("c", "Orphan", false),
    ] {
        create(name, policy, destroys).await.unwrap();
    }
    let error = create("d", "Orphan", true).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("deletionPolicy Orphan and Retain keep"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_deleted_takes_its_stacks_with_it() {
    let world = World::new().await;
    world
        .commit(
            "a",
            &[(
                "main.tf",
                "output \"x\" { value = 1 }\nresource \"terraform_data\" \"it\" {}",
            )],
        )
        .await;
    let lower = json!({ "storeReadablePlan": "json", "writeOutputsToSecret": { "name": "out" } });
    world.stack("lower", lower).await;
    world
        .stack(
            "upper",
            json!({ "dependsOn": [{ "name": "lower" }], "approvePlan": "" }),
        )
        .await;
    world.ready("upper", "Unknown TerraformPlannedWithChanges").await;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    namespaces
        .delete(NAMESPACE, &DeleteParams::default())
        .await
        .unwrap();
    // The namespace controller's part, in its own disorder: first what the stacks are made of.
    let secrets: Api<Secret> = world.api();
    for name in world.secrets("").await {
        drop(secrets.delete(&name, &DeleteParams::default()).await);
    }
    for name in ["lower", "upper"] {
        let api: Api<Terraform> = world.api();
        drop(api.delete(name, &DeleteParams::default()).await);
        world.gone(name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deletion_of_a_failed_destroy_is_tried_again_until_it_succeeds() {
    let world = World::new().await;
    let gate = world.path("gate");
    let module = format!(
        "resource \"terraform_data\" \"it\" {{\n  provisioner \"local-exec\" {{\n    when = destroy\n    command = \"test -e {}\"\n  }}\n}}",
        gate.display()
    );
    world.commit("a", &[("main.tf", &module)]).await;
    world
        .stack(
            "net",
            json!({ "deletionPolicy": "Destroy", "approvePlan": "auto" }),
        )
        .await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    let api: Api<Terraform> = world.api();
    let planned = json!({ "spec": { "approvePlan": "", "planOnly": true } });
    api.patch("net", &PatchParams::default(), &Patch::Merge(planned))
        .await
        .unwrap();
    world.delete("net").await;
    world
        .run("net", "a second attempt", |run| {
            run.spec.attempt == 2 && run.spec.destroy
        })
        .await;
    world.event("net", "Warning TFExecDestroyFailed").await;
    std::fs::write(&gate, "").unwrap();
    tokio::time::timeout(Duration::from_secs(100), world.gone("net"))
        .await
        .unwrap();
}
