//! Tests of standard clients: complete and resumed downloads match the status.

use std::path::Path;
use std::process::{Command, Output};

use sluice_api::source::Artifact;
use sluice_harness::git::{GitServer, Repository};
use sluice_harness::gobuild::{self, Tool};
use sluice_source_controller::archive::{Algorithm, Hasher};

use crate::fixture::{Controller, LIMIT, start};

/// Returns an artifact with its controller.
async fn serve_artifact() -> (Controller, Artifact) {
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    // Incompressible, so that a truncated file is large.
    let noise: Vec<u8> = (0..25_000_u64)
        .flat_map(|n| {
            n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29)
                .to_be_bytes()
        })
        .collect();
    repository.write("noise.bin", &noise).unwrap();
    let commit = repository.commit("noise").unwrap();
    let controller = start(&[]).await;
    let url = server.serve("app", &repository);
    controller.create("app", &url, "20s").await;
    let artifact = controller.ready("app", &commit).await;
    (controller, artifact)
}

/// Runs a client on another thread, within the limit.
async fn run(mut command: Command) -> Output {
    let waiting = tokio::task::spawn_blocking(move || command.output());
    let output = tokio::time::timeout(LIMIT, waiting)
        .await
        .expect("an end in time")
        .unwrap();
    let output = output.expect("the client is installed: the suite needs curl and wget");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn check(file: &Path, artifact: &Artifact) {
    let content = std::fs::read(file).unwrap();
    assert_eq!(
        Some(content.len()),
        artifact.size.map(|size| usize::try_from(size).unwrap())
    );
    let digest = Hasher::of(Algorithm::Sha256, content.as_slice()).unwrap();
    assert_eq!(digest.to_string(), artifact.digest);
}

/// Truncates the file to half, like an interrupted download.
fn halve(file: &Path) {
    let length = std::fs::metadata(file).unwrap().len();
    let file = std::fs::File::options().write(true).open(file).unwrap();
    file.set_len(length / 2).unwrap();
}

#[tokio::test]
async fn curl_downloads_and_resumes() {
    let ((controller, artifact), directory) = (serve_artifact().await, tempfile::tempdir().unwrap());
    let file = directory.path().join("artifact.tar.gz");
    let curl = |further: &[&str]| {
        let mut command = Command::new("curl");
        // --compressed offers all content codings; none may be used.
        command.args([
            "--noproxy",
            "*",
            "--fail",
            "--silent",
            "--show-error",
            "--compressed",
            "--output",
        ]);
        command.arg(&file).args(further).arg(&artifact.url);
        command
    };
    run(curl(&[])).await;
    check(&file, &artifact);
    halve(&file);
    run(curl(&["--continue-at", "-"])).await;
    check(&file, &artifact);
    controller.end().await;
}

#[tokio::test]
async fn wget_downloads_and_resumes() {
    let ((controller, artifact), directory) = (serve_artifact().await, tempfile::tempdir().unwrap());
    let file = directory.path().join("artifact.tar.gz");
    let wget = |further: &[&str]| {
        let mut command = Command::new("wget");
        command
            .args(["--no-proxy", "--quiet", "--output-document"])
            .arg(&file);
        command.args(further).arg(&artifact.url);
        command
    };
    run(wget(&[])).await;
    check(&file, &artifact);
    halve(&file);
    run(wget(&["--continue"])).await;
    check(&file, &artifact);
    controller.end().await;
}

/// As in tofu-controller: Go's client compares `ContentLength` with the size in the status.
#[tokio::test]
async fn a_go_client_sees_the_exact_length_and_no_content_coding() {
    let (controller, artifact) = serve_artifact().await;
    let program = gobuild::build(Tool::ArtifactConsumer, &mut |line| eprintln!("{line}")).unwrap();
    let mut command = Command::new(program);
    command.args([
        artifact.url.as_str(),
        &artifact.size.unwrap().to_string(),
        &artifact.digest,
    ]);
    let output = run(command).await;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "whole and resumed\n");
    controller.end().await;
}
