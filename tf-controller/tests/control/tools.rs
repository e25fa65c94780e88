//! `spec.tool`: each stack is run by the program and the version that it selects.

use crate::looks::{condition, pending};
use crate::world::World;
use serde_json::{Value, json};
use sluice_harness::cli;
use sluice_tf_runner::cli::installed::Wanted;
use std::{
    collections::BTreeMap,
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

/// A world with a directory of installed programs, in which there is nothing yet.
async fn world() -> (World, PathBuf) {
    let mut world = World::without_controller().await;
    let tools = world.path("tools");
    std::fs::create_dir(&tools).unwrap();
    world.tools = Some(tools.clone());
    world.start(4).await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    (world, tools)
}

/// Installs a program as the version that it is, which is returned.
fn install(tools: &Path, name: &str, program: &Path) -> String {
    let version = cli::version(program).unwrap();
    let folder = tools.join(name).join(&version);
    std::fs::create_dir_all(&folder).unwrap();
    symlink(program, folder.join(name)).unwrap();
    version
}

/// Installs what says that it is another version of tofu, and is the real one otherwise. It is there all at once.
fn install_other(tools: &Path, folder: &str, says: &str) {
    let program = cli::tofu().unwrap();
    let made = tools.join("unfinished");
    std::fs::create_dir_all(&made).unwrap();
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = version ]; then echo '{{\"terraform_version\":\"{says}\"}}'; exit; fi\n\
         echo \"$1\" >>{}\nexec {} \"$@\"\n",
        ran(tools, folder).display(),
        program.display()
    );
    std::fs::write(made.join("tofu"), text).unwrap();
    std::fs::set_permissions(made.join("tofu"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir_all(tools.join("tofu")).unwrap();
    std::fs::rename(made, tools.join("tofu").join(folder)).unwrap();
}

/// The commands that a program of [`install_other`] was given, but for its version.
fn ran(tools: &Path, folder: &str) -> std::path::PathBuf {
    tools.join(format!("{folder}.ran"))
}

/// A line of the test's output that is seen although the test passes.
fn say(line: &str) {
    let told = std::io::stderr().write_all(format!("{line}\n").as_bytes());
    told.unwrap();
}

/// `<name> <version>` of each run of a stack.
async fn used(world: &World, name: &str) -> Vec<String> {
    let runs = world.runs(name).await;
    let tools = runs.iter().map(|run| run.status.clone().unwrap_or_default().tool);
    tools
        .map(|tool| tool.map_or_else(String::new, |tool| format!("{} {}", tool.name, tool.version)))
        .collect()
}

/// The version that wrote the state.
async fn wrote(world: &World, name: &str) -> String {
    let state: Value = serde_json::from_str(&world.state(name).await).unwrap();
    state["terraform_version"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_stack_is_run_by_the_program_that_it_selects() {
    let (world, tools) = world().await;
    let mut programs = vec![("tofu", cli::tofu().unwrap())];
    if let Some(terraform) = cli::on_path("terraform") {
        programs.push(("terraform", terraform));
    } else {
        say(
            "each_stack_is_run_by_the_program_that_it_selects: no terraform on PATH, so the stack that selects it waits",
        );
        world
            .stack("terraform", json!({ "tool": { "name": "terraform" } }))
            .await;
        world
            .ready(
                "terraform",
                "False ToolNotInstalled spec.tool: terraform is not installed: ",
            )
            .await;
        assert!(world.runs("terraform").await.is_empty());
    }
    for (name, program) in &programs {
        install(&tools, name, program);
        world
            .stack(name, json!({ "approvePlan": "", "tool": { "name": name } }))
            .await;
    }
    for (name, program) in &programs {
        let version = cli::version(program).unwrap();
        let id = pending(&world.ready(name, "Unknown TerraformPlannedWithChanges").await);
        world.edit(name, json!({ "approvePlan": id })).await;
        world.ready(name, "True TerraformAppliedSucceed").await;
        assert_eq!(used(&world, name).await, vec![format!("{name} {version}"); 2]);
        assert_eq!(wrote(&world, name).await, version);
    }
    // The other program, where the spec says so and only then.
    if let Some((_, terraform)) = programs.get(1) {
        let version = cli::version(terraform).unwrap();
        world
            .stack("both", json!({ "tool": { "name": "terraform" } }))
            .await;
        world.ready("both", "True TerraformAppliedSucceed").await;
        world.edit("both", json!({ "tool": { "name": "tofu" } })).await;
        world.ready("both", "True TerraformPlannedNoChanges").await;
        let tofu = cli::version(&programs[0].1).unwrap();
        assert_eq!(
            used(&world, "both").await,
            [format!("terraform {version}"), format!("tofu {tofu}")]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_not_installed_is_waited_for() {
    let (world, tools) = world().await;
    let real = install(&tools, "tofu", &cli::tofu().unwrap());
    world
        .stack(
            "net",
            json!({ "approvePlan": "", "tool": { "name": "tofu", "version": "~> 9.8.0" } }),
        )
        .await;
    let waiting = world
        .ready(
            "net",
            "False ToolNotInstalled spec.tool: tofu ~> 9.8.0 is not installed: ",
        )
        .await;
    let text = condition(&waiting, "Ready");
    assert!(text.contains(&format!("/tools/tofu has {real};")), "{text}");
    assert!(condition(&waiting, "Reconciling").starts_with("True ProgressingWithRetry"));
    assert_eq!(condition(&waiting, "Stalled"), "");
    assert!(world.runs("net").await.is_empty());

    install_other(&tools, "9.8.1", "9.8.1");
    let id = pending(&world.ready("net", "Unknown TerraformPlannedWithChanges").await);
    world.edit("net", json!({ "approvePlan": id })).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(used(&world, "net").await, ["tofu 9.8.1", "tofu 9.8.1"]);

    // A newer one that fits counts as a change of the inputs at the next look.
    install_other(&tools, "9.8.2", "9.8.2");
    install_other(&tools, "9.9.0", "9.9.0");
    world.request("net", "look").await;
    let newer = world
        .run("net", "a run of the newer version", |run| {
            let status = run.status.as_ref();
            let tool = status.and_then(|status| status.tool.as_ref());
            tool.is_some_and(|tool| tool.version == "9.8.2")
                && status.is_some_and(|status| status.phase.is_final())
        })
        .await;
    assert_eq!(newer.spec.trigger.as_str(), "Revision", "its inputs are others");
    assert_eq!(
        used(&world, "net").await[..3],
        ["tofu 9.8.1", "tofu 9.8.1", "tofu 9.8.2"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_a_version_that_is_replaced_is_not_applied_by_the_other() {
    let (world, tools) = world().await;
    install_other(&tools, "9.8.1", "9.8.1");
    world
        .stack("net", json!({ "approvePlan": "", "tool": { "name": "tofu" } }))
        .await;
    let first = pending(&world.ready("net", "Unknown TerraformPlannedWithChanges").await);
    install_other(&tools, "9.8.2", "9.8.2");
    world.edit("net", json!({ "approvePlan": first })).await;
    let second = world
        .until("net", "another plan", |stack| {
            let id = pending(stack);
            !id.is_empty() && id != first
        })
        .await;
    assert!(condition(&second, "Ready").starts_with("Unknown TerraformPlannedWithChanges"));
    world
        .edit("net", json!({ "approvePlan": pending(&second) }))
        .await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(
        used(&world, "net").await,
        ["tofu 9.8.1", "tofu 9.8.2", "tofu 9.8.2"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_what_its_folder_says_is_not_run() {
    let (world, tools) = world().await;
    install_other(&tools, "9.9.9", "9.8.1");
    world
        .stack("net", json!({ "tool": { "name": "tofu", "version": "9.9.9" } }))
        .await;
    let refused = world.ready("net", "False TFExecNewFailed").await;
    let text = condition(&refused, "Ready");
    assert!(
        text.contains("tofu/9.9.9/tofu says that it is tofu 9.8.1: a folder is named after"),
        "{text}"
    );
    assert!(!ran(&tools, "9.9.9").exists());
    std::fs::remove_dir_all(tools.join("tofu/9.9.9")).unwrap();
    install_other(&tools, "9.9.9", "9.9.9");
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert!(ran(&tools, "9.9.9").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_none_stalls_the_object_until_it_is_edited() {
    let (world, tools) = world().await;
    let version = install(&tools, "tofu", &cli::tofu().unwrap());
    world
        .stack(
            "net",
            json!({ "tool": { "name": "tofu", "version": "../latest" } }),
        )
        .await;
    let stalled = world
        .ready(
            "net",
            "False InvalidToolVersion spec.tool.version: \"../latest\" is no version",
        )
        .await;
    assert!(condition(&stalled, "Stalled").starts_with("True InvalidToolVersion"));
    world.edit("net", json!({ "tool": { "version": version } })).await;
    let mended = world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(condition(&mended, "Stalled"), "");
    // Nothing was ever made of this one: nothing keeps it.
    world
        .stack(
            "other",
            json!({ "tool": { "name": "tofu", "version": "../x" }, "destroyResourcesOnDeletion": true }),
        )
        .await;
    world.ready("other", "False InvalidToolVersion").await;
    world.delete("other").await;
    world.gone("other").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_is_destroyed_by_the_version_that_is_there_when_its_own_is_gone() {
    let (world, tools) = world().await;
    install_other(&tools, "9.8.1", "9.8.1");
    let spec = json!({ "tool": { "name": "tofu", "version": "9.8.1" }, "destroyResourcesOnDeletion": true });
    world.stack("net", spec).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    std::fs::remove_dir_all(tools.join("tofu/9.8.1")).unwrap();
    world.delete("net").await;
    let told = |stack: &sluice_api::terraform::Terraform| {
        condition(stack, "Ready").contains("tofu 9.8.1 is not installed")
    };
    world.until("net", "told what it lacks", told).await;
    install_other(&tools, "9.8.2", "9.8.2");
    world
        .edit("net", json!({ "tool": { "version": "~> 9.8.0" } }))
        .await;
    world.gone("net").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_directory_of_programs_the_one_on_path_is_selected_by_name() {
    let mut world = World::without_controller().await;
    let path = world.path("bin");
    std::fs::create_dir(&path).unwrap();
    // Whoever does not choose gets the first; its name is what the file is called.
    let (tofu, version) = (cli::tofu().unwrap(), cli::version(&cli::tofu().unwrap()).unwrap());
    let first = cli::on_path("terraform").unwrap_or_else(|| {
        say("without_a_directory_of_programs_…: no terraform on PATH, so its name is given to a second tofu");
        tofu.clone()
    });
    symlink(&tofu, path.join("tofu")).unwrap();
    symlink(&first, path.join("terraform")).unwrap();
    let rest = cli::search_path().unwrap();
    world.environment = BTreeMap::from([("PATH".to_owned(), format!("{}:{rest}", path.display()))]);
    world.start(4).await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("plain", json!({})).await;
    world.stack("net", json!({ "tool": { "name": "tofu" } })).await;
    world
        .stack(
            "pinned",
            json!({ "tool": { "name": "tofu", "version": version } }),
        )
        .await;
    world.ready("plain", "True TerraformAppliedSucceed").await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    let told = world
        .ready("pinned", "False ToolNotInstalled spec.tool asks for tofu")
        .await;
    assert!(condition(&told, "Ready").contains("--tools-dir"));
    let first = cli::version(&first).unwrap();
    assert_eq!(used(&world, "plain").await, [format!("terraform {first}")]);
    assert_eq!(used(&world, "net").await, [format!("tofu {version}")]);
}

/// The definition refuses early what the controller would refuse, and nothing else.
#[test]
fn the_definition_takes_each_version_that_the_controller_takes() {
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
            text.parse::<Wanted>().is_ok() && pattern.is_match(text),
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
            text.parse::<Wanted>().is_err() && !pattern.is_match(text),
            "{text:?}"
        );
    }
}

/// The example of `docs/terraform.md`, and each text of its table.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_the_docs_chooses_what_they_say() {
    let page = include_str!("../../../docs/terraform.md");
    let section = page.split("## The program of a stack\n").nth(1).unwrap();
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
        assert!(text.parse::<Wanted>().is_ok(), "{text:?}");
    }
    let (world, tools) = world().await;
    for version in ["1.7.9", "1.8.3", "1.99.0", "2.0.0"] {
        install_other(&tools, version, version);
    }
    world.stack("net", example["spec"].clone()).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(used(&world, "net").await, ["tofu 1.99.0"]);
}
