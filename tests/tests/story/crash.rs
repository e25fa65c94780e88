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
    Api,
    api::DynamicObject,
    runtime::{WatchStreamExt, watcher},
};
use sluice_harness::git::Repository;
use sluice_tests::{
    program::{Program, Setup},
    story::{Commit, Story, impatient_manifests},
};
use std::collections::{BTreeSet, HashSet};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Kills of each program.
const KILLS: usize = 5;
/// The story changes its objects about this many times until the stack is deleted; fewer are seen where a watch was
/// away for some of them.
const CHANGES: u64 = 30;

/// Numbers from a seed (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn from_environment() -> Self {
        let seed = std::env::var("SLUICE_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or(3);
        eprintln!("SLUICE_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }

    /// Distinct points of the story, in order: after how many changes.
    fn points(&mut self, count: usize) -> Vec<u64> {
        let mut points = BTreeSet::new();
        while points.len() < count {
            points.insert(2 + self.below(CHANGES - 2));
        }
        points.into_iter().collect()
    }

    /// `true` five times and `false` five times, in any order.
    fn victims(&mut self) -> Vec<bool> {
        let mut victims = vec![true; KILLS];
        victims.extend([false; KILLS]);
        for last in (1..victims.len()).rev() {
            let other = usize::try_from(self.below(last as u64 + 1)).unwrap();
            victims.swap(last, other);
        }
        victims
    }
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

/// Waits until so many changes were seen; what is left when the story has been told happens then.
async fn reach(point: u64, changes: &mut watch::Receiver<u64>, told: &CancellationToken) {
    tokio::select! {
        seen = changes.wait_for(|count| *count >= point) => drop(seen.unwrap()),
        () = told.cancelled() => {}
    }
}

async fn follow(api: Api<DynamicObject>, seen: mpsc::UnboundedSender<(Option<String>, Option<String>)>) {
    let mut objects = watcher(api, watcher::Config::default())
        .default_backoff()
        .touched_objects()
        .boxed();
    loop {
        if let Ok(Some(object)) = objects.try_next().await {
            // Nobody counts any more: the test has ended.
            drop(seen.send((object.metadata.uid, object.metadata.resource_version)));
        }
    }
}

/// The story up to its second apply, and the end, with whatever approvals the faults make necessary.
async fn tell(story: &Story, repository: &Repository) {
    let first = format!("main@sha1:{}", repository.head().unwrap());
    story.see_through(&first).await.unwrap();
    telling::assert_outputs(story, "1.0.0").await.unwrap();
    let ids = telling::instance_ids(&story.state().await.unwrap());
    assert_eq!(ids.len(), 2, "{ids:?}");
    let second = story.push(repository, Commit::NewVersion).await.unwrap();
    story.see_through(&second).await.unwrap();
    telling::assert_outputs(story, "1.1.0").await.unwrap();
    let again = telling::instance_ids(&story.state().await.unwrap());
    assert_eq!(again, ids, "the same instances, changed in place");
    telling::assert_applied_once(story).await.unwrap();
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
        let mut numbers = Numbers::from_environment();
        let plan = numbers.points(2 * KILLS).into_iter().zip(numbers.victims());
        let told = CancellationToken::new();
        let killing = async {
            for (point, source) in plan {
                reach(point, &mut changes, &told).await;
                let victim = if source {
                    &mut world.sources
                } else {
                    &mut world.stacks
                };
                victim.kill_and_start().await.unwrap();
            }
        };
        tokio::join!(killing, async {
            tell(&story, &origin.repository).await;
            told.cancel();
        });
        eprintln!("{} changes with the kills", *changes.borrow());
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
        let points = Numbers::from_environment().points(KILLS);
        let told = CancellationToken::new();
        let killing = async {
            for point in points {
                reach(point, &mut changes, &told).await;
                program = program.kill_and_start().await.unwrap();
            }
            program
        };
        let (program, ()) = tokio::join!(killing, async {
            tell(&story, &origin.repository).await;
            told.cancel();
        });
        eprintln!("{} changes with the kills", *changes.borrow());
        let ended = telling::end(&story).await;
        ended.unwrap_or_else(|error| panic!("{error}\n{}", program.log_tail()));
        program.end().await.unwrap();
        assert_eq!(leftovers(folder.path()), Vec::<String>::new());
    });
}
