//! Two hundred stacks in one repository: exactly those run that read what changed. Runs are counted by a double; what a
//! real run does is no question here.

use crate::{
    double::Double,
    looks::condition,
    world::{DEADLINE, SOURCE, World},
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use sluice_api::{run::TerraformRun, source::GitRepository, terraform::Terraform};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

const STACKS: usize = 200;

/// The repository: a directory for each stack, ten modules that twenty stacks each call, and a readme.
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

    async fn publish(&self, world: &World, mark: &str) -> String {
        let stacks = self.stacks.iter().enumerate();
        let stacks = stacks.map(|(number, text)| (format!("stacks/{number}/main.tf"), text.as_str()));
        let modules = self.modules.iter().enumerate();
        let modules = modules.map(|(number, text)| (format!("modules/{number}/main.tf"), text.as_str()));
        let mut files: Vec<_> = stacks.chain(modules).collect();
        files.push(("readme".to_owned(), &self.readme));
        let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        world.commit(mark, &files).await
    }
}

fn name(number: usize) -> String {
    format!("s{number:03}x")
}

/// The stacks that runs of these names belong to, by number.
fn numbers(runs: &[String]) -> BTreeSet<usize> {
    let number = |run: &String| run[1..4].parse().unwrap();
    let stacks: Vec<usize> = runs.iter().map(number).collect();
    let unique: BTreeSet<_> = stacks.iter().copied().collect();
    assert_eq!(unique.len(), stacks.len(), "a stack ran twice: {runs:?}");
    unique
}

/// The stacks whose number ends in this digit.
fn ending(digit: usize) -> BTreeSet<usize> {
    (0..STACKS).filter(|number| number % 10 == digit).collect()
}

/// Waits until all stacks have tried the revision and are as wanted, and no run is in progress.
async fn settled(world: &World, revision: &str) {
    let api: Api<Terraform> = world.api();
    let runs: Api<TerraformRun> = world.api();
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
    if tokio::time::timeout(DEADLINE, waiting).await.is_err() {
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

/// Waits for a run count, since nothing else tells that all of them have begun.
async fn all_runs(world: &World, count: usize) {
    let runs: Api<TerraformRun> = world.api();
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
        tokio::time::timeout(DEADLINE, waiting).await.is_ok(),
        "there were never {count} runs"
    );
}

/// The source changes in all but its artifact.
async fn touch_source(world: &World) {
    let sources: Api<GitRepository> = world.api();
    let noted = json!({ "metadata": { "annotations": { "seen": "by somebody" } } });
    let conditions = json!([{ "type": "Ready", "status": "True", "reason": "Succeeded", "message": "again",
        "lastTransitionTime": "2026-01-02T00:00:00Z", "observedGeneration": 1 }]);
    let noted = Patch::Merge(noted);
    sources
        .patch(SOURCE, &PatchParams::default(), &noted)
        .await
        .unwrap();
    let told = Patch::Merge(json!({ "status": { "conditions": conditions } }));
    sources
        .patch_status(SOURCE, &PatchParams::default(), &told)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_hundred_stacks_exactly_those_run_that_read_what_changed() {
    let mut world = World::without_controller().await;
    let mut repository = Repository::new();
    let first = repository.publish(&world, "a").await;
    for digit in 0..10 {
        world.secret(&format!("login{digit}"), &[("token", "one")]).await;
    }
    for number in 0..STACKS {
        let from = json!([{ "kind": "Secret", "name": format!("login{}", number % 10) }]);
        let spec = json!({ "path": format!("./stacks/{number}"), "varsFrom": from });
        world.stack(&name(number), spec).await;
    }
    let (double, ended) = Double::new(&world.client);
    world.start_with(Arc::new(double.clone()), ended, 4).await;
    settled(&world, &first).await;
    assert_eq!(numbers(&double.started()).len(), STACKS, "each stack runs once");
    assert!(
        double.most_at_once() <= 4,
        "{} runs at once",
        double.most_at_once()
    );
    assert_eq!(
        world.artifacts.times_served("a.tar.gz"),
        1,
        "one download for all stacks"
    );

    // An event of the source without a new artifact, a file that nobody reads, one stack's own file, a module.
    touch_source(&world).await;
    repository.readme.push('x');
    settled(&world, &repository.publish(&world, "b").await).await;
    assert_eq!(double.started(), Vec::<String>::new());
    repository.stacks[7].push_str("# changed\n");
    settled(&world, &repository.publish(&world, "c").await).await;
    assert_eq!(numbers(&double.started()), BTreeSet::from([7]));
    repository.modules[3].push_str("# changed\n");
    settled(&world, &repository.publish(&world, "d").await).await;
    assert_eq!(numbers(&double.started()), ending(3));

    // Other bytes at the same revision, as after a force push of the same name: noticed without waiting.
    repository.stacks[9].push_str("# changed\n");
    repository.publish(&world, "d").await;
    all_runs(&world, STACKS + 22).await;
    assert_eq!(numbers(&double.started()), BTreeSet::from([9]));

    // A Secret that is touched, and one whose content changes.
    world.change_secret("login5", &[], "now").await;
    world.change_secret("login4", &[("token", "two")], "now").await;
    all_runs(&world, STACKS + 42).await;
    assert_eq!(numbers(&double.started()), ending(4));

    // A restart.
    world.stop().await;
    let (double, ended) = Double::new(&world.client);
    world.start_with(Arc::new(double.clone()), ended, 4).await;
    repository.readme.push('x');
    settled(&world, &repository.publish(&world, "e").await).await;
    assert_eq!(
        double.started(),
        Vec::<String>::new(),
        "a new controller looks at all stacks and runs none"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_controllers_make_one_run_of_a_revision() {
    let mut world = World::without_controller().await;
    let mut doubles = Vec::new();
    for _ in 0..2 {
        let (double, ended) = Double::new(&world.client);
        world.start_with(Arc::new(double.clone()), ended, 4).await;
        doubles.push(double);
    }
    let first = world.commit("a", &[("main.tf", "")]).await;
    for number in 0..20 {
        world.stack(&name(number), json!({})).await;
    }
    settled(&world, &first).await;
    let second = world.commit("b", &[("main.tf", "# other\n")]).await;
    settled(&world, &second).await;
    let runs: Api<TerraformRun> = world.api();
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
