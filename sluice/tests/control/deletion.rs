//! Deletion: from the current source, from the last applied configuration, or of nothing; deletion policies.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;

use crate::environment::{NAMESPACE, SOURCE, TestEnvironment};
use crate::observe::condition;

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;
/// Needs its variable and its local module for a destroy, and records their values.
const NEEDS_INPUTS: &str = r#"
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

impl TestEnvironment {
    /// Returns the names of the Secrets with this prefix.
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
        self.wait_for(name, "applied", |stack| {
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
async fn the_last_applied_configuration_destroys_when_source_and_inputs_are_gone() {
    let env = TestEnvironment::new().await;
    let record_file = env.path("record");
    let module = inner(&record_file);
    let files = [
        ("app/main.tf", NEEDS_INPUTS),
        ("app/inner/main.tf", module.as_str()),
        ("other/big", "not read"),
    ];
    env.commit("a", &files).await;
    env.secret("sizes", &[("size", "large")]).await;
    let spec = json!({ "path": "app", "varsFrom": [{ "kind": "Secret", "name": "sizes" }],
        "destroyResourcesOnDeletion": true });
    env.stack("app", spec).await;
    env.wait_ready("app", "True TerraformAppliedSucceed").await;
    assert_eq!(env.secrets("tfapplied-default-app-").await.len(), 1);
    env.remove_source().await;
    let secrets: Api<Secret> = env.api();
    secrets.delete("sizes", &DeleteParams::default()).await.unwrap();
    env.delete("app").await;
    env.wait_gone("app").await;
    assert_eq!(std::fs::read_to_string(&record_file).unwrap().trim(), "large");
    let state: Value = serde_json::from_str(&env.state("app").await).unwrap();
    assert_eq!(state["resources"], json!([]));
    assert!(
        env.secrets("tfapplied-").await.is_empty(),
        "it is deleted with the object"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_successful_apply_and_a_later_failed_one_are_stored() {
    let env = TestEnvironment::new().await;
    let stack = |command: &str| {
        format!(
            "variable \"n\" {{}}\nresource \"terraform_data\" \"it\" {{\n  input = var.n\n  \
             provisioner \"local-exec\" {{ command = \"{command}\" }}\n  triggers_replace = [var.n]\n}}"
        )
    };
    let vars = |n: &str| json!({ "vars": [{ "name": "n", "value": n }], "destroyResourcesOnDeletion": true });
    env.commit("a", &[("main.tf", &stack("true"))]).await;
    env.stack("net", vars("1")).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let first = env.secrets("tfapplied-").await;
    env.edit("net", vars("2")).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let second = env.secrets("tfapplied-").await;
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first, second, "only the latest successful one is stored");
    let failing = json!({ "vars": [{ "name": "n", "value": "3" }], "retryInterval": "1h" });
    env.edit("net", json!({ "retryInterval": "1h" })).await;
    env.commit("b", &[("main.tf", &stack("false"))]).await;
    env.edit("net", failing).await;
    env.wait_ready("net", "False TFExecApplyFailed").await;
    let both = env.secrets("tfapplied-").await;
    assert!(both.len() == 2 && both.contains(&second[0]), "{both:?}");
    // The number of stored ones does not grow.
    env.request("net", "again").await;
    env.wait_run("net", "another attempt", |run| {
        crate::observe::number(run) >= 4 && run.status.as_ref().is_some_and(|status| status.phase.is_final())
    })
    .await;
    let both = env.secrets("tfapplied-").await;
    assert!(both.len() == 2 && both.contains(&second[0]), "{both:?}");
    env.remove_source().await;
    env.delete("net").await;
    env.wait_gone("net").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_that_was_never_applied_is_deleted_without_its_source() {
    let env = TestEnvironment::new().await;
    env.stack("net", json!({ "destroyResourcesOnDeletion": true }))
        .await;
    env.wait_ready("net", "False ArtifactFailed").await;
    env.delete("net").await;
    env.wait_gone("net").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orphan_keeps_the_resources_and_deletes_the_state() {
    let env = TestEnvironment::new().await;
    let record_file = env.path("record");
    env.commit("a", &[("main.tf", inner(&record_file).as_str())])
        .await;
    for (name, policy) in [("orphan", "Orphan"), ("kept", "Retain"), ("other", "Destroy")] {
        let vars = json!([{ "name": "size", "value": name }]);
        env.stack(
            name,
            json!({ "deletionPolicy": policy, "vars": vars, "storeReadablePlan": "human" }),
        )
        .await;
        env.wait_ready(name, "True TerraformAppliedSucceed").await;
    }
    let leases: Api<Lease> = env.api();
    let locks = || async {
        let mut names: Vec<_> = leases.list(&ListParams::default()).await.unwrap().items;
        names.retain(|lease| lease.name_any().starts_with("lock-tfstate-"));
        names.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    };
    assert!(locks().await.contains(&"lock-tfstate-default-orphan".to_owned()));
    for name in ["orphan", "kept", "other"] {
        env.delete(name).await;
        env.wait_gone(name).await;
    }
    assert!(env.secrets("tfstate-default-orphan").await.is_empty());
    assert!(!locks().await.contains(&"lock-tfstate-default-orphan".to_owned()));
    assert!(env.state("kept").await.contains("terraform_data"));
    assert!(!env.state("other").await.contains("terraform_data"));
    assert_eq!(
        std::fs::read_to_string(&record_file).unwrap().trim(),
        "other",
        "only Destroy destroys"
    );
    let maps: Api<ConfigMap> = env.api();
    let remaining = maps.list(&ListParams::default()).await.unwrap().items;
    assert!(remaining.iter().all(|map| !map.name_any().starts_with("tfplan-")));
    assert!(env.secrets("tfplan-").await.is_empty() && env.secrets("tfapplied-").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn stacks_with_an_overlong_name_or_an_invalid_workspace_are_deleted() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    let long = format!("{}-end", "net".repeat(25));
    env.stack(&long, json!({ "deletionPolicy": "Orphan" })).await;
    env.wait_ready(&long, "True TerraformAppliedSucceed").await;
    let state = format!("tfstate-default-{}", sluice_api::terraform::label_value(&long));
    assert_eq!(env.secrets("tfstate-").await, std::slice::from_ref(&state));
    // The CLI refuses this workspace, so nothing was ever created in it.
    let slash = |more: Value| {
        let mut spec = json!({ "workspace": "feature/x" });
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        spec
    };
    env.stack("orphan", slash(json!({ "deletionPolicy": "Orphan" })))
        .await;
    env.stack("lost", slash(json!({ "destroyResourcesOnDeletion": true })))
        .await;
    for name in ["orphan", "lost"] {
        env.wait_ready(name, "False SelectWorkspaceFailed").await;
    }
    env.remove_source().await;
    for name in [long.as_str(), "orphan", "lost"] {
        env.delete(name).await;
        env.wait_gone(name).await;
    }
    assert!(!env.secrets("tfstate-").await.contains(&state));
}

#[tokio::test(flavor = "multi_thread")]
async fn contradicting_fields_stop_a_stack_and_its_deletion() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.edit(
        "net",
        json!({ "deletionPolicy": "Retain", "destroyResourcesOnDeletion": true }),
    )
    .await;
    let refused = env
        .wait_ready(
            "net",
            "False ContradictingFields spec.deletionPolicy is Retain and spec.destroyResourcesOnDeletion is true",
        )
        .await;
    assert!(condition(&refused, "Stalled").starts_with("True ContradictingFields"));
    env.wait_event("net", "Warning ContradictingFields").await;
    env.delete("net").await;
    env.wait_for("net", "to wait", |stack| {
        stack.metadata.deletion_timestamp.is_some()
            && stack
                .status
                .as_ref()
                .and_then(|status| status.observed_generation)
                == stack.metadata.generation
    })
    .await;
    env.edit("net", json!({ "destroyResourcesOnDeletion": false }))
        .await;
    env.wait_gone("net").await;
    assert!(env.state("net").await.contains("terraform_data"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_definition_refuses_contradicting_fields() {
    let embedded = sluice_embedded::ApiServer::builder()
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
            .contains("deletionPolicy Orphan and Retain contradict"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_namespace_deletes_its_stacks() {
    let env = TestEnvironment::new().await;
    env.commit(
        "a",
        &[(
            "main.tf",
            "output \"x\" { value = 1 }\nresource \"terraform_data\" \"it\" {}",
        )],
    )
    .await;
    let lower = json!({ "storeReadablePlan": "json", "writeOutputsToSecret": { "name": "out" } });
    env.stack("lower", lower).await;
    env.stack(
        "upper",
        json!({ "dependsOn": [{ "name": "lower" }], "approvePlan": "" }),
    )
    .await;
    env.wait_ready("upper", "Unknown TerraformPlannedWithChanges")
        .await;
    let namespaces: Api<Namespace> = Api::all(env.client.clone());
    namespaces
        .delete(NAMESPACE, &DeleteParams::default())
        .await
        .unwrap();
    // Acts as the namespace controller, in an unfavourable order: deletes the inputs of the stacks first.
    let secrets: Api<Secret> = env.api();
    for name in env.secrets("").await {
        drop(secrets.delete(&name, &DeleteParams::default()).await);
    }
    for name in ["lower", "upper"] {
        let api: Api<Terraform> = env.api();
        drop(api.delete(name, &DeleteParams::default()).await);
        env.wait_gone(name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_destroy_on_deletion_is_retried_until_it_succeeds() {
    let env = TestEnvironment::new().await;
    let gate = env.path("gate");
    let module = format!(
        "resource \"terraform_data\" \"it\" {{\n  provisioner \"local-exec\" {{\n    when = destroy\n    command = \"test -e {}\"\n  }}\n}}",
        gate.display()
    );
    env.commit("a", &[("main.tf", &module)]).await;
    env.stack(
        "net",
        json!({ "deletionPolicy": "Destroy", "approvePlan": "auto" }),
    )
    .await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let api: Api<Terraform> = env.api();
    let planned = json!({ "spec": { "approvePlan": "", "planOnly": true } });
    api.patch("net", &PatchParams::default(), &Patch::Merge(planned))
        .await
        .unwrap();
    env.delete("net").await;
    env.wait_run("net", "a second attempt", |run| {
        run.spec.attempt == 2 && run.spec.destroy
    })
    .await;
    env.wait_event("net", "Warning TFExecDestroyFailed").await;
    std::fs::write(&gate, "").unwrap();
    tokio::time::timeout(Duration::from_secs(100), env.wait_gone("net"))
        .await
        .unwrap();
}
