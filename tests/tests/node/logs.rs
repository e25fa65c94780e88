//! The command line of Flux filters the logs of the controllers, as that of tofu-controller does.

use serde_json::json;
use sluice_harness::gobuild::{self, Tool};
use sluice_harness::skip::without_cluster;
use tokio::process::Command;

use crate::install::{Installation, NAMESPACE};
use crate::overlays::wait_until;
use crate::tenant::Tenant;

const TEAM: &str = "logs";
/// What is printed of a stack: level, kind, name and namespace, message.
const STACK: &str = " info Terraform/net.logs - run created ";
/// What is printed of a source whose Secret is missing.
const SOURCE: &str = " error GitRepository/private.logs - reconciliation ";

/// Runs `flux logs`, again while it cannot read the log of a pod: another test may replace one meanwhile. Returns the printed lines.
async fn flux_logs(installation: &Installation<'_>, arguments: &[&str]) -> Vec<String> {
    let program = gobuild::build(Tool::Flux, &mut |line| eprintln!("{line}")).unwrap();
    let output = wait_until(installation, "flux logs", async || {
        let output = Command::new(&program)
            .arg("logs")
            .args(arguments)
            .args(["--flux-namespace", NAMESPACE, "--timeout=2m"])
            .env("KUBECONFIG", installation.kubeconfig())
            .output()
            .await
            .unwrap();
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        output.status.success().then_some(output.stdout)
    })
    .await;
    let text = String::from_utf8_lossy(&output);
    text.lines().map(str::to_owned).collect()
}

fn contains(lines: &[String], text: &str) -> bool {
    lines.iter().any(|line| line.contains(text))
}

#[tokio::test(flavor = "multi_thread")]
async fn flux_filters_the_logs_by_kind_name_namespace_and_level() {
    if without_cluster().unwrap() {
        return;
    }
    let installation = Installation::shared().await;
    let tenant = Tenant::new(installation.node, TEAM).await;
    tenant.add_stack("net", &json!({})).await;
    let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": { "name": "private", "namespace": TEAM },
        "spec": { "interval": "10m", "url": "https://sluice.invalid/private", "secretRef": { "name": "absent" } } });
    tenant.apply(&source).await;
    let in_namespace = ["--namespace", TEAM];
    wait_until(installation, "the lines of both controllers", async || {
        let lines = flux_logs(installation, &in_namespace).await;
        (contains(&lines, STACK) && contains(&lines, SOURCE)).then_some(())
    })
    .await;
    let lines = flux_logs(installation, &in_namespace).await;
    let is_of_namespace = |line: &String| line.contains(".logs - ");
    assert!(lines.iter().all(is_of_namespace), "{lines:#?}");
    let all = flux_logs(installation, &["--all-namespaces"]).await;
    assert!(contains(&all, STACK) && contains(&all, SOURCE), "{all:#?}");
    for (arguments, kept, dropped) in [
        (&["--kind=Terraform"][..], STACK, "GitRepository/"),
        (&["--kind=GitRepository"], SOURCE, "Terraform/"),
        (&["--level=error"], SOURCE, " info "),
        (
            &["--kind=Terraform", "--name=net", "--level=info"],
            STACK,
            "GitRepository/",
        ),
    ] {
        let lines = flux_logs(installation, &[&in_namespace[..], arguments].concat()).await;
        assert!(contains(&lines, kept), "{arguments:?}: {lines:#?}");
        assert!(!contains(&lines, dropped), "{arguments:?}: {lines:#?}");
    }
}
