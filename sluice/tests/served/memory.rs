//! Neither a remote that sends endlessly nor a large file exhausts the controller's memory.

use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use sluice_api::source::GitRepository;
use sluice_harness::git::{Fault, GitServer, Injection, Repository, Scope};
use sluice_harness::sample::noise;

use crate::fixture::api;
use crate::program::Program;

/// Allowed memory beyond the idle state. An endless response sends much more before its timeout.
const ALLOWANCE: u64 = 64 << 20;

#[tokio::test]
async fn an_endless_response_in_any_phase_does_not_exhaust_memory() {
    let api = api();
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    // A host that is known already gets no discovery.
    let unknown = GitServer::start().await.unwrap();
    repository.commit_files(&[("main.tf", "")], "first").unwrap();
    let (directory, storage) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let program = Program::start(&api, directory.path(), storage.path(), "true").await;
    let objects: Api<GitRepository> = Api::namespaced(api.client(), "default");
    let create = async |name: &str, server: &GitServer| {
        let object = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": name },
            "spec": {
                "url": server.serve(name, &repository), "interval": "10m", "timeout": "5s", "ref": { "branch": "main" },
            },
        });
        let object = serde_json::from_value(object).unwrap();
        objects.create(&PostParams::default(), &object).await.unwrap();
    };
    create("good", &server).await;
    program
        .wait_for(&objects, "good", |ready| ready.status == "True")
        .await;
    let at_rest = program.peak_memory();
    for (name, scope, server) in [
        ("advertisement", Scope::INFO_REFS, &unknown),
        ("lookup", Scope::LS_REFS, &server),
        ("pack", Scope::FETCH, &server),
    ] {
        server.inject(Injection::new(scope, Fault::Oversized).repository(name));
        create(name, server).await;
        program
            .wait_for(&objects, name, |ready| ready.status == "False")
            .await;
    }
    let more = program.peak_memory().saturating_sub(at_rest);
    println!(
        "{} MiB at rest, {} MiB more with endless answers",
        at_rest >> 20,
        more >> 20
    );
    assert!(more < ALLOWANCE, "{more} bytes more than at rest");
}

/// It is inflated, compressed and hashed in parts.
#[tokio::test]
async fn a_file_that_is_larger_than_the_allowance_is_packed_within_it() {
    let api = api();
    let server = GitServer::start().await.unwrap();
    let (small, large) = (Repository::create().unwrap(), Repository::create().unwrap());
    small.commit_files(&[("main.tf", "")], "small").unwrap();
    // Saves seconds.
    large.git(["config", "core.compression", "1"]).unwrap();
    let text = noise(1, 1 << 20).repeat(96);
    assert!(text.len() as u64 > ALLOWANCE);
    large.commit_files(&[("large.txt", text)], "large").unwrap();
    let (directory, storage) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let program = Program::start(&api, directory.path(), storage.path(), "true").await;
    let objects: Api<GitRepository> = Api::namespaced(api.client(), "default");
    let mut peaks = Vec::new();
    for (name, repository) in [("small", &small), ("large", &large)] {
        let object = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": name },
            "spec": { "url": server.serve(name, repository), "interval": "10m", "ref": { "branch": "main" } },
        });
        let object = serde_json::from_value(object).unwrap();
        objects.create(&PostParams::default(), &object).await.unwrap();
        program
            .wait_for(&objects, name, |ready| ready.status == "True")
            .await;
        peaks.push(program.peak_memory());
    }
    let more = peaks[1] - peaks[0];
    println!(
        "{} MiB with a small source, {} MiB more",
        peaks[0] >> 20,
        more >> 20
    );
    assert!(more < ALLOWANCE, "{more} bytes more than with a small source");
}
