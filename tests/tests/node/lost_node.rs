//! A node that goes away for good during an apply: Kubernetes gives its pods up, and only then the run is lost and another one follows.

use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use sluice_harness::cli;
use sluice_harness::node::{Component, Node};
use sluice_harness::trial::TrialProvider;
use sluice_tests::scenario::TIMEOUT;

use crate::faults::pods::{container_id, is_ready};
use crate::helm::run;
use crate::install::NAMESPACE;
use crate::tenant::{Tenant, pods_with_provider};

/// The namespace of the stack.
const TEAM: &str = "lost";
/// The module after the block of the provider.
const RESOURCE: &str = r#"
resource "trial_thing" "it" {
  name    = "it"
  content = "one"
}
"#;
/// The step in which the run is when its node is lost.
const STEP: &str = "create it";
/// Interval of the requests of a wait.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Kubernetes gives up the pods of a deleted Node after this time at the earliest (`quarantineTime` of its pod garbage collector).
const QUARANTINE: Duration = Duration::from_secs(40);
/// Keeps the pod of tf-controller in the API for as long as the test lasts.
const FINALIZER: &str = "sluice.test/other-node";

/// Repeats an attempt until it has a result.
async fn wait_for<T>(what: &str, attempt: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(result) = attempt().await {
            return result;
        }
        assert!(Instant::now() < deadline, "waited for {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// tf-controller is on the same node here. Its container continues without the kubelet, and its token is good for a minute after the
/// deletion of its pod, if the pod is still there: as if it were on another node.
async fn keep_controller(node: &Node) {
    let pods: Api<Pod> = Api::namespaced(node.client().await.unwrap(), NAMESPACE);
    let selected = ListParams::default().labels("app=tf-controller");
    let found = pods.list(&selected).await.unwrap().items;
    let ready: Vec<_> = found.iter().filter(|pod| is_ready(pod)).collect();
    assert_eq!(ready.len(), 1, "{found:#?}");
    let patch: Patch<Value> = Patch::Merge(json!({ "metadata": { "finalizers": [FINALIZER] } }));
    let (name, params) = (ready[0].name_any(), PatchParams::default());
    pods.patch(&name, &params, &patch).await.unwrap();
}

/// Ends the kubelet and the run, as a machine that is switched off, and deletes the Node, as an administrator or the cloud does.
async fn lose_node(node: &Node, folder: &Path) {
    let pods: Api<Pod> = Api::namespaced(node.client().await.unwrap(), TEAM);
    let id = wait_for("the container of the run", async || {
        let pods = pods.list(&ListParams::default()).await.ok()?.items;
        pods.iter().find_map(container_id).map(str::to_owned)
    })
    .await;
    node.kill_component(Component::Kubelet);
    node.kill_container(&id).await.unwrap();
    let kubectl = cli::kubectl().unwrap();
    run(&kubectl, folder, &["delete", "node", "node-1"]).await;
}

/// The run is lost once Kubernetes has given up its pod, not before, and the next one waits for a node. No pod can start on the node
/// afterwards. The stack is suspended in the end, so no run is active.
pub(crate) async fn check_lost_node(node: &Node, folder: &Path) {
    let provider = TrialProvider::create().unwrap();
    provider.open_to_pods().unwrap();
    let hold = json!({ "steps": { STEP: { "hold": true } } });
    provider.set_behaviour(&hold).unwrap();
    let module = format!("{}{RESOURCE}", provider.provider_block());
    let tenant = Tenant::with_files(node, TEAM, &[("main.tf", module.as_str())]).await;
    tenant.add_account("tf-runner").await;
    let fields = json!({ "approvePlan": "auto", "retryInterval": "1s",
        "runnerPodTemplate": pods_with_provider(&provider) });
    tenant.add_stack("net", &fields).await;
    let has_begun = || provider.calls().iter().any(|call| call == STEP);
    wait_for(STEP, async || has_begun().then_some(())).await;

    keep_controller(node).await;
    let since = Instant::now();
    lose_node(node, folder).await;
    let runs = wait_for("the run after the lost one", async || {
        let runs = tenant.runs("net").await;
        let waits = runs.get(1).is_some_and(|run| run.starts_with("Pending "));
        waits.then_some(runs)
    })
    .await;
    assert!(since.elapsed() >= QUARANTINE, "lost after {:?}", since.elapsed());
    // The Job controller may have removed the pod before tf-controller has read why it failed.
    let lost = ["Lost NodeLost", "Lost RunLost"];
    assert!(runs.len() == 2 && lost.contains(&runs[0].as_str()), "{runs:?}");
    let left = provider.resources().unwrap();
    assert!(left.is_empty(), "the run has ended in its step: {left:?}");

    tenant.edit("net", &json!({ "suspend": true })).await;
    wait_for("the end of the waiting run", async || {
        let runs = tenant.runs("net").await;
        runs[1].starts_with("Superseded ").then_some(())
    })
    .await;
}
