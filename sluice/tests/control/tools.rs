//! `spec.tool`: each stack is run by the CLI and version that it selects.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_harness::cli;
use sluice_tf_core::cli::installed::VersionConstraint;

use crate::environment::TestEnvironment;
use crate::observe::{condition, pending};

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

/// Creates a test environment with an empty directory of installed CLIs.
async fn env() -> (TestEnvironment, PathBuf) {
    let mut env = TestEnvironment::without_controller().await;
    let tools = env.path("tools");
    std::fs::create_dir(&tools).unwrap();
    env.tools = Some(tools.clone());
    env.start(4).await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    (env, tools)
}

/// Installs a CLI under its own version, which is returned.
fn install(tools: &Path, name: &str, program: &Path) -> String {
    let version = cli::version(program).unwrap();
    let folder = tools.join(name).join(&version);
    std::fs::create_dir_all(&folder).unwrap();
    symlink(program, folder.join(name)).unwrap();
    version
}

/// Installs a wrapper of tofu that reports another version. It appears atomically.
fn install_other(tools: &Path, folder: &str, version: &str) {
    let program = cli::tofu().unwrap();
    let unfinished = tools.join("unfinished");
    std::fs::create_dir_all(&unfinished).unwrap();
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = version ]; then echo '{{\"terraform_version\":\"{version}\"}}'; exit; fi\n\
         echo \"$1\" >>{}\nexec {} \"$@\"\n",
        commands(tools, folder).display(),
        program.display()
    );
    std::fs::write(unfinished.join("tofu"), text).unwrap();
    std::fs::set_permissions(unfinished.join("tofu"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir_all(tools.join("tofu")).unwrap();
    std::fs::rename(unfinished, tools.join("tofu").join(folder)).unwrap();
}

/// Returns the commands of a CLI of [`install_other`] except `version`.
fn commands(tools: &Path, folder: &str) -> std::path::PathBuf {
    tools.join(format!("{folder}.ran"))
}

/// Prints a line that is visible even if the test passes.
fn print_line(line: &str) {
    let is_reported = std::io::stderr().write_all(format!("{line}\n").as_bytes());
    is_reported.unwrap();
}

/// Returns `<name> <version>` of each run of a stack.
async fn tools_of_runs(env: &TestEnvironment, name: &str) -> Vec<String> {
    let runs = env.runs(name).await;
    let tools = runs.iter().map(|run| run.status.clone().unwrap_or_default().tool);
    tools
        .map(|tool| tool.map_or_else(String::new, |tool| format!("{} {}", tool.name, tool.version)))
        .collect()
}

/// Returns the version that wrote the state.
async fn state_version(env: &TestEnvironment, name: &str) -> String {
    let state: Value = serde_json::from_str(&env.state(name).await).unwrap();
    state["terraform_version"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_stack_is_run_by_the_cli_that_it_selects() {
    let (env, tools) = env().await;
    let mut programs = vec![("tofu", cli::tofu().unwrap())];
    if let Some(terraform) = cli::on_path("terraform") {
        programs.push(("terraform", terraform));
    } else {
        print_line(
            "each_stack_is_run_by_the_cli_that_it_selects: no terraform on PATH, so the stack that selects it waits",
        );
        env.stack("terraform", json!({ "tool": { "name": "terraform" } }))
            .await;
        env.wait_ready(
            "terraform",
            "False ToolNotInstalled spec.tool: terraform is not installed: ",
        )
        .await;
        assert!(env.runs("terraform").await.is_empty());
    }
    for (name, program) in &programs {
        install(&tools, name, program);
        env.stack(name, json!({ "approvePlan": "", "tool": { "name": name } }))
            .await;
    }
    for (name, program) in &programs {
        let version = cli::version(program).unwrap();
        let id = pending(&env.wait_ready(name, "Unknown TerraformPlannedWithChanges").await);
        env.edit(name, json!({ "approvePlan": id })).await;
        env.wait_ready(name, "True TerraformAppliedSucceed").await;
        assert_eq!(
            tools_of_runs(&env, name).await,
            vec![format!("{name} {version}"); 2]
        );
        assert_eq!(state_version(&env, name).await, version);
    }
    // The other CLI only if the spec selects it.
    if let Some((_, terraform)) = programs.get(1) {
        let version = cli::version(terraform).unwrap();
        env.stack("both", json!({ "tool": { "name": "terraform" } }))
            .await;
        env.wait_ready("both", "True TerraformAppliedSucceed").await;
        env.edit("both", json!({ "tool": { "name": "tofu" } })).await;
        env.wait_ready("both", "True TerraformPlannedNoChanges").await;
        let tofu = cli::version(&programs[0].1).unwrap();
        assert_eq!(
            tools_of_runs(&env, "both").await,
            [format!("terraform {version}"), format!("tofu {tofu}")]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_not_installed_is_awaited() {
    let (env, tools) = env().await;
    let real = install(&tools, "tofu", &cli::tofu().unwrap());
    env.stack(
        "net",
        json!({ "approvePlan": "", "tool": { "name": "tofu", "version": "~> 9.8.0" } }),
    )
    .await;
    let waiting = env
        .wait_ready(
            "net",
            "False ToolNotInstalled spec.tool: tofu ~> 9.8.0 is not installed: ",
        )
        .await;
    let text = condition(&waiting, "Ready");
    assert!(text.contains(&format!("/tools/tofu has {real};")), "{text}");
    assert!(condition(&waiting, "Reconciling").starts_with("True ProgressingWithRetry"));
    assert_eq!(condition(&waiting, "Stalled"), "");
    assert!(env.runs("net").await.is_empty());

    install_other(&tools, "9.8.1", "9.8.1");
    let id = pending(&env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await);
    env.edit("net", json!({ "approvePlan": id })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(tools_of_runs(&env, "net").await, ["tofu 9.8.1", "tofu 9.8.1"]);

    // A newer matching version changes the inputs of the next drift detection.
    install_other(&tools, "9.8.2", "9.8.2");
    install_other(&tools, "9.9.0", "9.9.0");
    env.request("net", "drift-detection").await;
    let newer = env
        .wait_run("net", "a run of the newer version", |run| {
            let status = run.status.as_ref();
            let tool = status.and_then(|status| status.tool.as_ref());
            tool.is_some_and(|tool| tool.version == "9.8.2")
                && status.is_some_and(|status| status.phase.is_final())
        })
        .await;
    assert_eq!(newer.spec.trigger.as_str(), "Revision", "its inputs are others");
    assert_eq!(
        tools_of_runs(&env, "net").await[..3],
        ["tofu 9.8.1", "tofu 9.8.1", "tofu 9.8.2"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_a_replaced_version_is_not_applied_by_the_other() {
    let (env, tools) = env().await;
    install_other(&tools, "9.8.1", "9.8.1");
    env.stack("net", json!({ "approvePlan": "", "tool": { "name": "tofu" } }))
        .await;
    let first = pending(&env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await);
    install_other(&tools, "9.8.2", "9.8.2");
    env.edit("net", json!({ "approvePlan": first })).await;
    let second = env
        .wait_for("net", "another plan", |stack| {
            let id = pending(stack);
            !id.is_empty() && id != first
        })
        .await;
    assert!(condition(&second, "Ready").starts_with("Unknown TerraformPlannedWithChanges"));
    env.edit("net", json!({ "approvePlan": pending(&second) })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(
        tools_of_runs(&env, "net").await,
        ["tofu 9.8.1", "tofu 9.8.2", "tofu 9.8.2"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cli_whose_version_differs_from_its_folder_is_not_run() {
    let (env, tools) = env().await;
    install_other(&tools, "9.9.9", "9.8.1");
    env.stack("net", json!({ "tool": { "name": "tofu", "version": "9.9.9" } }))
        .await;
    let refused = env.wait_ready("net", "False TFExecNewFailed").await;
    let text = condition(&refused, "Ready");
    assert!(
        text.contains("tofu/9.9.9/tofu is tofu 9.8.1: its directory must be named after"),
        "{text}"
    );
    assert!(!commands(&tools, "9.9.9").exists());
    std::fs::remove_dir_all(tools.join("tofu/9.9.9")).unwrap();
    install_other(&tools, "9.9.9", "9.9.9");
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert!(commands(&tools, "9.9.9").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_version_stalls_the_object_until_it_is_edited() {
    let (env, tools) = env().await;
    let version = install(&tools, "tofu", &cli::tofu().unwrap());
    env.stack(
        "net",
        json!({ "tool": { "name": "tofu", "version": "../latest" } }),
    )
    .await;
    let stalled = env
        .wait_ready(
            "net",
            "False InvalidToolVersion spec.tool.version: \"../latest\" is not a version",
        )
        .await;
    assert!(condition(&stalled, "Stalled").starts_with("True InvalidToolVersion"));
    env.edit("net", json!({ "tool": { "version": version } })).await;
    let repaired = env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(condition(&repaired, "Stalled"), "");
    // Nothing was ever applied for this one, so its deletion is not blocked.
    env.stack(
        "other",
        json!({ "tool": { "name": "tofu", "version": "../x" }, "destroyResourcesOnDeletion": true }),
    )
    .await;
    env.wait_ready("other", "False InvalidToolVersion").await;
    env.delete("other").await;
    env.wait_gone("other").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_is_destroyed_by_an_installed_version_when_its_own_is_uninstalled() {
    let (env, tools) = env().await;
    install_other(&tools, "9.8.1", "9.8.1");
    let spec = json!({ "tool": { "name": "tofu", "version": "9.8.1" }, "destroyResourcesOnDeletion": true });
    env.stack("net", spec).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    std::fs::remove_dir_all(tools.join("tofu/9.8.1")).unwrap();
    env.delete("net").await;
    let is_reported = |stack: &sluice_api::terraform::Terraform| {
        condition(stack, "Ready").contains("tofu 9.8.1 is not installed")
    };
    env.wait_for("net", "the missing version is reported", is_reported)
        .await;
    install_other(&tools, "9.8.2", "9.8.2");
    env.edit("net", json!({ "tool": { "version": "~> 9.8.0" } }))
        .await;
    env.wait_gone("net").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_tools_directory_the_cli_on_path_is_selected_by_name() {
    let mut env = TestEnvironment::without_controller().await;
    let path = env.path("bin");
    std::fs::create_dir(&path).unwrap();
    // Without a selection the first CLI is used; its file name is its name.
    let (tofu, version) = (cli::tofu().unwrap(), cli::version(&cli::tofu().unwrap()).unwrap());
    let first = cli::on_path("terraform").unwrap_or_else(|| {
        print_line(
            "without_a_directory_of_programs_…: no terraform on PATH, so its name is given to a second tofu",
        );
        tofu.clone()
    });
    symlink(&tofu, path.join("tofu")).unwrap();
    symlink(&first, path.join("terraform")).unwrap();
    let rest = cli::search_path().unwrap();
    env.environment = BTreeMap::from([("PATH".to_owned(), format!("{}:{rest}", path.display()))]);
    env.start(4).await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("plain", json!({})).await;
    env.stack("net", json!({ "tool": { "name": "tofu" } })).await;
    env.stack(
        "pinned",
        json!({ "tool": { "name": "tofu", "version": version } }),
    )
    .await;
    env.wait_ready("plain", "True TerraformAppliedSucceed").await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let is_reported = env
        .wait_ready("pinned", "False ToolNotInstalled spec.tool requests tofu")
        .await;
    assert!(condition(&is_reported, "Ready").contains("--tools-dir"));
    let first = cli::version(&first).unwrap();
    assert_eq!(tools_of_runs(&env, "plain").await, [format!("terraform {first}")]);
    assert_eq!(tools_of_runs(&env, "net").await, [format!("tofu {version}")]);
}

/// The definition refuses the same versions as the controller.
#[test]
fn the_definition_accepts_the_versions_that_the_controller_accepts() {
    let definitions = serde_json::to_value(sluice_api::crds()).unwrap();
    let terraform = definitions
        .as_array()
        .unwrap()
        .iter()
        .find(|crd| crd["spec"]["names"]["kind"] == "Terraform");
    let versions = terraform.unwrap()["spec"]["versions"].as_array().unwrap();
    let stored = versions
        .iter()
        .find(|version| version["name"] == "v1alpha2")
        .unwrap();
    let pattern = stored
        .pointer("/schema/openAPIV3Schema/properties/spec/properties/tool/properties/version/pattern")
        .unwrap();
    let pattern = regex::Regex::new(pattern.as_str().unwrap()).unwrap();
    for text in [
        "",
        "*",
        "1.8.3",
        "v1.8.3",
        " 1.8.3 ",
        "1.8.3-rc.1+b",
        "1.8",
        "1",
        "1.8.x",
        "1.*.*",
        "~> 1.8",
        "~>1.8.3",
        ">= 1.8, < 1.11",
        "> 1.8.3,<= 1.9.0 , != 1.9",
        "= 1.8.3",
        ">= 1.9.0-beta2",
    ] {
        assert!(
            text.parse::<VersionConstraint>().is_ok() && pattern.is_match(text),
            "{text:?}"
        );
    }
    for text in [
        "latest",
        "../bin",
        "1.8.3.4",
        "x",
        ",",
        "1,",
        "~>",
        "1..3",
        "1.8.3 1.8.4",
        "1.8.3\n",
        "-1",
        "==1",
    ] {
        assert!(
            text.parse::<VersionConstraint>().is_err() && !pattern.is_match(text),
            "{text:?}"
        );
    }
}

/// Checks the example of `docs/guides/cli-and-providers.md` and each text of its table.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_the_docs_selects_as_described() {
    let page = include_str!("../../../docs/guides/cli-and-providers.md");
    let section = page.split("## Select program and version\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let example = section
        .split("```yaml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let example: Value = serde_yaml_ng::from_str(example).unwrap();
    let rows = section
        .lines()
        .filter(|line| line.starts_with("| `") && !line.starts_with("| `version`"));
    let texts = rows.flat_map(|row| row.split(" | ").next().unwrap().split('`').skip(1).step_by(2));
    let texts: Vec<&str> = texts.collect();
    assert_eq!(texts.len(), 7, "{texts:?}");
    for text in texts {
        assert!(text.parse::<VersionConstraint>().is_ok(), "{text:?}");
    }
    let (env, tools) = env().await;
    for version in ["1.7.9", "1.8.3", "1.99.0", "2.0.0"] {
        install_other(&tools, version, version);
    }
    env.stack("net", example["spec"].clone()).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(tools_of_runs(&env, "net").await, ["tofu 1.99.0"]);
}
