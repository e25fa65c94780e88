//! Kills in the middle of the story: at points that a seed spreads over what happens, each followed by a start on what
//! was left. The story ends as without them, and nothing is applied twice.
//!
//! `SLUICE_SEED=number` tells it with other points.

use crate::{
    telling, within_deadline, without_cluster,
    world::{Origin, World, leftovers},
};
use futures::{StreamExt, TryStreamExt};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams},
    runtime::{WatchStreamExt, watcher},
};
use sluice_harness::{git::Repository, sample::Numbers};
use sluice_tests::{
    Failed,
    program::{Program, Setup},
    story::{Commit, Story, impatient_manifests},
};
use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Kills of each program.
const KILLS: usize = 5;
/// The story changes its objects about this many times until the stack is deleted; fewer are seen where a watch was
/// away for some of them.
const CHANGES: u64 = 30;

/// A watch begins again so soon after its API went away: what happens meanwhile is not counted.
const SOON: Duration = Duration::from_millis(20);

/// Distinct points of the story, in order: after how many changes.
fn points(numbers: &mut Numbers, count: usize) -> Vec<u64> {
    let mut points = BTreeSet::new();
    while points.len() < count {
        points.insert(2 + numbers.next_number() % (CHANGES - 2));
    }
    points.into_iter().collect()
}

/// `true` five times and `false` five times, in any order.
fn victims(numbers: &mut Numbers) -> Vec<bool> {
    let mut victims = vec![true; KILLS];
    victims.extend([false; KILLS]);
    for last in (1..victims.len()).rev() {
        victims.swap(last, numbers.below(last + 1));
    }
    victims
}

/// At least nine tenths of the kills fell inside of the story; the others came when it had been told.
fn assert_inside(inside: usize, kills: usize) {
    eprintln!("{inside} of {kills} kills fell inside of the story");
    assert!(inside * 10 >= kills * 9, "{inside} of {kills} kills fell inside");
}

/// Counts the changes of the story's objects, each once, also when the API comes back and lists them again.
fn count_changes(story: &Story) -> watch::Receiver<u64> {
    let (sender, changes) = watch::channel(0);
    let (seen, mut versions) = mpsc::unbounded_channel();
    for api in [story.sources(), story.stacks(), story.runs_api()] {
        tokio::spawn(follow(api, seen.clone()));
    }
    tokio::spawn(async move {
        let mut known = HashSet::new();
        while let Some(version) = versions.recv().await {
            if known.insert(version) {
                sender.send_replace(known.len() as u64);
            }
        }
    });
    changes
}

/// Waits until so many changes were seen, and says whether that was while the story was told; what is left when it has been
/// told happens then.
async fn reach(point: u64, changes: &mut watch::Receiver<u64>, told: &CancellationToken) -> bool {
    tokio::select! {
        seen = changes.wait_for(|count| *count >= point) => drop(seen.unwrap()),
        () = told.cancelled() => {}
    }
    !told.is_cancelled()
}

async fn follow(api: Api<DynamicObject>, seen: mpsc::UnboundedSender<(Option<String>, Option<String>)>) {
    let mut objects = watcher(api, watcher::Config::default()).touched_objects().boxed();
    loop {
        match objects.try_next().await {
            // Nobody counts any more: the test has ended.
            Ok(Some(object)) => drop(seen.send((object.metadata.uid, object.metadata.resource_version))),
            Ok(None) => return,
            Err(_) => tokio::time::sleep(SOON).await,
        }
    }
}

/// The story up to its second apply, and the end, with whatever approvals the faults make necessary.
async fn tell(story: &Story, repository: &Repository) -> Result<(), Failed> {
    let first = format!("main@sha1:{}", repository.head()?);
    story.see_through(&first).await?;
    telling::assert_outputs(story, "1.0.0").await?;
    let ids = telling::instance_ids(&story.state().await?);
    assert_eq!(ids.len(), 2, "{ids:?}");
    let second = story.push(repository, Commit::NewVersion).await?;
    story.see_through(&second).await?;
    telling::assert_outputs(story, "1.1.0").await?;
    let again = telling::instance_ids(&story.state().await?);
    assert_eq!(again, ids, "the same instances, changed in place");
    telling::assert_applied_once(story).await
}

/// The runs as they are, for whoever looks for the fault.
async fn runs(story: &Story) -> String {
    let runs = story.runs_api().list(&ListParams::default()).await;
    let runs = runs.map(|list| list.items).unwrap_or_default();
    let line = |run: &DynamicObject| format!("{}: {}", run.name_any(), run.data["status"]);
    runs.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn kills_of_the_controllers_lose_nothing_and_repeat_nothing() {
    if without_cluster() {
        return;
    }
    within_deadline(async {
        let origin = Origin::start().await;
        let mut world = World::start().await;
        let story = world.story().await;
        let mut changes = count_changes(&story);
        world.start_controllers();
        story.make(&impatient_manifests(&origin.url)).await.unwrap();
        let mut numbers = Numbers::of_today("kills of the controllers");
        let plan = points(&mut numbers, 2 * KILLS)
            .into_iter()
            .zip(victims(&mut numbers));
        let told = CancellationToken::new();
        let killing = async {
            let mut inside = 0;
            for (point, source) in plan {
                inside += usize::from(reach(point, &mut changes, &told).await);
                let victim = if source {
                    &mut world.sources
                } else {
                    &mut world.stacks
                };
                victim.kill_and_start().await.unwrap();
            }
            inside
        };
        let (inside, ended) = tokio::join!(killing, async {
            let ended = tell(&story, &origin.repository).await;
            told.cancel();
            ended
        });
        if let Err(error) = ended {
            panic!("{error}\n{}\n{}", runs(&story).await, world.logs());
        }
        eprintln!("{} changes with the kills", *changes.borrow());
        assert_inside(inside, 2 * KILLS);
        let ended = telling::end(&story).await;
        ended.unwrap_or_else(|error| panic!("{error}\n{}", world.logs()));
        for controller in [&mut world.sources, &mut world.stacks] {
            controller.end().await.unwrap();
        }
        assert_eq!(leftovers(&world.folder.path().join("work")), Vec::<String>::new());
    });
}

#[test]
fn kills_of_sluice_up_lose_nothing_and_repeat_nothing() {
    within_deadline(async {
        let origin = Origin::start().await;
        let folder = tempfile::tempdir().unwrap();
        let setup = Setup::new(folder.path());
        setup.write(&[]).unwrap();
        let mut program = Program::start(setup.clone()).await.unwrap();
        let story = Story::new(program.client());
        let mut changes = count_changes(&story);
        story.make(&impatient_manifests(&origin.url)).await.unwrap();
        let points = points(&mut Numbers::of_today("kills of sluice up"), KILLS);
        let told = CancellationToken::new();
        let killing = async {
            let mut inside = 0;
            for point in points {
                inside += usize::from(reach(point, &mut changes, &told).await);
                program = program.kill_and_start().await.unwrap();
            }
            (program, inside)
        };
        let ((program, inside), ended) = tokio::join!(killing, async {
            let ended = tell(&story, &origin.repository).await;
            told.cancel();
            ended
        });
        if let Err(error) = ended {
            panic!("{error}\n{}\n{}", runs(&story).await, setup.log());
        }
        eprintln!("{} changes with the kills", *changes.borrow());
        assert_inside(inside, KILLS);
        let ended = telling::end(&story).await;
        ended.unwrap_or_else(|error| panic!("{error}\n{}", program.log_tail()));
        program.end().await.unwrap();
        assert_eq!(leftovers(folder.path()), Vec::<String>::new());
    });
}
