//! Exhaustive interruption: in every story the controller is killed before and after each write, publication and fetch;
//! whatever step it was, the next controller brings the object to the state that an undisturbed one ends in, and no
//! status ever named a file that was not there.

mod effects;
mod life;
mod stories;

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_runtime::watch::{Next, Reconciler as _};

use super::world::{LIMIT, World};
use crate::git::Mirrors;
use crate::reconcile::{Context, GitRepositories, Network};
use effects::{MortalApi, MortalOrigin, MortalStorage};
use life::{Life, Moment};
use stories::Story;

/// Passes after which an object has to be at rest.
const PASSES: usize = 8;

/// A controller of its own: nothing of an earlier one's memory is left.
async fn controller(world: &World, mirrors: Arc<Mirrors>, life: &Life) -> Context {
    let context = world.context();
    let files = world.storage.path().to_owned();
    Context {
        client: MortalApi::client(world.client.clone(), files, life.clone()),
        origin: Arc::new(MortalOrigin {
            inner: Network::new(mirrors, world.clock.clone()),
            life: life.clone(),
        }),
        storage: Arc::new(MortalStorage {
            inner: context.storage,
            life: life.clone(),
        }),
        repositories: world.seen().await,
        ..context
    }
}

/// Passes until nothing changes any more, or the controller dies.
async fn live(world: &World, life: &Life) {
    let directory = world.mirrors_directory().join("interrupted");
    let mirrors = Arc::new(opened(&directory).await);
    let passes = GitRepositories::new(Arc::new(controller(world, mirrors, life).await));
    for _ in 0..PASSES {
        let Some(object) = world.objects().get_opt("app").await.unwrap() else {
            return;
        };
        let before = object.metadata.resource_version.clone();
        let pass = passes.reconcile(Arc::new(object));
        let next = tokio::select! {
            biased;
            () = life.died() => return,
            next = tokio::time::timeout(LIMIT, pass) => next.unwrap().unwrap(),
        };
        let after = world.objects().get_opt("app").await.unwrap();
        let unchanged = after.is_some_and(|object| object.metadata.resource_version == before);
        if unchanged && !matches!(next, Next::OnChange) {
            return;
        }
    }
}

/// The mirrors of a controller that died are free once its last thread has ended.
async fn opened(directory: &std::path::Path) -> Mirrors {
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

/// What the world has come to: the object, and the files that are kept for it.
async fn outcome(world: &World) -> String {
    let object = match world.objects().get_opt("app").await.unwrap() {
        Some(_) => world.shown("app").await,
        None => "gone".to_owned(),
    };
    let kept = std::fs::read_dir(world.storage.path().join("gitrepository/team/app"));
    let kept: BTreeSet<_> = kept
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_none_or(|extension| extension != "lock"))
        .map(|path| path.file_name().unwrap().to_owned())
        .collect();
    let digest = world.objects().get_opt("app").await.unwrap();
    let digest = digest.and_then(|object| Some(object.status?.artifact?.digest));
    world.masked(&format!("{object}\nfiles {kept:?} {digest:?}"))
}

/// One run of a story. Gives the steps that were made, and what came of it.
async fn run(story: Story, death: Option<(usize, Moment)>) -> (Vec<&'static str>, String) {
    let mut world = World::new().await;
    story.begin(&mut world, &Life::until(None)).await;
    let life = Life::until(death);
    live(&world, &life).await;
    let steps = life.steps();
    let next = Life::until(None);
    if life.is_dead() {
        live(&world, &next).await;
    }
    let violations = [life.violations(), next.violations()].concat();
    assert_eq!(violations, Vec::<String>::new(), "{story:?} {death:?} {steps:?}");
    (steps, outcome(&world).await)
}

async fn every_interruption_of(story: Story) {
    let (steps, wanted) = run(story, None).await;
    assert!(steps.len() >= story.fewest_steps(), "{steps:?}");
    assert!(wanted.contains(story.ends_with()), "{wanted}");
    for (number, name) in steps.iter().enumerate() {
        for moment in [Moment::Before, Moment::After] {
            let (made, found) = run(story, Some((number, moment))).await;
            assert_eq!(
                made.len(),
                number + 1,
                "{story:?} {moment:?} {number} {name}: {made:?}"
            );
            assert_eq!(
                found, wanted,
                "{story:?}, killed {moment:?} step {number}, {name}"
            );
        }
    }
    println!(
        "{story:?}: {} steps, each killed before and after: {steps:?}",
        steps.len()
    );
}

#[tokio::test]
async fn a_first_artifact() {
    every_interruption_of(Story::FirstArtifact).await;
}

#[tokio::test]
async fn a_new_revision() {
    every_interruption_of(Story::NewRevision).await;
}

#[tokio::test]
async fn another_ignore() {
    every_interruption_of(Story::IgnoreChange).await;
}

#[tokio::test]
async fn another_include() {
    every_interruption_of(Story::IncludeChange).await;
}

#[tokio::test]
async fn a_failure() {
    every_interruption_of(Story::Failure).await;
}

#[tokio::test]
async fn a_recovery() {
    every_interruption_of(Story::Recovery).await;
}

#[tokio::test]
async fn a_lost_file() {
    every_interruption_of(Story::LostFile).await;
}

#[tokio::test]
async fn a_deletion() {
    every_interruption_of(Story::Deletion).await;
}
