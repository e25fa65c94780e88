//! A remote that sends endlessly does not exhaust the controller's memory.

use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use sluice_api::source::GitRepository;
use sluice_harness::git::{Fault, GitServer, Injection, Repository, Scope};

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
