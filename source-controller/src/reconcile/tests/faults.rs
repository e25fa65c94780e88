//! Each fault of a remote in each phase that talks to it, as the objects show it: the one that is struck fails, keeps what
//! it has and recovers; its neighbour at the same host does not notice.

use std::time::Duration;

use serde_json::json;
use sluice_harness::git::{Fault, Injection, Repository, Scope};

use super::world::World;

/// Every fault that the server knows, and whether the remote is thought to recover by itself at a time it names.
fn faults() -> Vec<Fault> {
    vec![
        Fault::Status(401),
        Fault::Status(403),
        Fault::Status(404),
        Fault::Status(500),
        Fault::Status(502),
        Fault::Status(418),
        Fault::Page("text/html", "<html>log in</html>".into()),
        Fault::Page("application/x-git-upload-pack-result", "0009done\n".into()),
        Fault::Hung,
        Fault::Stalled(10),
        Fault::Stalled(600),
        Fault::Truncated(0),
        Fault::Truncated(10),
        Fault::Truncated(30),
        Fault::Oversized,
        Fault::RetryAfter(429, 7),
        Fault::RetryAfter(503, 7),
    ]
}

/// An object with an artifact, news at its remote, and a neighbour at the same host.
async fn world() -> (World, Repository) {
    let mut world = World::new().await;
    let neighbour = Repository::create().unwrap();
    neighbour.commit_files(&[("main.tf", "")], "theirs").unwrap();
    let url = world.server.serve("neighbour", &neighbour);
    // Only what is hung waits so long; the server answers much faster.
    world.create("app", json!({ "timeout": "600ms" })).await;
    world.create("neighbour", json!({ "url": url })).await;
    for name in ["app", "neighbour"] {
        world.pass(name).await;
    }
    world.commit("second", &[("main.tf", "locals { a = 1 }\n")]);
    (world, neighbour)
}

async fn each_fault_of(scope: Scope) {
    let (world, _neighbour) = world().await;
    let before = world.artifact("app").await;
    for fault in faults() {
        // What is remembered of the server is forgotten after each failure, so each step is taken again.
        world
            .server
            .inject(Injection::new(scope, fault.clone()).repository("app"));
        world.pass("app").await;
        let shown = world.shown("app").await;
        assert!(shown.contains("Ready=False"), "{scope:?} {fault:?}: {shown}");
        assert!(
            shown.contains("FetchFailed=True/GitOperationFailed"),
            "{scope:?} {fault:?}: {shown}"
        );
        assert!(
            shown.contains("ArtifactInStorage=True"),
            "{scope:?} {fault:?}: {shown}"
        );
        assert_eq!(world.artifact("app").await, before, "{scope:?} {fault:?}");
        assert!(world.file(&before).exists());
        world.pass("neighbour").await;
        let neighbour = world.shown("neighbour").await;
        assert!(
            neighbour.contains("Ready=True"),
            "{scope:?} {fault:?}: {neighbour}"
        );
        world.server.clear_faults();
        world.clock.advance(Duration::from_secs(3600));
    }
    world.pass("app").await;
    let shown = world.shown("app").await;
    assert!(
        shown.contains("Ready=True") && shown.contains("<second>"),
        "{shown}"
    );
}

#[tokio::test]
async fn of_the_first_request() {
    each_fault_of(Scope::INFO_REFS).await;
}

#[tokio::test]
async fn of_the_lookup() {
    each_fault_of(Scope::LS_REFS).await;
}

#[tokio::test]
async fn of_the_fetch() {
    each_fault_of(Scope::FETCH).await;
}
