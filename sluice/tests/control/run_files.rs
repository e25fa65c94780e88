//! Files of runs on the machine: they exist as long as their TerraformRun or stack.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use sluice_api::run::TerraformRun;

use crate::environment::{TIMEOUT, TestEnvironment};
use crate::fake_executor::FakeExecutor;
use crate::observe::condition;

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

impl TestEnvironment {
    /// Returns the names of run files with this prefix.
    fn run_files(&self, beginning: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("runs").join("runs")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name.starts_with(beginning)).collect();
        names.sort();
        names
    }

    async fn run_files_gone(&self, beginning: &str) {
        wait_until_empty(|| self.run_files(beginning)).await;
    }

    /// Returns the names of a stack's directories.
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
        wait_until_empty(|| self.stack_files(stack)).await;
    }
}

/// Waits until there are no files.
async fn wait_until_empty(list: impl Fn() -> Vec<String>) {
    let looking = async {
        while !list().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let emptied = tokio::time::timeout(TIMEOUT, looking).await;
    assert!(emptied.is_ok(), "{:?}", list());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_directories_of_a_stack_are_removed_with_it_or_by_a_later_controller() {
    let mut env = TestEnvironment::without_controller().await;
    env.start_with_labels("team=a").await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    let label = |value: &str| json!({ "metadata": { "labels": { "team": value } } });
    let mapped = json!({ "fileMappings": [{ "location": "home", "path": "x", "secretRef": { "name": "s", "key": "k" } }] });
    env.secret("s", &[("k", "v")]).await;
    for name in ["net", "moved", "stays", "late", "holds"] {
        env.stack(name, mapped.clone()).await;
        env.patch(name, label("a")).await;
        env.wait_ready(name, "True TerraformAppliedSucceed").await;
        assert!(
            env.stack_files(name).contains(&format!(".team_{name}.lock")),
            "{name}"
        );
    }
    // Deleted and created again at once: the files of the new stack stay.
    env.delete("net").await;
    env.wait_gone("net").await;
    env.stack_files_gone("net").await;
    env.stack("net", json!({})).await;
    env.patch("net", label("a")).await;
    env.wait_ready("net", "True TerraformPlannedNoChanges").await;
    assert!(!env.stack_files("net").is_empty());
    // Moved out of the scope: it belongs to another controller.
    env.patch("moved", label("b")).await;
    env.stack_files_gone("moved").await;
    // Deleted while no controller is running; one has a state that is stored nowhere else.
    env.stop().await;
    env.wait_until_idle().await;
    let module = env.path("runs").join("work/team_holds");
    std::fs::create_dir_all(&module).unwrap();
    std::fs::write(module.join("errored.tfstate"), "{}").unwrap();
    env.patch("stays", label("b")).await;
    for name in ["late", "holds"] {
        env.patch(name, json!({ "metadata": { "finalizers": null } }))
            .await;
        env.delete(name).await;
        env.wait_gone(name).await;
    }
    env.start_with_labels("team=a").await;
    env.stack_files_gone("late").await;
    assert!(
        !env.stack_files("stays").is_empty(),
        "it exists, whatever controller owns it"
    );
    assert!(module.join("errored.tfstate").exists());
    assert!(!env.stack_files("net").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_run_are_removed_with_its_stack_or_by_a_later_controller() {
    let mut env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    for name in ["net", "app"] {
        env.stack(name, json!({})).await;
        env.wait_ready(name, "True TerraformAppliedSucceed").await;
    }
    let first = env.runs("net").await.remove(0).name_any();
    assert_eq!(
        env.run_files(&format!("team_{first}.")),
        [format!("team_{first}.lock"), format!("team_{first}.log")]
    );
    let other = env.runs("app").await.remove(0).name_any();
    env.stop().await;
    let runs: Api<TerraformRun> = env.api();
    runs.delete(&first, &DeleteParams::default()).await.unwrap();
    assert_eq!(runs.list(&ListParams::default()).await.unwrap().items.len(), 1);
    env.start(4).await;
    env.run_files_gone(&format!("team_{first}.")).await;
    assert_eq!(
        env.run_files(&format!("team_{other}.")).len(),
        2,
        "its run still exists"
    );
    env.delete("app").await;
    env.wait_gone("app").await;
    env.run_files_gone("team_app-").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pruned_runs_are_forgotten_by_their_executor() {
    let mut env = TestEnvironment::without_controller().await;
    let (fake, ended) = FakeExecutor::new(&env.client);
    env.start_with(Arc::new(fake.clone()), ended, 4).await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    for number in 0..25 {
        let token = format!("request {number}");
        env.request("net", &token).await;
        env.wait_for("net", &token, |stack| {
            let status = stack.status.as_ref();
            status.is_some_and(|status| status.last_handled_reconcile_at == token)
        })
        .await;
    }
    env.stop().await; // nothing is removed between the two checks
    let existing: Vec<_> = env.runs("net").await.iter().map(ResourceExt::name_any).collect();
    let forgotten = fake.removed_runs();
    assert!(!forgotten.is_empty(), "{existing:?}");
    assert_eq!(existing.len() + forgotten.len(), 26, "{existing:?} {forgotten:?}");
    assert!(
        forgotten.iter().all(|run| !existing.contains(run)),
        "{existing:?} {forgotten:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_run_past_its_deadline_is_lost_although_its_lock_is_held() {
    let mut env = TestEnvironment::without_controller().await;
    env.executor_settings.run_silence = Duration::from_secs(1);
    let (fake, ended) = FakeExecutor::new(&env.client);
    fake.hang(Timestamp::UNIX_EPOCH);
    env.start_with(Arc::new(fake), ended, 4).await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let history = env.history("net").await;
    assert!(history.contains("Lost RunLost"), "{history}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_living_run_without_heartbeats_is_reported() {
    let mut env = TestEnvironment::without_controller().await;
    env.executor_settings.run_silence = Duration::from_secs(1);
    let (fake, ended) = FakeExecutor::new(&env.client);
    fake.hang(Timestamp::now());
    env.start_with(Arc::new(fake), ended, 4).await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({})).await;
    // A stack with an active run has not observed its generation yet.
    env.wait_for("net", "the silence of the run", |stack| {
        condition(stack, "Ready").starts_with("Unknown Progressing The runner of run")
    })
    .await;
    env.wait_event("net", "Warning RunSilent").await;
    let history = env.history("net").await;
    assert!(history.contains("Applying"), "its lock is held: {history}");
}
