//! The execution environment of a module: backend, workspace, environment variables, mapped files and CLI configuration.

use std::path::Path;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use sluice_api::terraform::Terraform;

use crate::environment::TestEnvironment;
use crate::observe::{condition, pending};

const SIMPLE: &str =
    "resource \"terraform_data\" \"it\" { input = \"x\" }\noutput \"it\" { value = \"x\" }\n";

/// Returns a module whose apply records its environment.
fn recording_module(env: &TestEnvironment, command: &str) -> String {
    let file = env.path("record");
    format!(
        "resource \"terraform_data\" \"it\" {{\n  provisioner \"local-exec\" {{ command = \"({command}) > {}\" }}\n}}\n",
        file.display()
    )
}

fn record(env: &TestEnvironment) -> String {
    std::fs::read_to_string(env.path("record")).unwrap()
}

/// Returns the Secrets whose names begin with `prefix`.
async fn secrets(env: &TestEnvironment, prefix: &str) -> Vec<Secret> {
    let api: Api<Secret> = env.api();
    let mut found = api.list(&ListParams::default()).await.unwrap().items;
    found.retain(|secret| secret.name_any().starts_with(prefix));
    found
}

fn resources(state: &Path) -> usize {
    let state: Value = serde_json::from_slice(&std::fs::read(state).unwrap()).unwrap();
    state["resources"].as_array().unwrap().len()
}

/// Labels of the object are its own. Changed labels of the backend keep the state and change nothing: Terraform finds a state by
/// its labels and would otherwise lose it.
async fn other_labels_keep_the_state(env: &TestEnvironment, state: &Secret) {
    let stacks: Api<Terraform> = env.api();
    let labelled = json!({ "metadata": { "labels": { "team": "storage", "tier": "one" } } });
    let labelled = Patch::Merge(labelled);
    stacks
        .patch("net", &PatchParams::default(), &labelled)
        .await
        .unwrap();
    if sluice_harness::cli::terraform().unwrap().ends_with("tofu") {
        let backend = json!({ "secretSuffix": "custom", "labels": { "team": "network", "cost": "low" } });
        env.edit("net", json!({ "backendConfig": backend })).await;
        env.wait_ready("net", "True TerraformPlannedNoChanges").await;
    }
    env.request("net", "drift-detection").await;
    env.wait_ready("net", "True NoDrift").await;
    let after = secrets(env, "tfstate-blue-custom").await;
    assert_eq!(after.len(), 1);
    assert_eq!(after[0].metadata.uid, state.metadata.uid);
    let labels = after[0].labels();
    assert_eq!((labels["team"].as_str(), labels.get("tier")), ("network", None));
}

#[tokio::test(flavor = "multi_thread")]
async fn suffix_and_workspace_determine_the_names_of_state_and_plans() {
    let env = TestEnvironment::new().await;
    let revision = env.commit("a", &[("main.tf", SIMPLE)]).await;
    let backend = json!({ "secretSuffix": "custom", "labels": { "team": "network" } });
    env.stack(
        "net",
        json!({ "approvePlan": "", "workspace": "blue", "backendConfig": backend }),
    )
    .await;
    let id = pending(&env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await);
    let plans = secrets(&env, "tfplan-blue-net-").await;
    assert_eq!(
        plans[0].labels()["infra.contrib.fluxcd.io/plan-workspace"],
        "blue"
    );
    env.edit("net", json!({ "approvePlan": id })).await;
    env.wait_ready(
        "net",
        &format!("True TerraformAppliedSucceed Applied successfully: {revision}"),
    )
    .await;
    let state = secrets(&env, "tfstate-blue-custom").await;
    let labels = state[0].labels();
    assert_eq!(
        (labels["team"].as_str(), labels["tfstateWorkspace"].as_str()),
        ("network", "blue")
    );
    assert_eq!(
        (labels["tfstateSecretSuffix"].as_str(), labels["tfstate"].as_str()),
        ("custom", "true")
    );

    other_labels_keep_the_state(&env, &state[0]).await;

    // Another workspace has another state; the plans of the old one are deleted.
    env.edit("net", json!({ "approvePlan": "", "workspace": "green" }))
        .await;
    env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await;
    assert_eq!(secrets(&env, "tfplan-green-net-").await.len(), 1);
    assert!(secrets(&env, "tfplan-blue-").await.is_empty());
    env.delete("net").await;
    env.wait_gone("net").await;
    assert!(secrets(&env, "tfplan-").await.is_empty());
    assert!(
        !secrets(&env, "tfstate-blue-custom").await.is_empty(),
        "states are never deleted"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backend_uses_the_api_of_its_config_path() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    let backend = json!({ "secretSuffix": "custom", "configPath": "/no/such/kubeconfig" });
    env.stack("net", json!({ "backendConfig": backend })).await;
    env.wait_ready("net", "False TFExecInitFailed error running Init: ")
        .await;
    env.edit(
        "net",
        json!({ "backendConfig": { "configPath": env.kubeconfig } }),
    )
    .await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(secrets(&env, "tfstate-default-custom").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_or_suffix_that_the_cli_refuses_is_reported() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({ "workspace": "-state=x" })).await;
    env.wait_ready(
        "net",
        "False SelectWorkspaceFailed \"-state=x\" is not a valid workspace name",
    )
    .await;
    env.stack("other", json!({ "workspace": "no/workspace" })).await;
    env.wait_ready(
        "other",
        "False SelectWorkspaceFailed error running Select Workspace: ",
    )
    .await;
    env.stack("net-1", json!({})).await;
    let cli = sluice_harness::cli::terraform().unwrap();
    if cli.file_name().is_some_and(|name| name == "tofu") {
        env.wait_ready("net-1", "True TerraformAppliedSucceed").await;
        return;
    }
    let refused = env
        .wait_ready("net-1", "False TFExecInitFailed error running Init: ")
        .await;
    assert!(condition(&refused, "Ready").contains("spec.backendConfig.secretSuffix"));
    env.edit("net-1", json!({ "backendConfig": { "secretSuffix": "net-one" } }))
        .await;
    env.wait_ready("net-1", "True TerraformAppliedSucceed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_backend_gets_its_arguments_from_secrets_and_config_maps() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    let from = json!([{ "kind": "ConfigMap", "name": "absent", "optional": true },
        { "kind": "ConfigMap", "name": "common" }, { "kind": "Secret", "name": "place", "keys": ["path"] }]);
    let custom = json!({ "customConfiguration": "backend \"local\" {}" });
    env.stack(
        "net",
        json!({ "backendConfig": custom, "backendConfigsFrom": from }),
    )
    .await;
    let missing = env.wait_ready("net", "False TFExecInitFailed").await;
    assert!(condition(&missing, "Ready").contains("cannot read ConfigMap common of backendConfigsFrom"));
    assert!(env.runs("net").await.is_empty());
    let (state, wrong) = (env.path("net.tfstate"), env.path("wrong"));
    env.config_map("common", json!({ "path": wrong })).await;
    env.secret(
        "place",
        &[("path", state.to_str().unwrap()), ("workspace_dir", "/nowhere")],
    )
    .await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!((resources(&state), wrong.exists()), (1, false));
    assert!(secrets(&env, "tfstate-").await.is_empty());
    env.request("net", "drift-detection").await;
    env.wait_ready("net", "True NoDrift").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_with_a_disabled_backend_is_planned_approved_and_destroyed() {
    let env = TestEnvironment::new().await;
    let state = env.path("own.tfstate");
    let own = format!(
        "terraform {{\n  backend \"local\" {{ path = \"{}\" }}\n}}\n",
        state.display()
    );
    env.commit("a", &[("main.tf", &(own + SIMPLE))]).await;
    let spec = json!({ "approvePlan": "", "backendConfig": { "disable": true }, "destroyResourcesOnDeletion": true });
    env.stack("net", spec).await;
    let id = pending(&env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await);
    env.edit("net", json!({ "approvePlan": id })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(resources(&state), 1);
    env.edit("net", json!({ "approvePlan": "auto", "destroy": true }))
        .await;
    env.wait_ready("net", "True TerraformAppliedSucceed Destroy applied successfully")
        .await;
    assert_eq!(resources(&state), 0);
    env.edit("net", json!({ "destroy": false })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed Applied")
        .await;
    assert_eq!(resources(&state), 1);
    env.delete("net").await;
    env.wait_gone("net").await;
    assert_eq!(resources(&state), 0);
    assert!(secrets(&env, "tfstate-").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_variables_come_from_literals_secrets_and_config_maps() {
    let env = TestEnvironment::new().await;
    let command = "printenv A B C D E F NS TF_TOKEN_x TF_IN_AUTOMATION | tr '\\n' ' '";
    env.commit("a", &[("main.tf", &recording_module(&env, command))])
        .await;
    env.secret("login", &[("b", "secret"), ("D", "from"), ("E", "old")])
        .await;
    env.config_map("settings", json!({ "c": "map", "E": "older", "F": "f" }))
        .await;
    let variables = json!([{ "name": "A", "value": "literal" },
        { "name": "B", "valueFrom": { "secretKeyRef": { "name": "login", "key": "b" } } },
        { "name": "C", "valueFrom": { "configMapKeyRef": { "name": "settings", "key": "c" } } },
        { "name": "E", "value": "new" }, { "name": "TF_TOKEN_x", "value": "t" },
        { "name": "NS", "valueFrom": { "fieldRef": { "fieldPath": "metadata.namespace" } } }]);
    let env_from = json!([{ "configMapRef": { "name": "settings" } }, { "secretRef": { "name": "login" } },
        { "secretRef": { "name": "absent", "optional": true } }]);
    env.stack(
        "net",
        json!({ "runnerPodTemplate": { "spec": { "env": variables, "envFrom": env_from } } }),
    )
    .await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(record(&env), "literal secret map from new f team t 1 ");

    let with = |variables: Value| json!({ "runnerPodTemplate": { "spec": { "env": variables } } });
    for (variables, reason) in [
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
            "runnerPodTemplate.spec.env: IP takes its value from status.podIP, which is available only in a pod",
        ),
        (
            json!([{ "name": "X", "valueFrom": { "secretKeyRef": { "name": "absent", "key": "x" } } }]),
            "cannot read Secret absent of runnerPodTemplate.spec.env",
        ),
    ] {
        env.edit("net", with(variables)).await;
        env.wait_ready("net", &format!("False TFExecInitFailed {reason}"))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn file_mappings_and_cli_configuration_are_written() {
    let env = TestEnvironment::new().await;
    let command = "cat $HOME/.netrc; stat -c %a $HOME/.netrc; cat keys/id; basename $TF_CLI_CONFIG_FILE; \
        cat $TF_CLI_CONFIG_FILE; stat -c %a $TF_CLI_CONFIG_FILE; true";
    env.commit("a", &[("main.tf", &recording_module(&env, command))])
        .await;
    let extra = "output \"extra\" { value = \"mapped\" }";
    env.secret(
        "files",
        &[("netrc", "machine\n"), ("id", "key\n"), ("extra", extra)],
    )
    .await;
    env.secret("cli", &[("own.tfrc", "disable_checkpoint = true\n")])
        .await;
    let mapping = |location, path, key| json!({ "location": location, "path": path, "secretRef": { "name": "files", "key": key } });
    let files = json!([
        mapping("home", ".netrc", "netrc"),
        mapping("workspace", "keys/id", "id"),
        mapping("workspace", "extra.tf", "extra"),
        mapping("workspace", "empty", "no-such-key")
    ]);
    env
        .stack(
            "net",
            json!({ "fileMappings": files, "cliConfigSecretRef": { "name": "cli" }, "writeOutputsToSecret": { "name": "out" } }),
        )
        .await;
    env.wait_ready("net", "True TerraformOutputsWritten").await;
    assert_eq!(
        record(&env),
        "machine\n600\nkey\nown.tfrc\ndisable_checkpoint = true\n600\n"
    );
    assert_eq!(env.value("out", "extra").await.as_deref(), Some("mapped"));
    env.wait_until_idle().await;
    let remaining = std::fs::read_dir(env.path("runs").join("work")).unwrap();
    let homes = remaining.filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .ends_with(".home")
    });
    assert_eq!(homes.count(), 0, "no file remains");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_configuration_or_mapping_is_reported() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.secret("files", &[("id", "key")]).await;
    env.secret("cli", &[("own.tfrc", "")]).await;
    env.stack("net", json!({ "cliConfigSecretRef": { "name": "cli" } }))
        .await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.secret("two", &[("a.tfrc", ""), ("b.tfrc", "")]).await;
    env.secret("other", &[("config", "")]).await;
    for (reference, reason) in [
        (
            json!({ "name": "two" }),
            "TFExecNewFailed cannot process cli config: Secret team/two must have exactly one key",
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
        env.edit("net", json!({ "cliConfigSecretRef": reference })).await;
        env.wait_ready("net", &format!("False {reason}")).await;
    }
    let file = json!({ "location": "workspace", "path": "main.tf/x", "secretRef": { "name": "files", "key": "id" } });
    env.edit(
        "net",
        json!({ "cliConfigSecretRef": null, "fileMappings": [file] }),
    )
    .await;
    env.wait_ready(
        "net",
        "False TFExecInitFailed cannot write the mapped file \"main.tf/x\": a link or a file is in the way",
    )
    .await;
}
