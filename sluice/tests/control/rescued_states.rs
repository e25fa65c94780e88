//! Rescued states and the runs that find them: of an object that replaced a deleted one, or of one whose key was lost.

use std::os::unix::fs::PermissionsExt;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::environment::TestEnvironment;

const MODULE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

impl TestEnvironment {
    /// Installs a CLI whose applies cannot write the final state until a file exists; returns the file.
    fn with_failing_state_writes(&mut self) -> std::path::PathBuf {
        let (folder, repaired) = (self.path("cli"), self.path("repaired"));
        let real = sluice_harness::cli::terraform().unwrap();
        std::fs::create_dir(&folder).unwrap();
        let program = folder.join(real.file_name().unwrap());
        let script = format!(
            "#!/bin/sh\nif [ \"$1\" = apply ] && ! [ -e {repaired} ]; then\n  {real} \"$@\" || exit\n  \
             {real} state pull | sed 's/\"serial\": */\"serial\": 7/' > errored.tfstate\n  exit 1\nfi\nexec {real} \"$@\"\n",
            repaired = repaired.display(),
            real = real.display()
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!(
            "{}:{}",
            folder.display(),
            sluice_harness::cli::search_path().unwrap()
        );
        self.environment.insert("PATH".to_owned(), path);
        repaired
    }

    /// Returns the Secrets with rescued states.
    async fn rescued_states(&self) -> Vec<String> {
        let api: Api<Secret> = self.api();
        let label = ListParams::default().labels("infra.sluice.dev/errored-state");
        let found = api.list(&label).await.unwrap();
        found.iter().map(ResourceExt::name_any).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rescued_state_is_pushed_by_the_successor_even_without_the_key() {
    let mut env = TestEnvironment::without_controller().await;
    let repaired = env.with_failing_state_writes();
    env.start(4).await;
    env.commit("a", &[("main.tf", MODULE)]).await;
    let spec = || json!({ "retryInterval": "1h" });
    for name in ["net", "app"] {
        env.stack(name, spec()).await;
        env.wait_ready(name, "False TFExecApplyFailed").await;
    }
    assert_eq!(env.rescued_states().await.len(), 2);
    std::fs::write(repaired, "").unwrap();
    env.delete("net").await;
    env.wait_gone("net").await;
    env.stack("net", spec()).await;
    let secrets: Api<Secret> = env.api();
    secrets
        .delete("app-sluice-key", &DeleteParams::default())
        .await
        .unwrap();
    env.request("app", "go on").await;
    for name in ["net", "app"] {
        env.wait_ready(name, "True TerraformPlannedNoChanges").await;
        let state: Value = serde_json::from_str(&env.state(name).await).unwrap();
        assert!(state["serial"].to_string().starts_with('7'), "{name}: {state}");
    }
    assert_eq!(env.rescued_states().await, Vec::<String>::new());
}
