//! A push becomes an applied stack, by Jobs.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::json;
use sluice_harness::cli;
use sluice_harness::git::{GitServer, Repository};
use sluice_harness::skip::without_cluster;
use sluice_tests::scenario::{Commit, Scenario, manifests};

use crate::images;
use crate::install::Installation;
use crate::tenant::Tenant;

/// Longer than the retry delay of a failed run.
const QUIET: Duration = Duration::from_secs(5);

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
    // The runner has reported its end before the kubelet reports that the container runs.
    let is_complete = ["wait", "--for=condition=complete", apply, "--timeout=300s"];
    installation.kubectl(&is_complete).await;
    let log = installation.kubectl(&["logs", apply]).await;
    assert!(log.contains("Apply complete!"), "{log}");
    let run = apply.rsplit('/').next().unwrap();
    let query = ["get", "terraformrun", run, "-ojsonpath={.status.logTail}"];
    let tail = installation.kubectl(&query).await;
    assert!(tail.contains("Apply complete!"), "{tail}");
    // The runner's own lines may be between those of the CLI.
    assert!(tail.lines().all(|line| log.contains(line)), "{tail}\n{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_the_versions_of_its_image_and_one_without_the_selected_version_is_not_repeated() {
    if without_cluster().unwrap() {
        return;
    }
    let installation = Installation::shared().await;
    let tenant = Tenant::new(installation.node, "versions").await;
    let version = cli::version(&cli::tofu().unwrap()).unwrap();
    let pinned = json!({ "tool": { "name": "tofu", "version": version }, "path": "./verbose" });
    tenant.add_stack("pinned", &pinned).await;
    let absent = json!({ "retryInterval": "1s", "tool": { "name": "tofu", "version": "~> 0.1" } });
    tenant.add_stack("absent", &absent).await;
    if let Err(error) = tenant.wait_for_plan("pinned").await {
        panic!("{error}\n{}", installation.describe_pods().await);
    }
    let texts = [images::RUNNER, "tofu ~> 0.1 is not installed", &version];
    if let Err(error) = tenant.wait_for_message("absent", &texts).await {
        panic!("{error}\n{}", installation.describe_pods().await);
    }
    tokio::time::sleep(QUIET).await;
    assert_eq!(tenant.runs("absent").await, ["Failed ToolNotInstalled"]);
    tenant
        .edit("absent", &json!({ "tool": { "version": null } }))
        .await;
    tenant.wait_for_plan("absent").await.unwrap();
    check_log_without_pod(installation, "versions", "pinned").await;
}

/// Deletes the Job of the only run of a stack, with its pod. The run keeps the end of its log, and its Secret all of it.
async fn check_log_without_pod(installation: &Installation<'_>, namespace: &str, stack: &str) {
    let kubectl = async |arguments: &[&str]| {
        let all = [&["-n", namespace], arguments].concat();
        installation.kubectl(&all).await
    };
    let of_stack = format!("-linfra.sluice.dev/terraform={stack}");
    let names = "-ojsonpath={.items[*].metadata.name}";
    let run = kubectl(&["get", "terraformruns", &of_stack, names]).await;
    kubectl(&["delete", "job", &run, "--cascade=foreground"]).await;
    assert_eq!(
        kubectl(&["get", "pods", &of_stack, names]).await,
        "",
        "the pod is gone"
    );
    let tail = kubectl(&["get", "terraformrun", &run, "-ojsonpath={.status.logTail}"]).await;
    let secrets: Api<Secret> = Api::namespaced(installation.node.client().await.unwrap(), namespace);
    let secret = secrets.get(&format!("{run}-log")).await.unwrap();
    let packed = secret.data.unwrap().remove("log.gz").unwrap().0;
    let log = std::io::read_to_string(flate2::read::GzDecoder::new(&packed[..])).unwrap();
    let first = "terraform_data.line[0] will be created";
    assert!(
        log.contains(first) && log.trim_end().ends_with(&tail),
        "{tail}\n{log}"
    );
    assert!(!tail.is_empty() && !tail.contains(first), "{tail}");
}

/// The first run shows what the next one needs, and whether the namespace gives its pods a request.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_requests_the_memory_that_the_last_run_needed() {
    if without_cluster().unwrap() {
        return;
    }
    let installation = Installation::shared().await;
    let measured = Tenant::new(installation.node, "measured").await;
    let limited = Tenant::new(installation.node, "limited").await;
    // A pod that requests less is rejected; one without a request gets this one.
    let least = json!({ "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "least", "namespace": "limited" },
        "spec": { "limits": [{ "type": "Container", "min": { "memory": "256Mi" } }] } });
    limited.apply(&least).await;
    for tenant in [&measured, &limited] {
        tenant.add_stack("net", &json!({})).await;
    }
    for tenant in [&measured, &limited] {
        let second = match tenant.wait_for_plan("net").await {
            Ok(()) => tenant.request_run("net", "again").await,
            Err(error) => Err(error),
        };
        if let Err(error) = second {
            panic!("{error}\n{}", installation.describe_pods().await);
        }
    }
    let amounts = ["memoryLimitBytes", "peakMemoryBytes", "defaultMemoryRequestBytes"];
    let runs = columns(
        installation,
        "measured",
        "terraformruns",
        &amounts.map(|field| format!(".status.{field}")),
    )
    .await;
    let amount = |run: usize, field: usize| runs[run][field].parse::<u64>().unwrap();
    let (node, peak) = (amount(0, 0), amount(0, 1));
    assert_eq!((amount(0, 2), amount(1, 2)), (0, 0), "no default: {runs:?}");
    let request = [".spec.template.spec.containers[0].resources.requests.memory".to_owned()];
    let requests = columns(installation, "measured", "jobs", &request).await;
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert_eq!(requests[0], [ABSENT], "nothing was measured before the first run");
    let requested = requests[1][0].trim_end_matches("Mi").parse::<u64>().unwrap() << 20;
    assert!(
        requested >= peak && requested <= node,
        "{requested} for a peak of {peak}"
    );
    let requests = columns(installation, "limited", "jobs", &request).await;
    assert_eq!(requests, [[ABSENT], [ABSENT]], "the namespace has a default");
    let defaults = [".status.defaultMemoryRequestBytes".to_owned()];
    let defaults = columns(installation, "limited", "terraformruns", &defaults).await;
    assert_eq!(defaults, [["268435456"], ["268435456"]]);
}

/// As in tofu-controller's case 000311: the outputs come after the init container, however long it takes.
#[tokio::test(flavor = "multi_thread")]
async fn the_outputs_of_a_run_come_after_its_slow_init_container() {
    if without_cluster().unwrap() {
        return;
    }
    let installation = Installation::shared().await;
    let files = [("main.tf", "output \"it\" {\n  value = \"done\"\n}\n")];
    let tenant = Tenant::with_files(installation.node, "delayed", &files).await;
    tenant.add_account("tf-runner").await;
    let slow = json!({ "name": "slow", "image": images::RUNNER, "command": ["sleep", "15"] });
    let fields = json!({ "approvePlan": "auto", "writeOutputsToSecret": { "name": "outputs" },
        "runnerPodTemplate": { "spec": { "initContainers": [slow] } } });
    tenant.add_stack("net", &fields).await;
    let kubectl = async |arguments: &[&str]| {
        let all = [&["-n", "delayed"], arguments].concat();
        installation.kubectl(&all).await
    };
    kubectl(&["wait", "--for=condition=Ready", "terraform/net", "--timeout=300s"]).await;
    let runs = tenant.runs("net").await;
    assert!(runs.len() == 1 && runs[0].starts_with("Succeeded "), "{runs:?}");
    let output = kubectl(&["get", "secret", "outputs", "-ojsonpath={.data.it}"]).await;
    assert_eq!(output, "ZG9uZQ==", "done");
    let finished = "-ojsonpath={.items[*].status.initContainerStatuses[*].state.terminated.finishedAt}";
    let finished = kubectl(&["get", "pods", "-linfra.sluice.dev/terraform=net", finished]).await;
    let created = "-ojsonpath={.metadata.creationTimestamp}";
    let created = kubectl(&["get", "secret", "outputs", created]).await;
    // Of one format, so that their order is that of the times.
    assert!(
        !finished.is_empty() && finished <= created,
        "{finished} {created}"
    );
}

/// What kubectl shows in place of an absent field.
const ABSENT: &str = "<none>";

/// Returns fields of the objects of a kind, in the order of their names.
async fn columns(
    installation: &Installation<'_>,
    namespace: &str,
    kind: &str,
    paths: &[String],
) -> Vec<Vec<String>> {
    let columns: Vec<_> = paths
        .iter()
        .enumerate()
        .map(|(number, path)| format!("C{number}:{path}"))
        .collect();
    let output = format!("-ocustom-columns={}", columns.join(","));
    let query = ["-n", namespace, "get", kind, "--no-headers", &output];
    let rows = installation.kubectl(&query).await;
    let words = |row: &str| row.split_whitespace().map(str::to_owned).collect();
    rows.lines().map(words).collect()
}
