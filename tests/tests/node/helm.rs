//! The Helm chart on a node of its own: cluster-wide roles have fixed names.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_harness::cli;
use sluice_harness::node::Node;
use sluice_harness::skip::without_cluster;
use sluice_tests::binary;
use tokio::process::Command;

use crate::images;
use crate::lost_node::check_lost_node;
use crate::storage::{VOLUME, Volume};
use crate::tenant::Tenant;

const NAMESPACE: &str = "sluice-system";
/// The namespace in which the release creates the account of runs.
const APPS: &str = "apps";
/// Above the timeout that Helm gets.
const TIMEOUT: Duration = Duration::from_mins(4);

/// Runs a program in a folder, with the kubeconfig `admin` there, and `kubectl` and `sluice` on its PATH. Returns its output.
pub(crate) async fn run(program: &Path, folder: &Path, arguments: &[&str]) -> String {
    run_within(TIMEOUT, program, folder, arguments).await
}

/// As [`run`], with another timeout.
pub(crate) async fn run_within(limit: Duration, program: &Path, folder: &Path, arguments: &[&str]) -> String {
    let error = match try_run(limit, program, folder, arguments).await {
        Ok(output) => return output,
        Err(error) => error,
    };
    let kubectl = cli::kubectl().unwrap();
    let all = ["get", "pods,events", "-A", "--request-timeout=20s"];
    let objects = try_run(TIMEOUT, &kubectl, folder, &all).await;
    panic!(
        "{} {arguments:?}: {error}\n{}",
        program.display(),
        objects.unwrap_or_else(|error| error)
    );
}

async fn try_run(
    limit: Duration,
    program: &Path,
    folder: &Path,
    arguments: &[&str],
) -> Result<String, String> {
    let (kubectl, sluice) = (cli::kubectl().unwrap(), binary("sluice").unwrap());
    let [kubectl, sluice] = [&kubectl, &sluice].map(|program| program.parent().unwrap().display());
    let path = std::env::var("PATH").unwrap_or_default();
    let child = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env("PATH", format!("{kubectl}:{sluice}:{path}"))
        .env("KUBECONFIG", folder.join("admin"))
        // Helm and kubectl have caches there.
        .env("HOME", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let output = tokio::time::timeout(limit, child.wait_with_output()).await;
    let output = output
        .map_err(|_| format!("timeout after {limit:?}"))?
        .map_err(|error| error.to_string())?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    Err(format!("{printed}{}", String::from_utf8_lossy(&output.stderr)))
}

/// Returns the namespace of the release; its pods are as restricted as Kubernetes can ask for.
fn restricted_namespace() -> String {
    let labels = "{pod-security.kubernetes.io/enforce: restricted}";
    format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}, labels: {labels}}}}}")
}

/// Returns fields of objects in the namespace of the release.
async fn fields(folder: &Path, objects: &str, path: &str) -> String {
    let output = format!("jsonpath={path}");
    let query = ["-n", NAMESPACE, "get", objects, "-o", &output];
    run(&cli::kubectl().unwrap(), folder, &query).await
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_installs_upgrades_and_uninstalls_the_controllers() {
    if without_cluster().unwrap() {
        return;
    }
    let node = Node::start().await.unwrap();
    node.apply(&restricted_namespace()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    images::import(&node).await;
    std::fs::write(folder.join("admin"), node.admin().kubeconfig()).unwrap();
    let (helm, kubectl) = (cli::helm().unwrap(), cli::kubectl().unwrap());
    run(&kubectl, folder, &["create", "namespace", APPS]).await;
    let chart = format!("{}/../charts/sluice", env!("CARGO_MANIFEST_DIR"));
    let accounts = format!("runner.serviceAccount.allowedNamespaces={{{APPS}}}");
    let release = [
        "sluice",
        &chart,
        "--namespace",
        NAMESPACE,
        "--set",
        &accounts,
        "--wait",
        "--timeout",
        "3m",
    ];

    run(&helm, folder, &[&["install"], &release[..]].concat()).await;
    // Helm waits until the controllers are ready, so source-controller serves and both accept the definitions.
    let replicas = "{.items[*].status.readyReplicas}";
    assert_eq!(fields(folder, "deployments", replicas).await, "1 1");
    let (tenant, artifact) = apply_stack(&node, folder).await;

    // Helm waits also until the claim is bound, and a pod with it is ready.
    Volume::create(&node).await;
    let values = [
        "--set",
        "tfController.replicas=2,sourceController.persistence.enabled=true",
    ];
    run(&helm, folder, &[&["upgrade"], &release[..], &values].concat()).await;
    // One works, both are ready.
    assert_eq!(fields(folder, "deployments", replicas).await, "1 2");
    let budget = fields(
        folder,
        "poddisruptionbudget/tf-controller",
        "{.spec.minAvailable}",
    );
    assert_eq!(budget.await, "1");
    let bound = "{.spec.volumeName} {.status.phase}";
    let claim = fields(folder, "persistentvolumeclaim/source-controller", bound).await;
    assert_eq!(claim, format!("{VOLUME} Bound"));
    check_stack(&tenant, &artifact).await;

    uninstall(folder).await;
    check_own_installation(&node, folder).await;
}

/// Removes the release. The definitions stay.
async fn uninstall(folder: &Path) {
    let (helm, kubectl) = (cli::helm().unwrap(), cli::kubectl().unwrap());
    let uninstall = [
        "uninstall",
        "sluice",
        "--namespace",
        NAMESPACE,
        "--wait",
        "--timeout",
        "3m",
    ];
    run(&helm, folder, &uninstall).await;
    assert_eq!(remaining(folder).await, "serviceaccount/default");
    let definitions = run(&kubectl, folder, &["get", "crd", "-o", "name"]).await;
    assert_eq!(
        definitions.lines().count(),
        sluice_api::crds().len(),
        "{definitions}"
    );
}

/// Applies a stack under the account that the release has created. Returns the artifact of its source.
async fn apply_stack<'n>(node: &'n Node, folder: &Path) -> (Tenant<'n>, Value) {
    let kubectl = cli::kubectl().unwrap();
    let account = ["-n", APPS, "get", "serviceaccount/tf-runner", "-o", "name"];
    run(&kubectl, folder, &account).await;
    let tenant = Tenant::without_role(node, APPS).await;
    tenant.add_stack("net", &json!({ "approvePlan": "auto" })).await;
    let ready = [
        "-n",
        APPS,
        "wait",
        "--for=condition=Ready",
        "terraform/net",
        "--timeout=180s",
    ];
    run(&kubectl, folder, &ready).await;
    let artifact = tenant.poll_source("installed").await.unwrap();
    (tenant, artifact)
}

/// The upgraded release continues with the stack: its source has the same artifact, on the new volume, and nothing has run.
async fn check_stack(tenant: &Tenant<'_>, artifact: &Value) {
    let upgraded = tenant.poll_source("upgraded").await.unwrap();
    assert_eq!(upgraded["digest"], artifact["digest"]);
    assert_eq!(tenant.runs("net").await, ["Succeeded TerraformAppliedSucceed"]);
}

/// Returns the objects of the installation that are there.
async fn remaining(folder: &Path) -> String {
    let kinds = "deployments,services,serviceaccounts,roles,networkpolicies,persistentvolumeclaims";
    let names = ["-n", NAMESPACE, "get", kinds, "-o", "name"];
    let names = run(&cli::kubectl().unwrap(), folder, &names).await;
    names.trim().to_owned()
}

/// `sluice install` installs the overlay without kustomize, and `sluice uninstall` removes what it has written, also without a node.
async fn check_own_installation(node: &Node, folder: &Path) {
    let sluice = binary("sluice").unwrap();
    let install = [
        "install",
        "standalone",
        "--registry",
        "sluice.invalid",
        "--timeout",
        "3m",
    ];
    run(&sluice, folder, &install).await;
    assert_eq!(
        fields(folder, "deployments", "{.items[*].status.readyReplicas}").await,
        "1 1"
    );
    let version = run(&sluice, folder, &["version"]).await;
    assert!(
        version.contains("tf-controller") && version.contains("source-controller"),
        "{version}"
    );
    run(&sluice, folder, &["check"]).await;
    // Nothing can run on the node afterwards.
    Box::pin(check_lost_node(node, folder)).await;
    run(&sluice, folder, &["uninstall", "--yes"]).await;
    let left = remaining(folder).await;
    assert!(!left.contains("deployment") && !left.contains("role"), "{left}");
}
