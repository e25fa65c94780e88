//! A `Repo`, served by the Deployment of the component: its commit is applied by one Job, also if the controller is killed meanwhile.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};
use sluice_harness::git::{Fault, Gate, GitServer, Injection, Repository, Scope};
use sluice_harness::skip::without_cluster;
use sluice_tests::audit::requests;
use sluice_tests::scenario::wait_for;
use sluice_tests::wait_for_definitions;

use crate::audit::assert_not_refused;
use crate::install::{self, Installation, config};
use crate::overlays::{kubectl, wait_until};

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

    let server = GitServer::start().await.unwrap();
    let exposed = node.expose(server.address()).unwrap();
    let (_module, gate) = serve_held_module(&server);
    let repository = Repository::create_with(&["--initial-branch=master"]).unwrap();
    let main = format!(
        "resource \"terraform_data\" \"it\" {{}}\nmodule \"held\" {{\n  source = \"git::http://{exposed}/module.git\"\n}}\n"
    );
    let commit = repository
        .commit_files(&[("main.tf", main)], "The module")
        .unwrap();
    server.serve("app", &repository);
    let kind = GroupVersionKind::gvk("terraform.gitops.k8s.io", "v1alpha1", "Repo");
    let repos: Api<DynamicObject> = Api::namespaced_with(client, TEAM, &ApiResource::from_gvk(&kind));
    let repo = json!({ "apiVersion": "terraform.gitops.k8s.io/v1alpha1", "kind": "Repo",
        "metadata": { "name": "app" }, "spec": { "url": format!("http://{exposed}/app.git") } });
    let repo: DynamicObject = serde_json::from_value(repo).unwrap();
    repos.create(&PostParams::default(), &repo).await.unwrap();
    wait_until_held(installation, &gate).await;
    check_log_of_active_run(installation).await;
    kill_controller(installation).await;
    gate.open();
    let is_applied = |object: &Value| {
        let row = &object["status"];
        row["gitSHA"] == commit && row["runStatus"] == "Completed"
    };
    let row = match wait_for(&repos, "app", "the commit applied", is_applied).await {
        Ok(row) => row,
        Err(error) => panic!("{error}\n{}", installation.describe_pods().await),
    };
    check_job(installation, row["status"]["runJobName"].as_str().unwrap()).await;
    let requests = requests(&node.audit_log().unwrap()).unwrap();
    assert_not_refused(&requests, &format!("{}:repo-controller", install::NAMESPACE));
}

/// Serves a module whose clone waits at the gate.
fn serve_held_module(server: &GitServer) -> (Repository, Gate) {
    let module = Repository::create().unwrap();
    module
        .commit_files(&[("main.tf", "locals {}\n")], "A module")
        .unwrap();
    server.serve("module", &module);
    let gate = Gate::default();
    server.inject(Injection::new(Scope::Any, Fault::Wait(gate.clone())).repository("module"));
    (module, gate)
}

/// Waits until the run waits for the module.
async fn wait_until_held(installation: &Installation<'_>, gate: &Gate) {
    wait_until(installation, "the run at the module", async || {
        (gate.count() > 0).then_some(())
    })
    .await;
}

/// `kubectl logs` of the Job shows what the CLI has printed, while it runs.
async fn check_log_of_active_run(installation: &Installation<'_>) {
    let jobs = kubectl(installation, TEAM, &["get", "jobs", "-oname"]).await;
    // There is none before the kubelet has reported that the container runs.
    let logs = ["-n", TEAM, "logs", &jobs];
    wait_until(installation, "the log of the active run", async || {
        let log = installation.try_kubectl(&logs).await.ok()?;
        log.contains("/module.git").then_some(())
    })
    .await;
}

/// Kills the controller (SIGKILL).
async fn kill_controller(installation: &Installation<'_>) {
    let container = read_container(installation, "containerID").await;
    let id = container.trim_start_matches("containerd://");
    installation.node.kill_container(id).await.unwrap();
}

/// Returns a field of the status of the controller's container.
async fn read_container(installation: &Installation<'_>, field: &str) -> String {
    let path = format!("jsonpath={{.items[*].status.containerStatuses[*].{field}}}");
    let read = [
        "-n",
        install::NAMESPACE,
        "get",
        "pods",
        "-lapp=repo-controller",
        "-o",
        &path,
    ];
    installation.kubectl(&read).await
}

/// This is the only Job, and it has applied.
async fn check_job(installation: &Installation<'_>, job: &str) {
    assert_ne!(
        read_container(installation, "restartCount").await,
        "0",
        "the controller was not killed"
    );
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
