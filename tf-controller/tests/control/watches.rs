//! What calls a stack beside its own spec: what it reads. With real runs, so that the effect is seen in the outputs.

use crate::{looks::condition, world::World};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

const READER: &str = r#"
variable "token" { default = "none" }
output "token" { value = "<${var.token}>" }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_changes_appears_or_goes_runs_its_readers() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", READER)]).await;
    world.secret("login", &[("token", "t1")]).await;
    let reader = |secret: &str, out: &str| {
        json!({ "retryInterval": "1h", "writeOutputsToSecret": { "name": out },
            "varsFrom": [{ "kind": "Secret", "name": secret, "optional": secret == "login" }] })
    };
    world.stack("net", reader("login", "out")).await;
    world.stack("other", reader("later", "later-out")).await;
    world.ready("net", "True TerraformOutputsWritten").await;
    world.ready("other", "False VarsGenerationFailed").await;
    assert_eq!(world.value("out", "token").await.as_deref(), Some("<t1>"));
    // Nothing but the watch can tell: the retry is an hour away.
    world.secret("later", &[("token", "t2")]).await;
    world.ready("other", "True TerraformOutputsWritten").await;

    world.change_secret("login", &[], "equal content").await;
    world
        .change_secret("login", &[("token", "t3")], "other content")
        .await;
    world.run("net", "a second run", |run| finished(run, 2)).await;
    assert_eq!(world.value("out", "token").await.as_deref(), Some("<t3>"));
    let secrets: Api<Secret> = world.api();
    secrets.delete("login", &DeleteParams::default()).await.unwrap();
    world.run("net", "a third run", |run| finished(run, 3)).await;
    assert_eq!(world.value("out", "token").await.as_deref(), Some("<none>"));
    assert_eq!(world.runs("net").await.len(), 3, "{}", world.history("net").await);
    assert_eq!(
        world.runs("other").await.len(),
        1,
        "{}",
        world.history("other").await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_and_the_bytes_of_an_artifact_call_too() {
    let world = World::new().await;
    let revision = world.commit("a", &[("main.tf", READER)]).await;
    let configs: Api<ConfigMap> = world.api();
    let config = |token: &str| json!({ "metadata": { "name": "settings" }, "data": { "token": token } });
    configs
        .create(
            &PostParams::default(),
            &serde_json::from_value(config("t1")).unwrap(),
        )
        .await
        .unwrap();
    let from = json!([{ "kind": "ConfigMap", "name": "settings" }]);
    world
        .stack(
            "net",
            json!({ "varsFrom": from, "writeOutputsToSecret": { "name": "out" } }),
        )
        .await;
    world.ready("net", "True TerraformOutputsWritten").await;
    configs
        .patch("settings", &PatchParams::default(), &Patch::Merge(config("t2")))
        .await
        .unwrap();
    world.run("net", "a second run", |run| finished(run, 2)).await;
    assert_eq!(world.value("out", "token").await.as_deref(), Some("<t2>"));
    let again = world.commit("a", &[("main.tf", &READER.replace('<', "["))]).await;
    assert_eq!(again, revision);
    world.run("net", "a third run", |run| finished(run, 3)).await;
    assert_eq!(world.value("out", "token").await.as_deref(), Some("[t2>"));
    let ready = world.ready("net", "True TerraformOutputsWritten").await;
    assert!(condition(&ready, "Ready").contains(&revision));
}

/// The run of this number has ended well.
fn finished(run: &sluice_api::run::TerraformRun, number: u64) -> bool {
    crate::looks::number(run) == number
        && run
            .status
            .as_ref()
            .is_some_and(|status| status.phase.as_str() == "Succeeded")
}
