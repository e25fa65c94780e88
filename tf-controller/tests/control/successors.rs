//! A state that no run could write, and the run that finds it: of an object that took the place of a deleted one, or of one whose key
//! was lost.

use crate::world::World;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

const MODULE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

impl World {
    /// A CLI whose applies cannot write the last version of the state, until the file is there whose name is given back.
    fn with_applies_that_cannot_write(&mut self) -> std::path::PathBuf {
        let (folder, mended) = (self.path("cli"), self.path("mended"));
        let real = sluice_harness::cli::terraform().unwrap();
        std::fs::create_dir(&folder).unwrap();
        let program = folder.join(real.file_name().unwrap());
        let script = format!(
            "#!/bin/sh\nif [ \"$1\" = apply ] && ! [ -e {mended} ]; then\n  {real} \"$@\" || exit\n  \
             {real} state pull | sed 's/\"serial\": */\"serial\": 7/' > errored.tfstate\n  exit 1\nfi\nexec {real} \"$@\"\n",
            mended = mended.display(),
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
        mended
    }

    /// The Secrets with states that could not be written.
    async fn unwritten(&self) -> Vec<String> {
        let api: Api<Secret> = self.api();
        let label = ListParams::default().labels("infra.sluice.dev/errored-state");
        let found = api.list(&label).await.unwrap();
        found.iter().map(ResourceExt::name_any).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_could_not_be_written_is_pushed_by_the_successor_and_without_the_key() {
    let mut world = World::without_controller().await;
    let mended = world.with_applies_that_cannot_write();
    world.start(4).await;
    world.commit("a", &[("main.tf", MODULE)]).await;
    let spec = || json!({ "retryInterval": "1h" });
    for name in ["net", "app"] {
        world.stack(name, spec()).await;
        world.ready(name, "False TFExecApplyFailed").await;
    }
    assert_eq!(world.unwritten().await.len(), 2);
    std::fs::write(mended, "").unwrap();
    world.delete("net").await;
    world.gone("net").await;
    world.stack("net", spec()).await;
    let secrets: Api<Secret> = world.api();
    secrets
        .delete("app-sluice-key", &DeleteParams::default())
        .await
        .unwrap();
    world.request("app", "go on").await;
    for name in ["net", "app"] {
        world.ready(name, "True TerraformPlannedNoChanges").await;
        let state: Value = serde_json::from_str(&world.state(name).await).unwrap();
        assert!(state["serial"].to_string().starts_with('7'), "{name}: {state}");
    }
    assert_eq!(world.unwritten().await, Vec::<String>::new());
}
