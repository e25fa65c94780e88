//! Triggers other than a stack's own spec: changes of its inputs, verified by the outputs of real runs.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::environment::TestEnvironment;
use crate::observe::condition;

const READER: &str = r#"
variable "token" { default = "none" }
output "token" { value = "<${var.token}>" }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_created_or_deleted_secret_triggers_its_readers() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", READER)]).await;
    env.secret("login", &[("token", "t1")]).await;
    let reader = |secret: &str, out: &str| {
        json!({ "retryInterval": "1h", "writeOutputsToSecret": { "name": out },
            "varsFrom": [{ "kind": "Secret", "name": secret, "optional": secret == "login" }] })
    };
    env.stack("net", reader("login", "out")).await;
    env.stack("other", reader("later", "later-out")).await;
    env.wait_ready("net", "True TerraformOutputsWritten").await;
    env.wait_ready("other", "False VarsGenerationFailed").await;
    assert_eq!(env.value("out", "token").await.as_deref(), Some("<t1>"));
    // Only the watch can trigger it: the retry interval is an hour.
    env.secret("later", &[("token", "t2")]).await;
    env.wait_ready("other", "True TerraformOutputsWritten").await;

    env.change_secret("login", &[], "equal content").await;
    env.change_secret("login", &[("token", "t3")], "other content")
        .await;
    env.wait_run("net", "a second run", |run| is_finished(run, 2))
        .await;
    assert_eq!(env.value("out", "token").await.as_deref(), Some("<t3>"));
    let secrets: Api<Secret> = env.api();
    secrets.delete("login", &DeleteParams::default()).await.unwrap();
    env.wait_run("net", "a third run", |run| is_finished(run, 3))
        .await;
    assert_eq!(env.value("out", "token").await.as_deref(), Some("<none>"));
    assert_eq!(env.runs("net").await.len(), 3, "{}", env.history("net").await);
    assert_eq!(env.runs("other").await.len(), 1, "{}", env.history("other").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_and_the_bytes_of_an_artifact_trigger_runs_too() {
    let env = TestEnvironment::new().await;
    let revision = env.commit("a", &[("main.tf", READER)]).await;
    let configs: Api<ConfigMap> = env.api();
    let config = |token: &str| json!({ "metadata": { "name": "settings" }, "data": { "token": token } });
    configs
        .create(
            &PostParams::default(),
            &serde_json::from_value(config("t1")).unwrap(),
        )
        .await
        .unwrap();
    let from = json!([{ "kind": "ConfigMap", "name": "settings" }]);
    env.stack(
        "net",
        json!({ "varsFrom": from, "writeOutputsToSecret": { "name": "out" } }),
    )
    .await;
    env.wait_ready("net", "True TerraformOutputsWritten").await;
    configs
        .patch("settings", &PatchParams::default(), &Patch::Merge(config("t2")))
        .await
        .unwrap();
    env.wait_run("net", "a second run", |run| is_finished(run, 2))
        .await;
    assert_eq!(env.value("out", "token").await.as_deref(), Some("<t2>"));
    let again = env.commit("a", &[("main.tf", &READER.replace('<', "["))]).await;
    assert_eq!(again, revision);
    env.wait_run("net", "a third run", |run| is_finished(run, 3))
        .await;
    assert_eq!(env.value("out", "token").await.as_deref(), Some("[t2>"));
    let ready = env.wait_ready("net", "True TerraformOutputsWritten").await;
    assert!(condition(&ready, "Ready").contains(&revision));
}

/// Whether the run with this number has succeeded.
fn is_finished(run: &sluice_api::run::TerraformRun, number: u64) -> bool {
    crate::observe::number(run) == number
        && run
            .status
            .as_ref()
            .is_some_and(|status| status.phase.as_str() == "Succeeded")
}
