//! The version of the CLI: the cache of versions, and the selection among those of a pod's image.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use sluice_api::run::TerraformRun;
use sluice_harness::cli;
use tokio_util::sync::CancellationToken;

use crate::environment::{RunSetup, TestEnvironment, ending, status, wait_until};

/// Returns the steps whose commands started, by their error logs.
fn started_steps(run: &TerraformRun) -> Vec<String> {
    let logs = std::fs::read_dir(status(run).log_path).unwrap();
    let names = logs.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut steps: Vec<_> = names
        .filter_map(|name| Some(name.strip_suffix(".err")?.get(3..)?.to_owned()))
        .collect();
    steps.sort();
    steps
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_of_the_cli_is_requested_once() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", "resource \"terraform_data\" \"it\" {}\n")]);
    let first = env.run(RunSetup::plan()).await;
    assert_eq!(ending(&first), "Succeeded TerraformPlannedWithChanges");
    assert_eq!(started_steps(&first), ["init", "plan", "show", "version"]);
    let known = env.work().with_file_name(".versions");
    let noted = |name: &std::ffi::OsStr| !name.to_string_lossy().starts_with('.');
    wait_until(|| {
        let mut files = std::fs::read_dir(&known).into_iter().flatten();
        files.any(|file| noted(&file.unwrap().file_name()))
    })
    .await;
    let second = env.run(RunSetup::plan()).await;
    assert_eq!(started_steps(&second), ["init", "plan", "show"]);
    assert_eq!(status(&second).tool, status(&first).tool);
    assert!(!status(&first).tool.unwrap().version.is_empty());
}

const IMAGE: &str = "registry.example.com/tf-runner:1";

/// Installs a wrapper of tofu that reports this version. Another process writes it: a program cannot start while a child of another
/// test has it open for writing.
fn install(tools: &Path, version: &str) {
    let folder = tools.join("tofu").join(version);
    std::fs::create_dir_all(&folder).unwrap();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" != version ] || exec echo '{{\"terraform_version\":\"{version}\"}}'\nexec {} \"$@\"\n",
        cli::tofu().unwrap().display()
    );
    let mut write = Command::new("sh");
    write.args(["-c", r#"printf '%s' "$1" > "$0" && chmod 755 "$0""#]);
    let written = write.arg(folder.join("tofu")).arg(script).status().unwrap();
    assert!(written.success());
}

/// Executes a run as in a pod of [`IMAGE`] with these versions.
async fn run_in_pod(env: &TestEnvironment, tools: &Path, setup: RunSetup) -> TerraformRun {
    let name = env.prepare(setup).await;
    let mut context = env.context(&name);
    context.settings.tools_dir = Some(tools.to_owned());
    let image = ("RUNNER_POD_IMAGE".to_owned(), IMAGE.to_owned());
    context.environment.extend([image]);
    env.execute_run(&name, context, CancellationToken::new()).await;
    env.get(&name).await
}

fn version(run: &TerraformRun) -> String {
    let tool = status(run).tool.unwrap_or_default();
    format!("{} {}", tool.name, tool.version)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_selects_among_the_versions_of_its_image_and_applies_with_that_of_the_plan() {
    let env = TestEnvironment::new("").await;
    env.commit(&[("main.tf", "resource \"terraform_data\" \"it\" {}\n")]);
    let tools = env.dir.path().join("tools");
    install(&tools, "9.8.1");
    let select = |version: &str| json!({ "selectedTool": { "name": "tofu", "version": version } });
    let of = |version: &str| RunSetup::plan().with(select(version));
    let planned = run_in_pod(&env, &tools, of("~> 9.8.0")).await;
    assert_eq!(ending(&planned), "Succeeded TerraformPlannedWithChanges");
    assert_eq!(version(&planned), "tofu 9.8.1");

    // As another image of the same name.
    install(&tools, "9.8.2");
    let apply = RunSetup::apply(&planned).with(select("~> 9.8.0"));
    let applied = run_in_pod(&env, &tools, apply).await;
    assert_eq!(ending(&applied), "Succeeded TerraformAppliedSucceed");
    assert_eq!(version(&applied), "tofu 9.8.1");
    assert_eq!(
        version(&run_in_pod(&env, &tools, of("~> 9.8.0")).await),
        "tofu 9.8.2"
    );
    assert_eq!(
        version(&run_in_pod(&env, &tools, of("9.8.1")).await),
        "tofu 9.8.1"
    );

    // An image without the version of a plan.
    let planned = run_in_pod(
        &env,
        &tools,
        RunSetup {
            destroy: true,
            ..of("9.8.1")
        },
    )
    .await;
    std::fs::remove_dir_all(tools.join("tofu/9.8.1")).unwrap();
    let apply = RunSetup {
        destroy: true,
        ..RunSetup::apply(&planned)
    };
    let refused = run_in_pod(&env, &tools, apply.with(select("9.8.1"))).await;
    assert_eq!(ending(&refused), "Failed TFExecApplyFailed");
    let message = status(&refused).message;
    assert!(
        message.contains("created with tofu 9.8.1, which the image"),
        "{message}"
    );

    let failed = run_in_pod(&env, &tools, of("~> 9.9")).await;
    assert_eq!(ending(&failed), "Failed ToolNotInstalled");
    let message = status(&failed).message;
    for part in [IMAGE, "tofu ~> 9.9 is not installed", "has 9.8.2;"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}
