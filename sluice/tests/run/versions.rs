//! What runs know of the CLI's version.

use sluice_api::run::TerraformRun;

use crate::world::{Wish, World, comes_true, ending, status};

/// The steps whose commands were started, by the logs of their errors.
fn started(run: &TerraformRun) -> Vec<String> {
    let logs = std::fs::read_dir(status(run).log_path).unwrap();
    let names = logs.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut steps: Vec<_> = names
        .filter_map(|name| Some(name.strip_suffix(".err")?.get(3..)?.to_owned()))
        .collect();
    steps.sort();
    steps
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cli_says_its_version_once() {
    let world = World::new("auto").await;
    world.commit(&[("main.tf", "resource \"terraform_data\" \"it\" {}\n")]);
    let first = world.run(Wish::plan()).await;
    assert_eq!(ending(&first), "Succeeded TerraformPlannedWithChanges");
    assert_eq!(started(&first), ["init", "plan", "show", "version"]);
    let known = world.work().with_file_name(".versions");
    let noted = |name: &std::ffi::OsStr| !name.to_string_lossy().starts_with('.');
    comes_true(|| {
        let mut files = std::fs::read_dir(&known).into_iter().flatten();
        files.any(|file| noted(&file.unwrap().file_name()))
    })
    .await;
    let second = world.run(Wish::plan()).await;
    assert_eq!(started(&second), ["init", "plan", "show"]);
    assert_eq!(status(&second).tool, status(&first).tool);
    assert!(!status(&first).tool.unwrap().version.is_empty());
}
