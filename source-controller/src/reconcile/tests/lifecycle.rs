//! Suspension, requests, deletion, and passes that go wrong altogether.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::json;
use sluice_runtime::schedule::Backoff;
use sluice_runtime::shutdown::Token;
use sluice_runtime::watch::Next;

use super::world::{LIMIT, World, shows};
use crate::git::{Checkout, FetchError, Head};
use crate::reconcile::{Origin, Source};

#[tokio::test]
async fn a_suspended_object_is_left_alone_until_it_is_resumed() {
    let mut world = World::ready().await;
    let commit = world.commit("second", &[("b.tf", "")]);
    world.edit("app", json!({ "spec": { "suspend": true } })).await;
    world.request("app", "one").await;
    world.server.clear_requests();
    assert_eq!(world.pass("app").await, Next::OnChange);
    insta::assert_snapshot!(world.table("app").await, @r"
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 2 observed 2 artifact main@sha1:<first>
    ");
    assert!(world.server.requests().is_empty());
    assert_eq!(
        world.status("app").await.last_handled_reconcile_at.as_deref(),
        Some("one")
    );
    world.edit("app", json!({ "spec": { "suspend": false } })).await;
    world.pass("app").await;
    assert!(world.artifact("app").await.revision.ends_with(&commit));
}

#[tokio::test]
async fn a_request_is_echoed_at_the_end_of_the_pass_also_of_a_failed_one() {
    let world = World::new().await;
    world.create("app", json!({})).await;
    world.pass("app").await;
    for (token, away) in [("one", false), ("two", true)] {
        if away {
            world.server.withdraw("app");
        }
        world.request("app", token).await;
        world.pass("app").await;
        assert_eq!(
            world.status("app").await.last_handled_reconcile_at.as_deref(),
            Some(token)
        );
    }
    let before = world.get("app").await.metadata.resource_version;
    world.pass("app").await;
    assert_eq!(
        world.get("app").await.metadata.resource_version,
        before,
        "a request is handled once"
    );
}

#[tokio::test]
async fn a_deleted_object_takes_its_artifacts_along_even_without_its_remote() {
    let world = World::new().await;
    world.create("app", json!({})).await;
    world.pass("app").await;
    let artifact = world.artifact("app").await;
    world.table("app").await;
    world.server.withdraw("app");
    world.edit("app", json!({ "spec": { "suspend": true } })).await;
    world.delete("app").await;
    assert_eq!(world.pass("app").await, Next::OnChange);
    assert_eq!(
        world.told().await,
        ["event Normal GarbageCollectionSucceeded garbage collected artifacts for deleted resource"]
    );
    assert!(world.objects().get_opt("app").await.unwrap().is_none());
    assert!(!world.file(&artifact).parent().unwrap().exists());
}

#[tokio::test]
async fn the_end_of_the_program_is_no_failure_of_an_object() {
    let world = World::ready().await;
    let before = world.get("app").await.metadata.resource_version;
    let stopped = || {
        let context = world.context();
        context.stop.cancel();
        context
    };
    // How far a pass still comes is left to chance; what it says is not.
    world.pass_in(stopped(), "app").await;
    assert_eq!(world.get("app").await.metadata.resource_version, before);
    world.delete("app").await;
    world.pass_in(stopped(), "app").await;
    let mut told = world.told().await;
    told.retain(|event| !event.contains("GarbageCollectionSucceeded"));
    assert_eq!(told, Vec::<String>::new());
    if world.objects().get_opt("app").await.unwrap().is_some() {
        world.pass("app").await;
    }
    assert!(world.objects().get_opt("app").await.unwrap().is_none());
}

#[tokio::test]
async fn annotations_for_events_go_with_them() {
    let world = World::new().await;
    world.create("app", json!({})).await;
    world
        .edit(
            "app",
            json!({ "metadata": { "annotations": { "event.toolkit.fluxcd.io/team": "a" } } }),
        )
        .await;
    world.pass("app").await;
    let table = world.table("app").await;
    assert!(table.contains("(team, files, digest, revision)"), "{table}");
}

/// Panics for one host's objects and has no others.
struct Broken;

impl Origin for Broken {
    fn head<'a>(&'a self, source: &'a Source, _: &'a Token) -> BoxFuture<'a, Result<Head, FetchError>> {
        let host = source.remote.address.host();
        async move {
            assert!(!host.starts_with("panics"), "out of luck");
            Err(FetchError::Empty)
        }
        .boxed()
    }

    fn fetch<'a>(
        &'a self,
        _: &'a Source,
        _: &'a Head,
        _: &'a Token,
    ) -> BoxFuture<'a, Result<Checkout, FetchError>> {
        async { Err(FetchError::Empty) }.boxed()
    }
}

#[tokio::test]
async fn a_pass_that_panics_is_the_failure_of_its_object_alone() {
    let world = World::new().await;
    world.create("bad", json!({ "url": "http://panics/x.git" })).await;
    world
        .create("good", json!({ "url": "http://elsewhere/x.git" }))
        .await;
    let live = world.live_with(world.context_with(Arc::new(Broken)), Backoff::default());
    world
        .until("good", shows("FetchFailed", "EmptyGitRepository"))
        .await;
    // The other one panics again and again, and takes nobody along.
    let panics = async {
        while !live
            .metrics
            .text()
            .lines()
            .any(|line| line.contains("panics_total") && !line.ends_with(" 0"))
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, panics).await.unwrap();
    world.delete("good").await;
    world.until_gone("good").await;
    live.end().await;
}
