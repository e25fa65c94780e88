//! The commands of the quick start, on a node of its own in place of kind. Only the host of the samples' repository is replaced.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sluice_harness::cli;
use sluice_harness::git::{GitServer, Repository};
use sluice_harness::node::Node;
use sluice_harness::skip::without_cluster;
use sluice_tests::page::{SAMPLE_ADDRESS, SAMPLE_MODULE, command_blocks};

use crate::helm::{run, run_within};
use crate::images;
use crate::install::config;

const PAGE: &str = include_str!("../../../docs/get-started/quick-start.md");
/// `end_to_end::docs` runs the command of this section: it names images that no node has.
const OTHER_CLUSTER: &str = "\n## On any cluster\n";
/// Above the timeouts of the waits in a block.
const BLOCK_TIMEOUT: Duration = Duration::from_mins(15);
/// The page promises no more.
const COMMANDS: usize = 8;

/// Copies `config` as in a checkout, with another address in the samples.
fn check_out(folder: &Path, url: &str) {
    let copied = Command::new("cp")
        .args(["-r", &config("."), "config"])
        .current_dir(folder)
        .status();
    assert!(copied.unwrap().success());
    let sample = folder.join("config/samples/gitrepository.yaml");
    let text = std::fs::read_to_string(&sample).unwrap();
    assert!(text.contains(SAMPLE_ADDRESS), "{text}");
    std::fs::write(sample, text.replace(SAMPLE_ADDRESS, url)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_quick_start_install_apply_and_delete() {
    if without_cluster().unwrap() {
        return;
    }
    let repository = Repository::create().unwrap();
    repository
        .commit_files(&[("main.tf", SAMPLE_MODULE)], "Hello")
        .unwrap();
    let server = GitServer::start().await.unwrap();
    let url = server.serve("helloworld", &repository);
    let (address, path) = url.trim_start_matches("http://").split_once('/').unwrap();
    let node = Node::start().await.unwrap();
    let exposed = node.expose(address.parse().unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    images::import(&node).await;
    std::fs::write(folder.join("admin"), node.admin().kubeconfig()).unwrap();
    check_out(folder, &format!("http://{exposed}/{path}"));

    let (page, _) = PAGE.split_once(OTHER_CLUSTER).unwrap();
    let blocks = command_blocks(page);
    let lines: Vec<_> = blocks.iter().flat_map(|block| block.lines()).collect();
    assert!(lines.len() <= COMMANDS, "{lines:#?}");
    let [install, apply, delete] = &blocks[..] else {
        panic!("{blocks:?}")
    };
    let shell = |block: &str| {
        // What the commands say to the user is on standard error.
        let script = format!("set -euo pipefail; exec 2>&1\n{block}");
        async move { run_within(BLOCK_TIMEOUT, Path::new("bash"), folder, &["-c", &script]).await }
    };
    shell(install).await;
    let output = shell(apply).await;
    assert!(output.contains("+ hello_world"), "the plan: {output}");
    assert!(
        output.trim_end().ends_with("Hello, Sluice and friends!"),
        "{output}"
    );
    let output = shell(delete).await;
    assert!(output.contains("terraform default/app is deleted."), "{output}");
    let kubectl = cli::kubectl().unwrap();
    let left = ["-n", "sluice-system", "get", "deployments,pods", "-o", "name"];
    let left = run(&kubectl, folder, &left).await;
    assert!(!left.contains("deployment"), "{left}");
}
