//! Two hundred stacks in one repository: only those run whose inputs changed. A fake executor counts the runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use sluice_api::run::TerraformRun;
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;

use crate::environment::{SOURCE, TIMEOUT, TestEnvironment};
use crate::fake_executor::FakeExecutor;
use crate::observe::condition;

const STACKS: usize = 200;

/// The repository: a folder per stack, ten modules that twenty stacks each call, and a readme.
#[derive(Clone)]
struct Repository {
    stacks: Vec<String>,
    modules: Vec<String>,
    readme: String,
}

impl Repository {
    fn new() -> Self {
        let stack = |number| {
            let module = number % 10;
            format!("module \"it\" {{\n  source = \"../../modules/{module}\"\n}}\n# {number}\n")
        };
        Self {
            stacks: (0..STACKS).map(stack).collect(),
            modules: vec!["resource \"terraform_data\" \"it\" {}\n".to_owned(); 10],
            readme: String::new(),
        }
    }

    async fn publish(&self, env: &TestEnvironment, mark: &str) -> String {
        let stacks = self.stacks.iter().enumerate();
        let stacks = stacks.map(|(number, text)| (format!("stacks/{number}/main.tf"), text.as_str()));
        let modules = self.modules.iter().enumerate();
        let modules = modules.map(|(number, text)| (format!("modules/{number}/main.tf"), text.as_str()));
        let mut files: Vec<_> = stacks.chain(modules).collect();
        files.push(("readme".to_owned(), &self.readme));
        let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        env.commit(mark, &files).await
    }
}

fn name(number: usize) -> String {
    format!("s{number:03}x")
}

/// Returns the numbers of the stacks of these runs.
fn numbers(runs: &[String]) -> BTreeSet<usize> {
    let number = |run: &String| run[1..4].parse().unwrap();
    let stacks: Vec<usize> = runs.iter().map(number).collect();
    let unique: BTreeSet<_> = stacks.iter().copied().collect();
    assert_eq!(unique.len(), stacks.len(), "a stack ran twice: {runs:?}");
    unique
}

/// Returns the stacks whose number ends with this digit.
fn stacks_ending_with(digit: usize) -> BTreeSet<usize> {
    (0..STACKS).filter(|number| number % 10 == digit).collect()
}

/// Waits until all stacks have attempted the revision and are in sync, and no run is active.
async fn wait_until_settled(env: &TestEnvironment, revision: &str) {
    let api: Api<Terraform> = env.api();
    let runs: Api<TerraformRun> = env.api();
    let waiting = async {
        loop {
            let stacks = api.list(&ListParams::default()).await.unwrap().items;
            let open = stacks.iter().filter(|stack| {
                let tried = stack
                    .status
                    .as_ref()
                    .map(|status| status.last_attempted_revision.as_str());
                tried != Some(revision) || !condition(stack, "Ready").starts_with("True")
            });
            if open.count() == 0 {
                let runs = runs.list(&ListParams::default()).await.unwrap().items;
                if runs
                    .iter()
                    .all(|run| run.status.as_ref().is_some_and(|status| status.phase.is_final()))
                {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    if tokio::time::timeout(TIMEOUT, waiting).await.is_err() {
        let stacks = api.list(&ListParams::default()).await.unwrap().items;
        let stand = |stack: &Terraform| format!("{}: {}", stack.name_any(), condition(stack, "Ready"));
        let stacks: Vec<_> = stacks.iter().map(stand).collect();
        let runs = runs.list(&ListParams::default()).await.unwrap().items;
        let phase = |run: &TerraformRun| format!("{} {:?}", run.name_any(), run.status);
        panic!(
            "{revision} never settled: {stacks:#?} {:#?}",
            runs.iter().map(phase).collect::<Vec<_>>()
        );
    }
}

/// Waits for a number of runs, since nothing else shows that all of them have started.
async fn wait_for_runs(env: &TestEnvironment, count: usize) {
    let runs: Api<TerraformRun> = env.api();
    let waiting = async {
        loop {
            let list = runs.list(&ListParams::default()).await.unwrap().items;
            let ended = list
                .iter()
                .filter(|run| run.status.as_ref().is_some_and(|status| status.phase.is_final()));
            if ended.count() >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(
        tokio::time::timeout(TIMEOUT, waiting).await.is_ok(),
        "there were not {count} runs"
    );
}

/// Changes the source except for its artifact.
async fn change_source_conditions(env: &TestEnvironment) {
    let sources: Api<GitRepository> = env.api();
    let noted = json!({ "metadata": { "annotations": { "seen": "by another client" } } });
    let conditions = json!([{ "type": "Ready", "status": "True", "reason": "Succeeded", "message": "again",
        "lastTransitionTime": "2026-01-02T00:00:00Z", "observedGeneration": 1 }]);
    let noted = Patch::Merge(noted);
    sources
        .patch(SOURCE, &PatchParams::default(), &noted)
        .await
        .unwrap();
    let patch = Patch::Merge(json!({ "status": { "conditions": conditions } }));
    sources
        .patch_status(SOURCE, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_hundred_stacks_only_those_with_changed_inputs_run() {
    let mut env = TestEnvironment::without_controller().await;
    let mut repository = Repository::new();
    let first = repository.publish(&env, "a").await;
    for digit in 0..10 {
        env.secret(&format!("login{digit}"), &[("token", "one")]).await;
    }
    for number in 0..STACKS {
        let from = json!([{ "kind": "Secret", "name": format!("login{}", number % 10) }]);
        let spec = json!({ "path": format!("./stacks/{number}"), "varsFrom": from });
        env.stack(&name(number), spec).await;
    }
    let (executor, ended) = FakeExecutor::new(&env.client);
    env.start_with(Arc::new(executor.clone()), ended, 4).await;
    wait_until_settled(&env, &first).await;
    assert_eq!(
        numbers(&executor.started_runs()).len(),
        STACKS,
        "each stack runs once"
    );
    assert!(
        executor.max_concurrent() <= 4,
        "{} runs at once",
        executor.max_concurrent()
    );
    assert_eq!(
        env.artifacts.download_count("a.tar.gz"),
        1,
        "one download for all stacks"
    );

    // A source event without a new artifact, a file that is no input, one stack's own file, a module.
    change_source_conditions(&env).await;
    repository.readme.push('x');
    wait_until_settled(&env, &repository.publish(&env, "b").await).await;
    assert_eq!(executor.started_runs(), Vec::<String>::new());
    repository.stacks[7].push_str("# changed\n");
    wait_until_settled(&env, &repository.publish(&env, "c").await).await;
    assert_eq!(numbers(&executor.started_runs()), BTreeSet::from([7]));
    repository.modules[3].push_str("# changed\n");
    wait_until_settled(&env, &repository.publish(&env, "d").await).await;
    assert_eq!(numbers(&executor.started_runs()), stacks_ending_with(3));

    // Other bytes at the same revision, as after a force push: detected by the watch.
    repository.stacks[9].push_str("# changed\n");
    repository.publish(&env, "d").await;
    wait_for_runs(&env, STACKS + 22).await;
    assert_eq!(numbers(&executor.started_runs()), BTreeSet::from([9]));

    // A Secret with changed metadata, and one with changed content.
    env.change_secret("login5", &[], "now").await;
    env.change_secret("login4", &[("token", "two")], "now").await;
    wait_for_runs(&env, STACKS + 42).await;
    assert_eq!(numbers(&executor.started_runs()), stacks_ending_with(4));

    // A restart.
    env.stop().await;
    let (executor, ended) = FakeExecutor::new(&env.client);
    env.start_with(Arc::new(executor.clone()), ended, 4).await;
    repository.readme.push('x');
    wait_until_settled(&env, &repository.publish(&env, "e").await).await;
    assert_eq!(
        executor.started_runs(),
        Vec::<String>::new(),
        "a new controller reconciles all stacks and runs none"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_controllers_create_one_run_for_a_revision() {
    let mut env = TestEnvironment::without_controller().await;
    let mut doubles = Vec::new();
    for _ in 0..2 {
        let (executor, ended) = FakeExecutor::new(&env.client);
        env.start_with(Arc::new(executor.clone()), ended, 4).await;
        doubles.push(executor);
    }
    let first = env.commit("a", &[("main.tf", "")]).await;
    for number in 0..20 {
        env.stack(&name(number), json!({})).await;
    }
    wait_until_settled(&env, &first).await;
    let second = env.commit("b", &[("main.tf", "# other\n")]).await;
    wait_until_settled(&env, &second).await;
    let runs: Api<TerraformRun> = env.api();
    let runs = runs.list(&ListParams::default()).await.unwrap().items;
    let of_revision = |revision: &str| {
        let names = runs
            .iter()
            .filter(|run| run.spec.source.revision == revision)
            .map(ResourceExt::name_any);
        numbers(&names.collect::<Vec<_>>()).len()
    };
    assert_eq!(
        (of_revision(&first), of_revision(&second), runs.len()),
        (20, 20, 40)
    );
}
