//! Exhaustive interruption: in each scenario the controller is killed before and after each write, publication and
//! fetch. Each time, the next controller reaches the same final state as an uninterrupted one, and no status ever names
//! a missing file.

mod kill_switch;
mod scenarios;
mod wrappers;

use std::collections::BTreeSet;
use std::sync::Arc;

use kill_switch::{KillSwitch, Moment};
use scenarios::Scenario;
use sluice_runtime::watch::{Reconciler as _, Requeue};
use wrappers::{KillableApi, KillableOrigin, KillableStorage};

use super::environment::{LIMIT, TestEnvironment};
use crate::git::Mirrors;
use crate::reconcile::{Context, GitRepositories, Network};

/// Maximum number of reconciliations until an object is settled.
const MAX_RECONCILIATIONS: usize = 8;

/// Returns a new controller without any state of an earlier one.
async fn controller(env: &TestEnvironment, mirrors: Arc<Mirrors>, switch: &KillSwitch) -> Context {
    let context = env.context();
    let files = env.storage.path().to_owned();
    Context {
        client: KillableApi::client(env.client.clone(), files, switch.clone()),
        origin: Arc::new(KillableOrigin {
            inner: Network::new(mirrors, env.clock.clone()),
            switch: switch.clone(),
        }),
        storage: Arc::new(KillableStorage {
            inner: context.storage,
            switch: switch.clone(),
        }),
        repositories: env.cached().await,
        ..context
    }
}

/// Reconciles until nothing changes, or the controller is killed.
async fn run_until_settled(env: &TestEnvironment, switch: &KillSwitch) {
    let directory = env.mirrors_directory().join("interrupted");
    let mirrors = Arc::new(open_mirrors(&directory).await);
    let reconciliations = GitRepositories::new(Arc::new(controller(env, mirrors, switch).await));
    for _ in 0..MAX_RECONCILIATIONS {
        let Some(object) = env.objects().get_opt("app").await.unwrap() else {
            return;
        };
        let before = object.metadata.resource_version.clone();
        let reconcile = reconciliations.reconcile(Arc::new(object));
        let next = tokio::select! {
            biased;
            () = switch.killed() => return,
            next = tokio::time::timeout(LIMIT, reconcile) => next.unwrap().unwrap(),
        };
        let after = env.objects().get_opt("app").await.unwrap();
        let unchanged = after.is_some_and(|object| object.metadata.resource_version == before);
        if unchanged && !matches!(next, Requeue::OnChange) {
            return;
        }
    }
}

/// Opens the mirrors; they are locked until the last thread of a killed controller ends.
async fn open_mirrors(directory: &std::path::Path) -> Mirrors {
    let opening = async {
        loop {
            match Mirrors::new(directory) {
                Ok(mirrors) => return mirrors,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(LIMIT, opening)
        .await
        .expect("mirrors in time")
}

/// Returns the final state: the object and its stored files.
async fn outcome(env: &TestEnvironment) -> String {
    let object = match env.objects().get_opt("app").await.unwrap() {
        Some(_) => env.summary("app").await,
        None => "gone".to_owned(),
    };
    let files = std::fs::read_dir(env.storage.path().join("gitrepository/team/app"));
    let files: BTreeSet<_> = files
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_none_or(|extension| extension != "lock"))
        .map(|path| path.file_name().unwrap().to_owned())
        .collect();
    let digest = env.objects().get_opt("app").await.unwrap();
    let digest = digest.and_then(|object| Some(object.status?.artifact?.digest));
    env.masked(&format!("{object}\nfiles {files:?} {digest:?}"))
}

/// Runs a scenario. Returns the steps and the final state.
async fn run(scenario: Scenario, kill_at: Option<(usize, Moment)>) -> (Vec<&'static str>, String) {
    let mut env = TestEnvironment::new().await;
    scenario.begin(&mut env, &KillSwitch::new(None)).await;
    let switch = KillSwitch::new(kill_at);
    run_until_settled(&env, &switch).await;
    let steps = switch.steps();
    let next = KillSwitch::new(None);
    if switch.is_killed() {
        run_until_settled(&env, &next).await;
    }
    let violations = [switch.violations(), next.violations()].concat();
    assert_eq!(
        violations,
        Vec::<String>::new(),
        "{scenario:?} {kill_at:?} {steps:?}"
    );
    (steps, outcome(&env).await)
}

async fn check_every_interruption(scenario: Scenario) {
    let (steps, expected) = run(scenario, None).await;
    assert!(steps.len() >= scenario.min_steps(), "{steps:?}");
    assert!(expected.contains(scenario.expected_outcome()), "{expected}");
    for (number, name) in steps.iter().enumerate() {
        for moment in [Moment::Before, Moment::After] {
            let (created, found) = run(scenario, Some((number, moment))).await;
            assert_eq!(
                created.len(),
                number + 1,
                "{scenario:?} {moment:?} {number} {name}: {created:?}"
            );
            assert_eq!(
                found, expected,
                "{scenario:?}, killed {moment:?} step {number}, {name}"
            );
        }
    }
    println!(
        "{scenario:?}: {} steps, each killed before and after: {steps:?}",
        steps.len()
    );
}

#[tokio::test]
async fn a_first_artifact() {
    check_every_interruption(Scenario::FirstArtifact).await;
}

#[tokio::test]
async fn a_new_revision() {
    check_every_interruption(Scenario::NewRevision).await;
}

#[tokio::test]
async fn changed_ignore_rules() {
    check_every_interruption(Scenario::IgnoreChange).await;
}

#[tokio::test]
async fn changed_includes() {
    check_every_interruption(Scenario::IncludeChange).await;
}

#[tokio::test]
async fn a_failure() {
    check_every_interruption(Scenario::Failure).await;
}

#[tokio::test]
async fn a_recovery() {
    check_every_interruption(Scenario::Recovery).await;
}

#[tokio::test]
async fn a_lost_file() {
    check_every_interruption(Scenario::LostFile).await;
}

#[tokio::test]
async fn a_deletion() {
    check_every_interruption(Scenario::Deletion).await;
}
