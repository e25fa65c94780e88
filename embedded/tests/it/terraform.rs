//! The CLI's kubernetes backend: state in Secrets, locks in Leases.

use std::process::Stdio;
use std::time::Duration;

use sluice_harness::cli;
use tokio::process::Command;

use crate::fixture::{SECRETS, ok, serve, server};

const STACK: &str = r#"
terraform {
  backend "kubernetes" {
    secret_suffix     = "demo"
    namespace         = "default"
    in_cluster_config = false
  }
}
resource "terraform_data" "a" {
  input = "hello"
}
output "a" {
  value = terraform_data.a.output
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_kubernetes_backend_stores_state_and_locks() {
    let program = tokio::task::spawn_blocking(cli::terraform)
        .await
        .unwrap()
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let embedded = server();
    let serving = serve(&embedded, dir.path()).await;
    std::fs::write(dir.path().join("main.tf"), STACK).unwrap();
    let run = async |arguments: &str| {
        let output = Command::new(&program)
            .args(arguments.split(' '))
            .current_dir(dir.path())
            .env("KUBE_CONFIG_PATH", &serving.kubeconfig_path)
            .env("HOME", dir.path())
            .env("CHECKPOINT_DISABLE", "1")
            // OpenTofu prints a warning about a missing file among its output.
            .env_remove("TF_CLI_CONFIG_FILE")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(Duration::from_mins(2), output)
            .await
            .expect("in time")
            .unwrap();
        assert!(
            output.status.success(),
            "terraform {arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    run("init -input=false -no-color").await;
    run("apply -auto-approve -input=false -no-color").await;
    assert_eq!(run("output -raw a").await, "hello");
    let client = embedded.client();
    let state = ok(&client, "GET", &format!("{SECRETS}/tfstate-default-demo"), None).await;
    assert_eq!(state["metadata"]["labels"]["tfstate"], "true");
    let lock = "/apis/coordination.k8s.io/v1/namespaces/default/leases/lock-tfstate-default-demo";
    let lease = ok(&client, "GET", lock, None).await;
    assert!(
        lease["spec"]["holderIdentity"].is_null(),
        "the lock is released: {lease}"
    );
    run("destroy -auto-approve -input=false -no-color").await;
}
