//! Files that runs leave on the machine: there as long as their run is on record, or their stack is there, and no longer.

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
        gone(|| self.run_files(beginning)).await;
    }

    /// The names of what there is of the directories of a stack.
    fn stack_files(&self, stack: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("runs").join("work")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names
            .filter(|name| name.trim_start_matches('.').starts_with(&format!("team_{stack}")))
            .collect();
        names.sort();
        names
    }

    async fn stack_files_gone(&self, stack: &str) {
        gone(|| self.stack_files(stack)).await;
    }
}

/// Waits until there is nothing more.
async fn gone(look: impl Fn() -> Vec<String>) {
    let looking = async {
        while !look().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let gone = tokio::time::timeout(DEADLINE, looking).await;
    assert!(gone.is_ok(), "{:?}", look());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_directories_of_a_stack_go_with_it_or_when_a_controller_finds_it_gone() {
    let mut world = World::without_controller().await;
    world.start_labelled("team=a").await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    let label = |value: &str| json!({ "metadata": { "labels": { "team": value } } });
    let mapped = json!({ "fileMappings": [{ "location": "home", "path": "x", "secretRef": { "name": "s", "key": "k" } }] });
    world.secret("s", &[("k", "v")]).await;
    for name in ["net", "moved", "stays", "late", "holds"] {
        world.stack(name, mapped.clone()).await;
        world.patch(name, label("a")).await;
        world.ready(name, "True TerraformAppliedSucceed").await;
        assert!(
            world.stack_files(name).contains(&format!(".team_{name}.lock")),
            "{name}"
        );
    }
    // Deleted, and made again at once: what the new one has stays.
    world.delete("net").await;
    world.gone("net").await;
    world.stack_files_gone("net").await;
    world.stack("net", json!({})).await;
    world.patch("net", label("a")).await;
    world.ready("net", "True TerraformPlannedNoChanges").await;
    assert!(!world.stack_files("net").is_empty());
    // Moved out of the scope: it is another controller's.
    world.patch("moved", label("b")).await;
    world.stack_files_gone("moved").await;
    // Gone while no controller watches, and one with a state that is nowhere else.
    world.stop().await;
    world.at_rest().await;
    let module = world.path("runs").join("work/team_holds");
    std::fs::create_dir_all(&module).unwrap();
    std::fs::write(module.join("errored.tfstate"), "{}").unwrap();
    world.patch("stays", label("b")).await;
    for name in ["late", "holds"] {
        world
            .patch(name, json!({ "metadata": { "finalizers": null } }))
            .await;
        world.delete(name).await;
        world.gone(name).await;
    }
    world.start_labelled("team=a").await;
    world.stack_files_gone("late").await;
    assert!(
        !world.stack_files("stays").is_empty(),
        "it is there, whosever it is"
    );
    assert!(module.join("errored.tfstate").exists());
    assert!(!world.stack_files("net").is_empty());
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
