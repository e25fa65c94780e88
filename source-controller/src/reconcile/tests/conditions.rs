//! What conditions make of what they find: left-overs of earlier passes, several failures at once, foreign types; and what
//! is told of it.

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_runtime::watch::Next;

use super::world::World;

/// Puts conditions into a status, next to what is there.
async fn leave(world: &World, conditions: &[(&str, &str, &str)]) {
    let held = json!(world.status("app").await.conditions);
    let Value::Array(mut all) = held else {
        unreachable!()
    };
    for (kind, status, reason) in conditions {
        all.retain(|held| held["type"] != *kind);
        all.push(json!({
            "type": kind, "status": status, "reason": reason, "message": "left over",
            "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 1,
        }));
    }
    let patch = json!({ "status": { "conditions": all } });
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    world
        .objects()
        .patch_status("app", &params, &patch)
        .await
        .unwrap();
}

#[tokio::test]
async fn whatever_was_left_over_success_is_clean() {
    let world = World::ready().await;
    let clean = world.table("app").await;
    for left_over in [
        &[("Reconciling", "True", "Progressing")][..],
        &[("Stalled", "True", "URLInvalid")],
        &[("ArtifactOutdated", "True", "NewRevision")],
        &[
            ("FetchFailed", "True", "GitOperationFailed"),
            ("IncludeUnavailable", "True", "NotFound"),
            ("StorageOperationFailed", "True", "CopyFailure"),
            ("ArtifactOutdated", "True", "IncludeChange"),
            ("Ready", "False", "GitOperationFailed"),
        ],
        &[
            ("Reconciling", "True", "ProgressingWithRetry"),
            ("Stalled", "True", "URLInvalid"),
            ("FetchFailed", "True", "URLInvalid"),
            ("Ready", "Unknown", "Progressing"),
        ],
        // Of the other polarity than it should be.
        &[
            ("FetchFailed", "False", "Succeeded"),
            ("ArtifactInStorage", "False", "x"),
        ],
    ] {
        leave(&world, left_over).await;
        world.pass("app").await;
        world.told().await;
        assert_eq!(world.table("app").await, clean, "{left_over:?}");
    }
}

#[tokio::test]
async fn of_several_failures_the_first_in_the_order_speaks_and_each_goes_with_its_own_step() {
    let world = World::ready().await;
    world.server.withdraw("app");
    world.pass("app").await;
    world
        .edit(
            "app",
            json!({ "spec": { "include": [{ "repository": { "name": "lib" } }] } }),
        )
        .await;
    world.told().await;
    // The remote was not asked this time: that it failed is still what is known of it.
    world.pass("app").await;
    insta::assert_snapshot!(world.table("app").await, @r#"
    Reconciling=True/ProgressingWithRetry @2 processing object: new generation 1 -> 2
    Ready=False/GitOperationFailed @2 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    IncludeUnavailable=True/NotFound @2 could not get resource for include 'lib': GitRepository.source.toolkit.fluxcd.io "lib" not found
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    generation 2 observed 1 artifact main@sha1:<first>
    "#);
    world.server.serve("app", &world.repository);
    world.edit("app", json!({ "spec": { "include": null } })).await;
    world.pass("app").await;
    insta::assert_snapshot!(world.table("app").await, @"
    Ready=True/Succeeded @3 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @3 stored artifact for revision 'main@sha1:<first>'
    generation 3 observed 3 artifact main@sha1:<first>
    event Normal Succeeded stored artifact for commit 'main@sha1:<first>' (digest, revision)
    ");
}

#[tokio::test]
async fn conditions_of_others_stay_as_they_are() {
    let mut world = World::ready().await;
    leave(&world, &[("Foreign", "False", "Because")]).await;
    let foreign = |status: sluice_api::source::GitRepositoryStatus| {
        let mut found = status.conditions.into_iter().filter(|c| c.type_ == "Foreign");
        found.next()
    };
    let before = foreign(world.status("app").await);
    assert!(before.is_some());
    world.commit("second", &[("b.tf", "")]);
    world.pass("app").await;
    assert_eq!(foreign(world.status("app").await), before);
    world.server.withdraw("app");
    world.pass("app").await;
    assert_eq!(foreign(world.status("app").await), before);
}

#[tokio::test]
async fn a_message_is_cut_to_what_the_api_takes() {
    let world = World::ready().await;
    let branch = "x".repeat(40_000);
    world
        .edit("app", json!({ "spec": { "ref": { "branch": branch } } }))
        .await;
    world.pass("app").await;
    let status = world.status("app").await;
    let failed = status
        .conditions
        .iter()
        .find(|c| c.type_ == "FetchFailed")
        .unwrap();
    assert_eq!(failed.message.len(), 32768);
    assert!(failed.message.ends_with("..."));
}

#[tokio::test]
async fn what_is_told_follows_from_before_and_after() {
    let mut world = World::ready().await;
    let told = async |world: &World| {
        world.pass("app").await;
        world.masked(&world.told().await.join("\n"))
    };
    let mut story = vec![format!("no news: {}", told(&world).await)];
    world.server.withdraw("app");
    story.push(format!("failure: {}", told(&world).await));
    story.push(format!("the same failure: {}", told(&world).await));
    world
        .edit("app", json!({ "spec": { "url": "https://git:port/x" } }))
        .await;
    story.push(format!("another failure: {}", told(&world).await));
    let url = world.server.serve("app", &world.repository);
    world.edit("app", json!({ "spec": { "url": url } })).await;
    story.push(format!("recovery: {}", told(&world).await));
    world.server.withdraw("app");
    told(&world).await;
    world.server.serve("app", &world.repository);
    world.commit("second", &[("b.tf", "")]);
    story.push(format!("recovery with news: {}", told(&world).await));
    // News whose artifact is the same bytes as before.
    world.commit("third", &[("c.md", "")]);
    story.push(format!("news of the same bytes: {}", told(&world).await));
    insta::assert_snapshot!(story.join("\n"), @"
    no news: 
    failure: event Warning GitOperationFailed failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    the same failure: event Warning GitOperationFailed failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    another failure: event Warning URLInvalid failed to parse url 'https://git:port/x': invalid port after host
    recovery: event Normal Succeeded stored artifact for commit 'main@sha1:<first>' (digest, revision)
    recovery with news: event Normal NewArtifact stored artifact for commit 'second' (files, digest, revision)
    news of the same bytes:
    ");
}

#[tokio::test]
async fn an_object_that_went_before_it_had_the_finalizer_is_let_go() {
    let world = World::new().await;
    let object = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": { "name": "app", "finalizers": ["example.com/foreign"] },
        "spec": { "url": world.server.url("app"), "interval": "5m" },
    });
    let object = serde_json::from_value(object).unwrap();
    world
        .objects()
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
    world.delete("app").await;
    assert_eq!(world.pass("app").await, Next::OnChange);
    assert_eq!(world.writes(), "");
    assert!(world.told().await.is_empty());
    let object = world.get("app").await;
    assert_eq!(object.metadata.finalizers.unwrap(), ["example.com/foreign"]);
}
