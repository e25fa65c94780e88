//! The API server is away for half a minute in the middle of the story.

use crate::{
    telling, within_deadline, without_cluster,
    world::{Origin, World},
};
use sluice_tests::story::{Commit, impatient_manifests};
use std::time::Duration;

/// How long it is away.
const AWAY: Duration = Duration::from_secs(30);

#[test]
fn an_api_server_that_is_away_delays_the_story_and_changes_nothing_else() {
    if without_cluster() {
        return;
    }
    within_deadline(async {
        let origin = Origin::start().await;
        let mut world = World::start().await;
        world.start_controllers();
        let story = world.story().await;
        story.make(&impatient_manifests(&origin.url)).await.unwrap();
        let one = story.pending_plan(None).await.unwrap();

        // Half of the time it does not answer, half of the time nothing listens; a commit arrives meanwhile.
        story.approve(&one).await.unwrap();
        world.plane.pause_api().unwrap();
        let second = Commit::NewVersion.make(&origin.repository).unwrap();
        tokio::time::sleep(AWAY / 2).await;
        world.plane.kill_api();
        tokio::time::sleep(AWAY / 2).await;
        world.plane.start_api().await.unwrap();

        let revision = format!("main@sha1:{second}");
        let seen = story.see_through(&revision).await;
        seen.unwrap_or_else(|error| panic!("{error}\n{}", world.logs()));
        telling::assert_outputs(&story, "1.1.0").await.unwrap();
        telling::assert_applied_once(&story).await.unwrap();
        let ended = telling::end(&story).await;
        ended.unwrap_or_else(|error| panic!("{error}\n{}", world.logs()));
        for controller in [&mut world.sources, &mut world.stacks] {
            controller.end().await.unwrap();
        }
    });
}
