//! A `Repo`, served by the Deployment of the component: its commit is applied by one Job.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};
use sluice_harness::git::{GitServer, Repository};
use sluice_harness::skip::without_cluster;
use sluice_tests::scenario::wait_for;
use sluice_tests::wait_for_definitions;

use crate::install::{Installation, config};

/// The namespace of the test.
const TEAM: &str = "repos";

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_a_repo_is_applied_by_one_job_that_its_row_names() {
    if without_cluster().unwrap() {
        return;
    }
    let installation = Installation::shared().await;
    let (node, client) = (installation.node, installation.node.client().await.unwrap());
    let definition = config("components/repo-controller/crd");
    installation
        .kubectl(&["apply", "--server-side", "-k", &definition])
        .await;
    wait_for_definitions(client.clone()).await.unwrap();
    installation.add_component("repo-controller").await;
    installation.kubectl(&["create", "namespace", TEAM]).await;
    installation.create_runner_account(TEAM).await;

    let repository = Repository::create_with(&["--initial-branch=master"]).unwrap();
    let module = "resource \"terraform_data\" \"it\" {}\n";
    let commit = repository
        .commit_files(&[("main.tf", module)], "The module")
        .unwrap();
    let server = GitServer::start().await.unwrap();
    let url = server.serve("app", &repository);
    let (_, rest) = url.split_once("://").unwrap();
    let (address, path) = rest.split_once('/').unwrap();
    let exposed = node.expose(address.parse().unwrap()).unwrap();
    let kind = GroupVersionKind::gvk("terraform.gitops.k8s.io", "v1alpha1", "Repo");
    let repos: Api<DynamicObject> = Api::namespaced_with(client, TEAM, &ApiResource::from_gvk(&kind));
    let repo = json!({ "apiVersion": "terraform.gitops.k8s.io/v1alpha1", "kind": "Repo",
        "metadata": { "name": "app" }, "spec": { "url": format!("http://{exposed}/{path}") } });
    let repo: DynamicObject = serde_json::from_value(repo).unwrap();
    repos.create(&PostParams::default(), &repo).await.unwrap();
    let is_applied = |object: &Value| {
        let row = &object["status"];
        row["gitSHA"] == commit && row["runStatus"] == "Completed"
    };
    let row = match wait_for(&repos, "app", "the commit applied", is_applied).await {
        Ok(row) => row,
        Err(error) => panic!("{error}\n{}", installation.describe_pods().await),
    };
    let job = row["status"]["runJobName"].as_str().unwrap();
    let jobs = installation.kubectl(&["-n", TEAM, "get", "jobs", "-oname"]).await;
    assert_eq!(jobs.trim(), format!("job.batch/{job}"));
    let job = format!("job/{job}");
    // The runner has reported its end before the kubelet reports that the container runs.
    let is_complete = [
        "-n",
        TEAM,
        "wait",
        "--for=condition=complete",
        &job,
        "--timeout=300s",
    ];
    installation.kubectl(&is_complete).await;
    let log = installation.kubectl(&["-n", TEAM, "logs", &job]).await;
    assert!(log.contains("Apply complete!"), "{log}");
}
