//! Kills during the scenario, at points that a seed distributes over its events, each followed by a restart on the same data. The
//! scenario ends as without kills, and no plan is applied twice.
//!
//! `SLUICE_SEED=number` repeats the points.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::api::{DynamicObject, ListParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use sluice_harness::directory::TestDirectory;
use sluice_harness::git::Repository;
use sluice_harness::sample::Rng;
use sluice_tests::BoxError;
use sluice_tests::program::{Program, Setup};
use sluice_tests::scenario::{Commit, Scenario, manifests_with_fast_retry};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::environment::{Origin, TestEnvironment, remaining_processes};
use crate::{walkthrough, with_timeout, without_cluster};

/// Number of kills per program.
const KILLS: usize = 5;
/// Approximate number of object changes until the stack is deleted; watches miss some of them during an outage.
const EXPECTED_CHANGES: u64 = 30;

/// Interval for restarting a watch after an outage; changes in between are not counted.
const RESTART_DELAY: Duration = Duration::from_millis(20);

/// Returns distinct points of the scenario in order, as numbers of changes.
fn points(rng: &mut Rng, count: usize) -> Vec<u64> {
    let mut points = BTreeSet::new();
    while points.len() < count {
        points.insert(2 + rng.next_u64() % (EXPECTED_CHANGES - 2));
    }
    points.into_iter().collect()
}

/// Returns five times `true` and five times `false` in random order.
fn kill_order(rng: &mut Rng) -> Vec<bool> {
    let mut kill_order = vec![true; KILLS];
    kill_order.extend([false; KILLS]);
    for last in (1..kill_order.len()).rev() {
        kill_order.swap(last, rng.below(last + 1));
    }
    kill_order
}

/// Asserts that at least nine tenths of the kills happened during the scenario; the others came after its end.
fn assert_during_scenario(during: usize, kills: usize) {
    eprintln!("{during} of {kills} kills during the scenario");
    assert!(
        during * 10 >= kills * 9,
        "{during} of {kills} kills during the scenario"
    );
}

/// Counts the changes of the scenario's objects, each once, even if a restarted watch lists them again.
fn count_changes(scenario: &Scenario) -> watch::Receiver<u64> {
    let (sender, changes) = watch::channel(0);
    let (version_sender, mut versions) = mpsc::unbounded_channel();
    for api in [scenario.sources(), scenario.stacks(), scenario.runs_api()] {
        tokio::spawn(follow(api, version_sender.clone()));
    }
    tokio::spawn(async move {
        let mut versions_seen = HashSet::new();
        while let Some(version) = versions.recv().await {
            if versions_seen.insert(version) {
                sender.send_replace(versions_seen.len() as u64);
            }
        }
    });
    changes
}

/// Waits for this number of changes or the end of the scenario; returns whether the scenario is still running.
async fn wait_for_point(
    point: u64,
    changes: &mut watch::Receiver<u64>,
    finished: &CancellationToken,
) -> bool {
    tokio::select! {
        result = changes.wait_for(|count| *count >= point) => drop(result.unwrap()),
        () = finished.cancelled() => {}
    }
    !finished.is_cancelled()
}

async fn follow(api: Api<DynamicObject>, sender: mpsc::UnboundedSender<(Option<String>, Option<String>)>) {
    let mut objects = watcher(api, watcher::Config::default()).touched_objects().boxed();
    loop {
        match objects.try_next().await {
            // The receiver is closed: the test has ended.
            Ok(Some(object)) => drop(sender.send((object.metadata.uid, object.metadata.resource_version))),
            Ok(None) => return,
            Err(_) => tokio::time::sleep(RESTART_DELAY).await,
        }
    }
}

/// Runs the scenario up to its second apply with all approvals that faults make necessary.
async fn run(scenario: &Scenario, repository: &Repository) -> Result<(), BoxError> {
    let first = format!("main@sha1:{}", repository.head()?);
    scenario.approve_until_applied(&first).await?;
    walkthrough::assert_outputs(scenario, "1.0.0").await?;
    let ids = walkthrough::instance_ids(&scenario.state().await?);
    assert_eq!(ids.len(), 2, "{ids:?}");
    let second = scenario.push(repository, Commit::NewVersion).await?;
    scenario.approve_until_applied(&second).await?;
    walkthrough::assert_outputs(scenario, "1.1.0").await?;
    let ids_after = walkthrough::instance_ids(&scenario.state().await?);
    assert_eq!(ids_after, ids, "instances must be updated in place");
    walkthrough::assert_applied_once(scenario).await
}

/// Describes the runs for a failure message.
async fn describe_runs(scenario: &Scenario) -> String {
    let runs = scenario.runs_api().list(&ListParams::default()).await;
    let runs = runs.map(|list| list.items).unwrap_or_default();
    let line = |run: &DynamicObject| format!("{}: {}", run.name_any(), run.data["status"]);
    runs.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn kills_of_the_controllers_lose_and_repeat_nothing() {
    if without_cluster() {
        return;
    }
    with_timeout(async {
        let origin = Origin::start().await;
        let mut env = TestEnvironment::start().await;
        let scenario = env.scenario().await;
        let mut changes = count_changes(&scenario);
        env.start_controllers();
        scenario
            .create(&manifests_with_fast_retry(&origin.url))
            .await
            .unwrap();
        let mut rng = Rng::from_environment("kills of the controllers");
        let plan = points(&mut rng, 2 * KILLS).into_iter().zip(kill_order(&mut rng));
        let finished = CancellationToken::new();
        let killing = async {
            let mut during = 0;
            for (point, source) in plan {
                during += usize::from(wait_for_point(point, &mut changes, &finished).await);
                let controller = if source {
                    &mut env.source_controller
                } else {
                    &mut env.tf_controller
                };
                controller.kill_and_start().await.unwrap();
            }
            during
        };
        let (during, ended) = tokio::join!(killing, async {
            let ended = run(&scenario, &origin.repository).await;
            finished.cancel();
            ended
        });
        if let Err(error) = ended {
            panic!("{error}\n{}\n{}", describe_runs(&scenario).await, env.logs());
        }
        eprintln!("{} changes with the kills", *changes.borrow());
        assert_during_scenario(during, 2 * KILLS);
        let ended = walkthrough::delete_all(&scenario).await;
        ended.unwrap_or_else(|error| panic!("{error}\n{}", env.logs()));
        for controller in [&mut env.source_controller, &mut env.tf_controller] {
            controller.end().await.unwrap();
        }
        assert_eq!(
            remaining_processes(&env.folder.path().join("work")),
            Vec::<String>::new()
        );
    });
}

#[test]
fn kills_of_sluice_up_lose_and_repeat_nothing() {
    with_timeout(async {
        let origin = Origin::start().await;
        let folder = TestDirectory::create().unwrap();
        let setup = Setup::new(folder.path());
        setup.write(&[]).unwrap();
        let mut program = Program::start(setup.clone()).await.unwrap();
        let scenario = Scenario::new(program.client());
        let mut changes = count_changes(&scenario);
        scenario
            .create(&manifests_with_fast_retry(&origin.url))
            .await
            .unwrap();
        let points = points(&mut Rng::from_environment("kills of sluice up"), KILLS);
        let finished = CancellationToken::new();
        let killing = async {
            let mut during = 0;
            for point in points {
                during += usize::from(wait_for_point(point, &mut changes, &finished).await);
                program = program.kill_and_start().await.unwrap();
            }
            (program, during)
        };
        let ((program, during), ended) = tokio::join!(killing, async {
            let ended = run(&scenario, &origin.repository).await;
            finished.cancel();
            ended
        });
        if let Err(error) = ended {
            panic!("{error}\n{}\n{}", describe_runs(&scenario).await, setup.log());
        }
        eprintln!("{} changes with the kills", *changes.borrow());
        assert_during_scenario(during, KILLS);
        let ended = walkthrough::delete_all(&scenario).await;
        ended.unwrap_or_else(|error| panic!("{error}\n{}", program.log_tail()));
        program.end().await.unwrap();
        assert_eq!(remaining_processes(folder.path()), Vec::<String>::new());
    });
}
