//! The cache of CLI versions.

use sluice_api::run::TerraformRun;

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
