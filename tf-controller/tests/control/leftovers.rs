//! Files that runs leave on the machine: there as long as their run is on record, and no longer.

use crate::double::Double;
use crate::world::{DEADLINE, World};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::json;
use sluice_api::run::TerraformRun;
use std::{sync::Arc, time::Duration};

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

impl World {
    /// The names of the files of runs that begin so.
    fn run_files(&self, beginning: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("runs").join("runs")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name.starts_with(beginning)).collect();
        names.sort();
        names
    }

    async fn run_files_gone(&self, beginning: &str) {
        let looking = async {
            while !self.run_files(beginning).is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let gone = tokio::time::timeout(DEADLINE, looking).await;
        assert!(gone.is_ok(), "{:?}", self.run_files(beginning));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_run_go_with_its_stack_or_when_a_controller_finds_the_run_gone() {
    let mut world = World::new().await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    for name in ["net", "app"] {
        world.stack(name, json!({})).await;
        world.ready(name, "True TerraformAppliedSucceed").await;
    }
    let first = world.runs("net").await.remove(0).name_any();
    assert_eq!(
        world.run_files(&format!("team_{first}.")),
        [format!("team_{first}.lock"), format!("team_{first}.log")]
    );
    let other = world.runs("app").await.remove(0).name_any();
    world.stop().await;
    let runs: Api<TerraformRun> = world.api();
    runs.delete(&first, &DeleteParams::default()).await.unwrap();
    assert_eq!(runs.list(&ListParams::default()).await.unwrap().items.len(), 1);
    world.start(4).await;
    world.run_files_gone(&format!("team_{first}.")).await;
    assert_eq!(
        world.run_files(&format!("team_{other}.")).len(),
        2,
        "its run is on record"
    );
    world.delete("app").await;
    world.gone("app").await;
    world.run_files_gone("team_app-").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_are_pruned_are_forgotten_by_their_executor() {
    let mut world = World::without_controller().await;
    let (double, ended) = Double::new(&world.client);
    world.start_with(Arc::new(double.clone()), ended, 4).await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("net", json!({})).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    for number in 0..25 {
        let token = format!("look {number}");
        world.request("net", &token).await;
        world
            .until("net", &token, |stack| {
                let status = stack.status.as_ref();
                status.is_some_and(|status| status.last_handled_reconcile_at == token)
            })
            .await;
    }
    world.stop().await; // between the two looks nothing goes
    let there: Vec<_> = world
        .runs("net")
        .await
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    let forgotten = double.forgotten();
    assert!(!forgotten.is_empty(), "{there:?}");
    assert_eq!(there.len() + forgotten.len(), 26, "{there:?} {forgotten:?}");
    assert!(
        forgotten.iter().all(|run| !there.contains(run)),
        "{there:?} {forgotten:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_past_its_deadline_and_says_nothing_is_lost_though_its_lock_is_held() {
    let mut world = World::without_controller().await;
    world.site.run_silence = Duration::from_secs(1);
    let (double, ended) = Double::new(&world.client);
    double.hang();
    world.start_with(Arc::new(double), ended, 4).await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("net", json!({})).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    let history = world.history("net").await;
    assert!(history.contains("Lost RunLost"), "{history}");
}
