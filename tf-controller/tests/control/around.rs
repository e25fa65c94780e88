//! What lies around a module: its backend and workspace, the environment, mapped files, the CLI's configuration.

use crate::looks::{condition, pending};
use crate::world::World;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use sluice_api::terraform::Terraform;
use std::path::Path;

const SIMPLE: &str =
    "resource \"terraform_data\" \"it\" { input = \"x\" }\noutput \"it\" { value = \"x\" }\n";

/// A module that writes down what its apply finds around it.
fn telling(world: &World, command: &str) -> String {
    let file = world.path("told");
    format!(
        "resource \"terraform_data\" \"it\" {{\n  provisioner \"local-exec\" {{ command = \"({command}) > {}\" }}\n}}\n",
        file.display()
    )
}

fn told(world: &World) -> String {
    std::fs::read_to_string(world.path("told")).unwrap()
}

async fn config_map(world: &World, name: &str, data: Value) {
    let map = json!({ "metadata": { "name": name }, "data": data });
    let api: Api<ConfigMap> = world.api();
    api.create(&PostParams::default(), &serde_json::from_value(map).unwrap())
        .await
        .unwrap();
}

/// Names of Secrets that begin so.
async fn secrets(world: &World, front: &str) -> Vec<Secret> {
    let api: Api<Secret> = world.api();
    let mut found = api.list(&ListParams::default()).await.unwrap().items;
    found.retain(|secret| secret.name_any().starts_with(front));
    found
}

fn resources(state: &Path) -> usize {
    let state: Value = serde_json::from_slice(&std::fs::read(state).unwrap()).unwrap();
    state["resources"].as_array().unwrap().len()
}

/// Labels of the object are its own; others of the backend neither lose the state nor change what is there. Terraform finds a state by
/// its labels and would not find it again.
async fn other_labels_keep_the_state(world: &World, state: &Secret) {
    let stacks: Api<Terraform> = world.api();
    let labelled = json!({ "metadata": { "labels": { "team": "storage", "tier": "one" } } });
    let labelled = Patch::Merge(labelled);
    stacks
        .patch("net", &PatchParams::default(), &labelled)
        .await
        .unwrap();
    if sluice_harness::cli::terraform().unwrap().ends_with("tofu") {
        let backend = json!({ "secretSuffix": "custom", "labels": { "team": "network", "cost": "low" } });
        world.edit("net", json!({ "backendConfig": backend })).await;
        world.ready("net", "True TerraformPlannedNoChanges").await;
    }
    world.request("net", "look").await;
    world.ready("net", "True NoDrift").await;
    let after = secrets(world, "tfstate-blue-custom").await;
    assert_eq!(after.len(), 1);
    assert_eq!(after[0].metadata.uid, state.metadata.uid);
    let labels = after[0].labels();
    assert_eq!((labels["team"].as_str(), labels.get("tier")), ("network", None));
}

#[tokio::test(flavor = "multi_thread")]
async fn state_and_plans_have_the_names_that_suffix_and_workspace_give_them() {
    let world = World::new().await;
    let revision = world.commit("a", &[("main.tf", SIMPLE)]).await;
    let backend = json!({ "secretSuffix": "custom", "labels": { "team": "network" } });
    world
        .stack(
            "net",
            json!({ "approvePlan": "", "workspace": "blue", "backendConfig": backend }),
        )
        .await;
    let id = pending(&world.ready("net", "Unknown TerraformPlannedWithChanges").await);
    let plans = secrets(&world, "tfplan-blue-net-").await;
    assert_eq!(
        plans[0].labels()["infra.contrib.fluxcd.io/plan-workspace"],
        "blue"
    );
    world.edit("net", json!({ "approvePlan": id })).await;
    world
        .ready(
            "net",
            &format!("True TerraformAppliedSucceed Applied successfully: {revision}"),
        )
        .await;
    let state = secrets(&world, "tfstate-blue-custom").await;
    let labels = state[0].labels();
    assert_eq!(
        (labels["team"].as_str(), labels["tfstateWorkspace"].as_str()),
        ("network", "blue")
    );
    assert_eq!(
        (labels["tfstateSecretSuffix"].as_str(), labels["tfstate"].as_str()),
        ("custom", "true")
    );

    other_labels_keep_the_state(&world, &state[0]).await;

    // Another workspace is another state, and the plans of the old one go.
    world
        .edit("net", json!({ "approvePlan": "", "workspace": "green" }))
        .await;
    world.ready("net", "Unknown TerraformPlannedWithChanges").await;
    assert_eq!(secrets(&world, "tfplan-green-net-").await.len(), 1);
    assert!(secrets(&world, "tfplan-blue-").await.is_empty());
    world.delete("net").await;
    world.gone("net").await;
    assert!(secrets(&world, "tfplan-").await.is_empty());
    assert!(
        !secrets(&world, "tfstate-blue-custom").await.is_empty(),
        "states are never deleted"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_path_leads_the_backend_to_its_api() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    let backend = json!({ "secretSuffix": "custom", "configPath": "/no/such/kubeconfig" });
    world.stack("net", json!({ "backendConfig": backend })).await;
    world
        .ready("net", "False TFExecInitFailed error running Init: ")
        .await;
    world
        .edit(
            "net",
            json!({ "backendConfig": { "configPath": world.kubeconfig } }),
        )
        .await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(secrets(&world, "tfstate-default-custom").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_or_suffix_that_the_cli_refuses_is_named() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("net", json!({ "workspace": "-state=x" })).await;
    world
        .ready(
            "net",
            "False SelectWorkspaceFailed \"-state=x\" is no name of a workspace",
        )
        .await;
    world.stack("other", json!({ "workspace": "no/workspace" })).await;
    world
        .ready(
            "other",
            "False SelectWorkspaceFailed error running Select Workspace: ",
        )
        .await;
    world.stack("net-1", json!({})).await;
    let cli = sluice_harness::cli::terraform().unwrap();
    if cli.file_name().is_some_and(|name| name == "tofu") {
        world.ready("net-1", "True TerraformAppliedSucceed").await;
        return;
    }
    let refused = world
        .ready("net-1", "False TFExecInitFailed error running Init: ")
        .await;
    assert!(condition(&refused, "Ready").contains("spec.backendConfig.secretSuffix"));
    world
        .edit("net-1", json!({ "backendConfig": { "secretSuffix": "net-one" } }))
        .await;
    world.ready("net-1", "True TerraformAppliedSucceed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_backend_takes_its_arguments_from_secrets_and_config_maps() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    let from = json!([{ "kind": "ConfigMap", "name": "absent", "optional": true },
        { "kind": "ConfigMap", "name": "common" }, { "kind": "Secret", "name": "place", "keys": ["path"] }]);
    let custom = json!({ "customConfiguration": "backend \"local\" {}" });
    world
        .stack(
            "net",
            json!({ "backendConfig": custom, "backendConfigsFrom": from }),
        )
        .await;
    let missing = world.ready("net", "False TFExecInitFailed").await;
    assert!(condition(&missing, "Ready").contains("cannot read ConfigMap common of backendConfigsFrom"));
    assert!(world.runs("net").await.is_empty());
    let (state, wrong) = (world.path("net.tfstate"), world.path("wrong"));
    config_map(&world, "common", json!({ "path": wrong })).await;
    world
        .secret(
            "place",
            &[("path", state.to_str().unwrap()), ("workspace_dir", "/nowhere")],
        )
        .await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!((resources(&state), wrong.exists()), (1, false));
    assert!(secrets(&world, "tfstate-").await.is_empty());
    world.request("net", "look").await;
    world.ready("net", "True NoDrift").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_backend_is_planned_approved_and_destroyed_for_real() {
    let world = World::new().await;
    let state = world.path("own.tfstate");
    let own = format!(
        "terraform {{\n  backend \"local\" {{ path = \"{}\" }}\n}}\n",
        state.display()
    );
    world.commit("a", &[("main.tf", &(own + SIMPLE))]).await;
    let spec = json!({ "approvePlan": "", "backendConfig": { "disable": true }, "destroyResourcesOnDeletion": true });
    world.stack("net", spec).await;
    let id = pending(&world.ready("net", "Unknown TerraformPlannedWithChanges").await);
    world.edit("net", json!({ "approvePlan": id })).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(resources(&state), 1);
    world
        .edit("net", json!({ "approvePlan": "auto", "destroy": true }))
        .await;
    world
        .ready("net", "True TerraformAppliedSucceed Destroy applied successfully")
        .await;
    assert_eq!(resources(&state), 0);
    world.edit("net", json!({ "destroy": false })).await;
    world.ready("net", "True TerraformAppliedSucceed Applied").await;
    assert_eq!(resources(&state), 1);
    world.delete("net").await;
    world.gone("net").await;
    assert_eq!(resources(&state), 0);
    assert!(secrets(&world, "tfstate-").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_comes_from_literals_secrets_and_config_maps() {
    let world = World::new().await;
    let command = "printenv A B C D E F NS TF_TOKEN_x TF_IN_AUTOMATION | tr '\\n' ' '";
    world.commit("a", &[("main.tf", &telling(&world, command))]).await;
    world
        .secret("login", &[("b", "secret"), ("D", "from"), ("E", "old")])
        .await;
    config_map(&world, "settings", json!({ "c": "map", "E": "older", "F": "f" })).await;
    let env = json!([{ "name": "A", "value": "literal" },
        { "name": "B", "valueFrom": { "secretKeyRef": { "name": "login", "key": "b" } } },
        { "name": "C", "valueFrom": { "configMapKeyRef": { "name": "settings", "key": "c" } } },
        { "name": "E", "value": "new" }, { "name": "TF_TOKEN_x", "value": "t" },
        { "name": "NS", "valueFrom": { "fieldRef": { "fieldPath": "metadata.namespace" } } }]);
    let env_from = json!([{ "configMapRef": { "name": "settings" } }, { "secretRef": { "name": "login" } },
        { "secretRef": { "name": "absent", "optional": true } }]);
    world
        .stack(
            "net",
            json!({ "runnerPodTemplate": { "spec": { "env": env, "envFrom": env_from } } }),
        )
        .await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(told(&world), "literal secret map from new f team t 1 ");

    let with = |env: Value| json!({ "runnerPodTemplate": { "spec": { "env": env } } });
    for (env, reason) in [
        (
            json!([{ "name": "TF_VAR_x", "value": "hunter2" }]),
            "error setting env for Terraform: manual setting of env var \"TF_VAR_x\" detected",
        ),
        (
            json!([{ "name": "TF_CLI_ARGS_plan", "value": "hunter2" }]),
            "error setting env for Terraform: manual setting of env var \"TF_CLI_ARGS_plan\" detected",
        ),
        (
            json!([{ "name": "IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } }]),
            "runnerPodTemplate.spec.env: IP takes its value from status.podIP, which only a pod has",
        ),
        (
            json!([{ "name": "X", "valueFrom": { "secretKeyRef": { "name": "absent", "key": "x" } } }]),
            "cannot read Secret absent of runnerPodTemplate.spec.env",
        ),
    ] {
        world.edit("net", with(env)).await;
        world
            .ready("net", &format!("False TFExecInitFailed {reason}"))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mapped_files_and_the_clis_configuration_are_where_they_belong() {
    let world = World::new().await;
    let command = "cat $HOME/.netrc; stat -c %a $HOME/.netrc; cat keys/id; basename $TF_CLI_CONFIG_FILE; \
        cat $TF_CLI_CONFIG_FILE; stat -c %a $TF_CLI_CONFIG_FILE; true";
    world.commit("a", &[("main.tf", &telling(&world, command))]).await;
    let extra = "output \"extra\" { value = \"mapped\" }";
    world
        .secret(
            "files",
            &[("netrc", "machine\n"), ("id", "key\n"), ("extra", extra)],
        )
        .await;
    world
        .secret("cli", &[("own.tfrc", "disable_checkpoint = true\n")])
        .await;
    let mapping = |location, path, key| json!({ "location": location, "path": path, "secretRef": { "name": "files", "key": key } });
    let files = json!([
        mapping("home", ".netrc", "netrc"),
        mapping("workspace", "keys/id", "id"),
        mapping("workspace", "extra.tf", "extra"),
        mapping("workspace", "empty", "no-such-key")
    ]);
    world
        .stack(
            "net",
            json!({ "fileMappings": files, "cliConfigSecretRef": { "name": "cli" }, "writeOutputsToSecret": { "name": "out" } }),
        )
        .await;
    world.ready("net", "True TerraformOutputsWritten").await;
    assert_eq!(
        told(&world),
        "machine\n600\nkey\nown.tfrc\ndisable_checkpoint = true\n600\n"
    );
    assert_eq!(world.value("out", "extra").await.as_deref(), Some("mapped"));
    world.at_rest().await;
    let left = std::fs::read_dir(world.path("runs").join("work")).unwrap();
    let homes = left.filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .ends_with(".home")
    });
    assert_eq!(homes.count(), 0, "nothing of it stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_or_mapping_that_cannot_be_used_is_named() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.secret("files", &[("id", "key")]).await;
    world.secret("cli", &[("own.tfrc", "")]).await;
    world
        .stack("net", json!({ "cliConfigSecretRef": { "name": "cli" } }))
        .await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    world.secret("two", &[("a.tfrc", ""), ("b.tfrc", "")]).await;
    world.secret("other", &[("config", "")]).await;
    for (reference, reason) in [
        (
            json!({ "name": "two" }),
            "TFExecNewFailed cannot process cli config: Secret team/two has to have exactly one key",
        ),
        (
            json!({ "name": "other" }),
            "TFExecNewFailed cannot process cli config: the key \"config\" of Secret team/other",
        ),
        (
            json!({ "name": "absent" }),
            "TFExecNewFailed cannot process cli config: cannot read Secret team/absent: ",
        ),
        (
            json!({ "name": "cli", "namespace": "elsewhere" }),
            "AccessDenied cannot access elsewhere/cli, cross-namespace references have been disabled",
        ),
    ] {
        world
            .edit("net", json!({ "cliConfigSecretRef": reference }))
            .await;
        world.ready("net", &format!("False {reason}")).await;
    }
    let file = json!({ "location": "workspace", "path": "main.tf/x", "secretRef": { "name": "files", "key": "id" } });
    world
        .edit(
            "net",
            json!({ "cliConfigSecretRef": null, "fileMappings": [file] }),
        )
        .await;
    world
        .ready("net", "False TFExecInitFailed cannot write the mapped file \"main.tf/x\": a link or a file is in the way")
        .await;
}
