//! A push becomes an applied stack, by Jobs.

use sluice_harness::git::{GitServer, Repository};
use sluice_harness::skip::without_cluster;
use sluice_tests::scenario::{Commit, Scenario, manifests};

use crate::install::Installation;

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_planned_approved_and_applied_by_jobs() {
    if without_cluster().unwrap() {
        return;
    }
    let installation = Installation::shared().await;
    let node = installation.node;
    installation.create_runner_account("default").await;
    let repository = Repository::create().unwrap();
    let first = Commit::First.create(&repository).unwrap();
    let server = GitServer::start().await.unwrap();
    let url = server.serve("shop", &repository);
    let (_, rest) = url.split_once("://").unwrap();
    let (address, path) = rest.split_once('/').unwrap();
    let exposed = node.expose(address.parse().unwrap()).unwrap();
    let scenario = Scenario::new(node.client().await.unwrap());
    scenario
        .create(&manifests(&format!("http://{exposed}/{path}")))
        .await
        .unwrap();
    let plan = scenario.wait_for_plan(None).await;
    let plan = match plan {
        Ok(plan) => plan,
        Err(error) => panic!("{error}\n{}", installation.describe_pods().await),
    };
    scenario.approve(&plan).await.unwrap();
    scenario
        .wait_until_applied(&format!("main@sha1:{first}"))
        .await
        .unwrap();
    let state = scenario.state().await.unwrap();
    assert_eq!(state["outputs"]["version"]["value"], "1.0.0");
    let jobs = installation.kubectl(&["get", "jobs", "-oname"]).await;
    assert_eq!(jobs.lines().count(), 2, "{jobs}");
    // Names of runs end with their numbers.
    let apply = jobs.lines().max().unwrap();
    let log = installation.kubectl(&["logs", apply]).await;
    assert!(log.contains("Apply complete!"), "{log}");
    let run = apply.rsplit('/').next().unwrap();
    let query = ["get", "terraformrun", run, "-ojsonpath={.status.logTail}"];
    let tail = installation.kubectl(&query).await;
    assert!(tail.contains("Apply complete!"), "{tail}");
    // The runner's own lines may be between those of the CLI.
    assert!(tail.lines().all(|line| log.contains(line)), "{tail}\n{log}");
}
