//! The commands of `docs/guides/state-copies.md`, typed by a user.

use std::path::Path;
use std::process::{Command, Output};

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};
use sluice_harness::cli;
use sluice_tf_core::state_copy;

use super::{MODULE, apply, bundle, copies, serial, size, three};
use crate::environment::{NAMESPACE, RunSetup, TestEnvironment, assert_ending, ending, status};

const PAGE: &str = include_str!("../../../../docs/guides/state-copies.md");

/// Runs commands of a user with access to the API, in a directory.
fn shell(env: &TestEnvironment, directory: &Path, script: &str) -> Output {
    let kubectl = cli::kubectl().unwrap();
    let config = env.dir.path().join("user.kubeconfig");
    std::fs::copy(&env.kubeconfig, &config).unwrap();
    let script =
        format!("kubectl config set-context --current --namespace={NAMESPACE} > /dev/null\n{script}");
    Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .current_dir(directory)
        .env("KUBECONFIG", config)
        .env("KUBECACHEDIR", env.dir.path().join("cache"))
        .env("HOME", directory)
        .env(
            "PATH",
            format!(
                "{}:{}",
                kubectl.parent().unwrap().display(),
                cli::search_path().unwrap()
            ),
        )
        .output()
        .unwrap()
}

/// Returns the command blocks of the page in order.
fn documented() -> Vec<String> {
    let blocks = PAGE.split("```console\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap());
    let terraform = cli::terraform().unwrap();
    let program = terraform.file_name().unwrap().to_str().unwrap().to_owned();
    blocks
        .filter(|block| !block.starts_with("$ "))
        .map(|block| {
            block
                .replace("tofu ", &format!("{program} "))
                .replace("state-copy=app", "state-copy=net")
                .replace("terraform app", "terraform net")
                .replace("secret_suffix = \"app\"", "secret_suffix = \"net\"")
                .replace("= \"default\"", &format!("= \"{NAMESPACE}\""))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_restored_by_the_documented_commands() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    for size in ["one", "two", "three"] {
        apply(&env, size, &three()).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let blocks = documented();
    assert_eq!(blocks.len(), 4);
    let script = blocks.join("\n");
    let output = shell(&env, folder.path(), &script);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    for copy in copies(&env).await {
        for part in [serial(&copy), state_copy::id_of(&copy.metadata)] {
            assert!(text.contains(part), "{text}");
        }
    }
    let copy: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("copy.tfstate")).unwrap()).unwrap();
    assert_eq!(size(&copy), "two", "the newest");
    let plan = env.run(RunSetup::plan().with(bundle("three", &three()))).await;
    assert_eq!(
        status(&plan).changes,
        "+0 ~1 -0",
        "the state is that of the copy: {:?}",
        plan.status
    );
    let back = env.run(RunSetup::plan().with(bundle("two", &three()))).await;
    assert_eq!(ending(&back), "Succeeded TerraformPlannedNoChanges");
    // The command of the page that deletes copies.
    let delete = PAGE
        .split('`')
        .find(|part| part.starts_with("kubectl delete secrets"));
    let output = shell(&env, folder.path(), delete.unwrap());
    assert!(output.status.success(), "{output:?}");
    assert!(copies(&env).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_in_several_secrets_is_joined_by_the_documented_command() {
    let env = TestEnvironment::new("auto").await;
    // Text that hardly compresses, in a state of more than one Secret.
    let module = format!(
        "{MODULE}locals {{\n  noise = [for a in range(128) : join(\"\", [for b in range(128) : sha512(\"${{a}}-${{b}}\")])]\n}}\n\
         resource \"terraform_data\" \"noise\" {{ input = local.noise }}\n"
    );
    env.commit(&[("main.tf", &module)]);
    let state = env.dir.path().join("large.tfstate");
    let large = |size: &str| {
        let mut bundle = bundle(size, &json!({ "count": 3, "limit": 100_000_000 }));
        // The kubernetes backend stores a state in one Secret.
        bundle["backend"] = format!(
            "terraform {{\n  backend \"local\" {{ path = \"{}\" }}\n}}\n",
            state.display()
        )
        .into();
        RunSetup::plan_and_apply().with(bundle)
    };
    env.run(large("one")).await;
    let before = std::fs::read(&state).unwrap();
    let applied = env.run(large("two")).await;
    assert_ending(&applied, "Succeeded TerraformAppliedSucceed");
    assert!(copies(&env).await.len() > 1, "{:?}", applied.status);
    let folder = tempfile::tempdir().unwrap();
    let output = shell(&env, folder.path(), &documented()[1]);
    assert!(output.status.success(), "{output:?}");
    let copy = std::fs::read(folder.path().join("copy.tfstate")).unwrap();
    let json = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).unwrap() };
    assert_eq!(json(&copy), json(&before));

    // A copy of which a part is missing is not unpacked, and is deleted by the next apply.
    let api: Api<Secret> = Api::namespaced(env.client(), NAMESPACE);
    let name = copies(&env).await[0].name_any();
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    env.run(large("three")).await;
    let all = copies(&env).await;
    let ids: std::collections::BTreeSet<_> = all
        .iter()
        .map(|secret| state_copy::id_of(&secret.metadata))
        .collect();
    assert_eq!(ids.len(), 1, "that of the last apply");
}
