//! Runs whose pod cannot start, and runs whose pod ends without a report: the object says why, and what to do.

use futures::future::join_all;
use serde_json::{Value, json};
use sluice_harness::skip::without_cluster;

use crate::install::Installation;
use crate::tenant::Tenant;

pub(crate) fn pod(spec: &Value) -> Value {
    json!({ "runnerPodTemplate": { "spec": spec } })
}

/// Waits until the only run of the stack is pending and says why.
pub(crate) async fn wait_until_pending(
    installation: &Installation<'_>,
    tenant: &Tenant<'_>,
    stack: &str,
    texts: &[&str],
) {
    if let Err(error) = tenant.wait_for_message(stack, texts).await {
        panic!("{stack}: {error}\n{}", installation.describe_pods().await);
    }
    let runs = tenant.runs(stack).await;
    assert!(
        runs.len() == 1 && runs[0].starts_with("Pending "),
        "{stack}: {runs:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_pod_cannot_start_says_why() {
    if without_cluster().unwrap() {
        return;
    }
    let installation = Installation::shared().await;
    let tenant = Tenant::new(installation.node, "pending").await;
    let quota = Tenant::new(installation.node, "quota").await;
    let none = json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "none", "namespace": "quota" },
        "spec": { "hard": { "pods": "0" } } });
    quota.apply(&none).await;
    let volume = json!({ "volumes": [{ "name": "ca", "secret": { "secretName": "absent" } }],
        "volumeMounts": [{ "name": "ca", "mountPath": "/ca" }] });
    let selector = json!({ "nodeSelector": { "disk": "none" } });
    let cases = [
        (
            &tenant,
            "node",
            pod(&selector),
            ["Unschedulable", "change resources, nodeSelector"],
        ),
        (
            &tenant,
            "volume",
            pod(&volume),
            ["FailedMount", "secret \"absent\" not found"],
        ),
        (&quota, "full", json!({}), ["FailedCreate", "raise the quota"]),
    ];
    for (tenant, stack, fields, _) in &cases {
        tenant.add_stack(stack, fields).await;
    }
    // How soon depends on the load of this machine: `active_run::tests` proves how often such a run is checked.
    let reports = cases
        .iter()
        .map(|(tenant, stack, _, texts)| wait_until_pending(installation, tenant, stack, texts));
    join_all(reports).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_run_begins_once_it_can_and_an_edit_replaces_it() {
    if without_cluster().unwrap() {
        return;
    }
    let installation = Installation::shared().await;
    let tenant = Tenant::new(installation.node, "repair").await;
    tenant
        .add_stack("image", &pod(&json!({ "image": "sluice.invalid/none:1" })))
        .await;
    tenant
        .add_stack("account", &json!({ "serviceAccountName": "absent" }))
        .await;
    let image = ["Image", "check runnerPodTemplate.spec.image"];
    wait_until_pending(installation, &tenant, "image", &image).await;
    let account = ["FailedCreate", "create the ServiceAccount"];
    wait_until_pending(installation, &tenant, "account", &account).await;
    tenant.edit("image", &json!({ "runnerPodTemplate": null })).await;
    tenant.wait_for_plan("image").await.unwrap();
    let runs = tenant.runs("image").await;
    assert_eq!(
        runs,
        [
            "Superseded InputsChanged",
            "Succeeded TerraformPlannedWithChanges"
        ]
    );
    let jobs = tenant.jobs().await;
    let of_stack = jobs.iter().filter(|name| name.starts_with("image-")).count();
    assert_eq!(of_stack, 1, "the Job that cannot start is deleted: {jobs:?}");
    // The same run begins.
    tenant.add_account("absent").await;
    tenant.wait_for_plan("account").await.unwrap();
    assert_eq!(
        tenant.runs("account").await,
        ["Succeeded TerraformPlannedWithChanges"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroy_without_its_account_says_so_and_an_edit_replaces_it() {
    if without_cluster().unwrap() {
        return;
    }
    let installation = Installation::shared().await;
    let tenant = Tenant::new(installation.node, "leaving").await;
    tenant.add_account("own").await;
    let fields = json!({ "serviceAccountName": "own", "approvePlan": "auto", "deletionPolicy": "Destroy" });
    tenant.add_stack("net", &fields).await;
    let kubectl = async |arguments: &[&str]| {
        let in_namespace = ["-n", "leaving"].iter().chain(arguments).copied();
        installation.kubectl(&in_namespace.collect::<Vec<_>>()).await
    };
    // Only after the run has ended: its pod reports under the account.
    kubectl(&["wait", "--for=condition=Ready", "terraform/net", "--timeout=300s"]).await;
    kubectl(&["delete", "serviceaccount", "own"]).await;
    kubectl(&["delete", "terraform", "net", "--wait=false"]).await;
    let texts = [
        "FailedCreate",
        "create the ServiceAccount",
        "or abandon the resources with deletionPolicy: Retain",
    ];
    if let Err(error) = tenant.wait_for_message("net", &texts).await {
        panic!("{error}\n{}", installation.describe_pods().await);
    }
    tenant
        .edit("net", &json!({ "serviceAccountName": "tf-runner" }))
        .await;
    kubectl(&["wait", "--for=delete", "terraform/net", "--timeout=300s"]).await;
}

/// The number of the deleted run is used again, while its Job and its bundle are still there.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_run_is_made_again() {
    if without_cluster().unwrap() {
        return;
    }
    let installation = Installation::shared().await;
    let tenant = Tenant::new(installation.node, "again").await;
    tenant
        .add_stack("net", &json!({ "serviceAccountName": "absent" }))
        .await;
    let account = ["FailedCreate", "create the ServiceAccount"];
    wait_until_pending(installation, &tenant, "net", &account).await;
    let job = async || {
        let query = [
            "-n",
            "again",
            "get",
            "jobs",
            "-ojsonpath={.items[*].metadata.uid}",
        ];
        installation.kubectl(&query).await
    };
    let first = job().await;
    installation
        .kubectl(&["-n", "again", "delete", "terraformruns", "--all"])
        .await;
    // The first Job may create its pod now: that pod does not claim the new run.
    tenant.add_account("absent").await;
    if let Err(error) = tenant.wait_for_plan("net").await {
        panic!("{error}\n{}", installation.describe_pods().await);
    }
    assert_eq!(
        tenant.runs("net").await,
        ["Succeeded TerraformPlannedWithChanges"]
    );
    assert_ne!(job().await, first, "the run has a Job of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_ends_before_it_begins_fails_its_run() {
    if without_cluster().unwrap() {
        return;
    }
    let installation = Installation::shared().await;
    let tenant = Tenant::without_role(installation.node, "powerless").await;
    tenant.add_stack("net", &json!({})).await;
    let message = tenant
        .wait_for_message("net", &["the run did not begin", "forbidden"])
        .await;
    let message = match message {
        Ok(message) => message,
        Err(error) => panic!("{error}\n{}", installation.describe_pods().await),
    };
    assert!(
        message.contains("exit code 3: tf-runner: cannot claim run"),
        "{message}"
    );
    assert_eq!(tenant.runs("net").await, ["Failed RunLost"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_enough_memory_fails_its_run_with_the_limit() {
    if without_cluster().unwrap() {
        return;
    }
    let installation = Installation::shared().await;
    let tenant = Tenant::new(installation.node, "memory").await;
    let mut fields = pod(&json!({ "resources": { "limits": { "memory": "128Mi" } } }));
    fields["path"] = json!("./large");
    tenant.add_stack("net", &fields).await;
    let message = tenant
        .wait_for_message("net", &["runnerPodTemplate.spec.resources.limits.memory"])
        .await;
    if let Err(error) = message {
        panic!("{error}\n{}", installation.describe_pods().await);
    }
    // The kernel chooses whether the runner survives its CLI.
    let runs = tenant.runs("net").await;
    assert!(
        runs == ["Failed OOMKilled"] || runs == ["Lost OOMKilled"],
        "{runs:?}"
    );
}
