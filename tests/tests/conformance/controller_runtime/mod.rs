//! A controller of controller-runtime (`tests/assets/controller`) on the embedded API with each store. Its client and its cache are
//! unmodified. It does the same on a real kube-apiserver, so the steps expect nothing that is particular to the embedded API.

mod controller;
mod steps;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use sluice_embedded::{ApiServer, GitOptions, StatusLocation, Store};
use sluice_harness::cluster::ControlPlane;
use sluice_harness::directory::TestDirectory;
use sluice_harness::git::run_git;
use sluice_harness::skip;

use self::steps::Fixture;

/// The definition of the kind.
const DEFINITION: &str = include_str!("../../../assets/controller/definition.yaml");

fn definition() -> CustomResourceDefinition {
    serde_yaml_ng::from_str(DEFINITION).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_works_on_a_file_store() {
    let folder = TestDirectory::create().unwrap();
    let store = Store::file(folder.path().join("objects.redb")).unwrap();
    let server = ApiServer::builder().store(store).build().unwrap();
    // The server learns the kind while it runs.
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    definitions
        .create(&PostParams::default(), &definition())
        .await
        .unwrap();
    let serving = server
        .serve(([127, 0, 0, 1], 0).into(), &folder.path().join("api"))
        .await
        .unwrap();
    let fixture = Fixture::open(server.client(), &serving.kubeconfig_path, folder.path()).await;
    let controller = fixture.begin().await;
    fixture.finish(controller).await;
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_works_on_a_git_store() {
    let folder = TestDirectory::create().unwrap();
    let init = [
        "init",
        "--quiet",
        "--bare",
        "--initial-branch=main",
        "objects.git",
    ];
    git(folder.path(), &init);
    let options = GitOptions {
        repository: folder.path().join("objects.git"),
        remote: None,
        branch: "main".to_owned(),
        status: StatusLocation::default(),
        subdir: String::new(),
        interval: Duration::from_millis(50),
        signing_key: None,
        shared: BTreeSet::new(),
        local: folder.path().join("local.redb"),
    };
    let store = Store::git(options, &[definition()]).unwrap();
    let server = ApiServer::builder()
        .crds([definition()])
        .store(store)
        .build()
        .unwrap();
    let serving = server
        .serve(([127, 0, 0, 1], 0).into(), &folder.path().join("api"))
        .await
        .unwrap();
    let fixture = Fixture::open(server.client(), &serving.kubeconfig_path, folder.path()).await;
    let controller = fixture.begin().await;
    push_text(folder.path());
    fixture.wait_for_text("first", "pushed").await;
    fixture.finish(controller).await;
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_works_on_a_real_api_server() {
    if skip::without_cluster().unwrap() {
        return;
    }
    let folder = TestDirectory::create().unwrap();
    let plane = ControlPlane::start().await.unwrap();
    plane.apply(DEFINITION).await.unwrap();
    plane.start_controllers().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, plane.admin().kubeconfig()).unwrap();
    let client = plane.client().await.unwrap();
    let fixture = Fixture::open(client, &kubeconfig, folder.path()).await;
    let controller = fixture.begin().await;
    fixture.finish(controller).await;
}

/// Edits the text of the first page in a clone, as a user does, and pushes it. The status of the page is on a branch of its own.
fn push_text(folder: &Path) {
    git(folder, &["clone", "--quiet", "objects.git", "clone"]);
    let clone = folder.join("clone");
    let file = clone.join("example.com/v1/pages/default/first.yaml");
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page.contains("text: hello") && !page.contains("status"), "{page}");
    let status = git(
        &clone,
        &["show", "origin/main-status:pages.example.com/default/first.yaml"],
    );
    assert!(status.contains("reason: Published"), "{status}");
    std::fs::write(&file, page.replace("text: hello", "text: pushed")).unwrap();
    git(&clone, &["commit", "--quiet", "-am", "Edit the text"]);
    git(&clone, &["push", "--quiet", "origin", "HEAD:main"]);
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    run_git(directory, arguments).unwrap()
}
