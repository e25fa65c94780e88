//! Golden sequences: every form that a status takes in a pass, write for write. The rules that hold for each of them are in
//! `world/conforms.rs`.

use serde_json::json;

use super::world::{Verdict, World, kstatus};

#[tokio::test]
async fn the_first_pass_a_no_op_and_a_new_revision() {
    let mut world = World::new().await;
    world.create("app", json!({})).await;
    world.pass("app").await;
    insta::assert_snapshot!(world.writes(), @"
    generation 1 observed -1 artifact none
    Reconciling=True/Progressing @1 processing object: new generation -1 -> 1
    Ready=Unknown/Progressing @1 processing object: new generation -1 -> 1

    generation 1 observed 1 artifact main@sha1:<first>
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ");
    assert_eq!(kstatus(&world.get("app").await), Verdict::Current);
    world.pass("app").await;
    insta::assert_snapshot!(world.writes(), @"");
    world.commit("second", &[("main.tf", "locals { a = 1 }\n")]);
    world.pass("app").await;
    insta::assert_snapshot!(world.writes(), @"
    generation 1 observed 1 artifact main@sha1:<first>
    Reconciling=True/Progressing @1 building artifact: new upstream revision 'main@sha1:<second>'
    Ready=Unknown/Progressing @1 building artifact: new upstream revision 'main@sha1:<second>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactOutdated=True/NewRevision @1 new upstream revision 'main@sha1:<second>'

    generation 1 observed 1 artifact main@sha1:<second>
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<second>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<second>'
    ");
}

#[tokio::test]
async fn an_edit_and_a_request() {
    let world = World::ready().await;
    world
        .edit("app", json!({ "spec": { "ignore": "!README.md\n" } }))
        .await;
    assert_eq!(kstatus(&world.get("app").await), Verdict::InProgress);
    world.pass("app").await;
    insta::assert_snapshot!(world.writes(), @"
    generation 2 observed 1 artifact main@sha1:<first>
    Reconciling=True/Progressing @2 processing object: new generation 1 -> 2
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'

    generation 2 observed 2 artifact main@sha1:<first>
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ");
    world.request("app", "one").await;
    world.pass("app").await;
    insta::assert_snapshot!(world.writes(), @"
    generation 2 observed 2 artifact main@sha1:<first>
    Reconciling=True/Progressing @2 reconciliation in progress
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'

    generation 2 observed 2 artifact main@sha1:<first>
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ");
    // An edit of what shapes nothing.
    world.edit("app", json!({ "spec": { "interval": "7m" } })).await;
    world.pass("app").await;
    insta::assert_snapshot!(world.writes(), @"
    generation 3 observed 2 artifact main@sha1:<first>
    Reconciling=True/Progressing @3 processing object: new generation 2 -> 3
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'

    generation 3 observed 3 artifact main@sha1:<first>
    Ready=True/Succeeded @3 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @3 stored artifact for revision 'main@sha1:<first>'
    ");
    assert_eq!(kstatus(&world.get("app").await), Verdict::Current);
}

#[tokio::test]
async fn a_failure_and_the_recovery() {
    let world = World::ready().await;
    world.server.withdraw("app");
    world.pass("app").await;
    insta::assert_snapshot!(world.writes(), @"
    generation 1 observed 1 artifact main@sha1:<first>
    Reconciling=True/ProgressingWithRetry @1 reconciliation in progress
    Ready=False/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    ");
    // What keeps failing is in progress for whoever waits, never failed.
    assert_eq!(kstatus(&world.get("app").await), Verdict::InProgress);
    world.pass("app").await;
    insta::assert_snapshot!(world.writes(), @"");
    world.edit("app", json!({ "spec": { "interval": "7m" } })).await;
    world.pass("app").await;
    insta::assert_snapshot!(world.writes(), @"
    generation 2 observed 1 artifact main@sha1:<first>
    Reconciling=True/Progressing @2 processing object: new generation 1 -> 2
    Ready=False/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository

    generation 2 observed 1 artifact main@sha1:<first>
    Reconciling=True/ProgressingWithRetry @2 processing object: new generation 1 -> 2
    Ready=False/GitOperationFailed @2 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    FetchFailed=True/GitOperationFailed @2 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ");
    world.server.serve("app", &world.repository);
    world.pass("app").await;
    insta::assert_snapshot!(world.writes(), @"
    generation 2 observed 2 artifact main@sha1:<first>
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ");
}

#[tokio::test]
async fn a_stall_and_the_edit_that_ends_it() {
    let world = World::ready().await;
    let url = world.server.url("app");
    world
        .edit("app", json!({ "spec": { "url": "https://git:port/x" } }))
        .await;
    world.pass("app").await;
    insta::assert_snapshot!(world.writes(), @"
    generation 2 observed 1 artifact main@sha1:<first>
    Reconciling=True/Progressing @2 processing object: new generation 1 -> 2
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'

    generation 2 observed 2 artifact main@sha1:<first>
    Stalled=True/URLInvalid @2 failed to parse url 'https://git:port/x': invalid port after host
    Ready=False/URLInvalid @2 failed to parse url 'https://git:port/x': invalid port after host
    FetchFailed=True/URLInvalid @2 failed to parse url 'https://git:port/x': invalid port after host
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ");
    assert_eq!(kstatus(&world.get("app").await), Verdict::Failed);
    // Asked again without an edit, it says the same.
    world.request("app", "again").await;
    world.pass("app").await;
    insta::assert_snapshot!(world.writes(), @"
    generation 2 observed 2 artifact main@sha1:<first>
    Reconciling=True/Progressing @2 reconciliation in progress
    Ready=False/URLInvalid @2 failed to parse url 'https://git:port/x': invalid port after host
    FetchFailed=True/URLInvalid @2 failed to parse url 'https://git:port/x': invalid port after host
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'

    generation 2 observed 2 artifact main@sha1:<first>
    Stalled=True/URLInvalid @2 failed to parse url 'https://git:port/x': invalid port after host
    Ready=False/URLInvalid @2 failed to parse url 'https://git:port/x': invalid port after host
    FetchFailed=True/URLInvalid @2 failed to parse url 'https://git:port/x': invalid port after host
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ");
    world.edit("app", json!({ "spec": { "url": url } })).await;
    world.pass("app").await;
    insta::assert_snapshot!(world.writes(), @"
    generation 3 observed 2 artifact main@sha1:<first>
    Reconciling=True/Progressing @3 processing object: new generation 2 -> 3
    Ready=False/URLInvalid @2 failed to parse url 'https://git:port/x': invalid port after host
    FetchFailed=True/URLInvalid @2 failed to parse url 'https://git:port/x': invalid port after host
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'

    generation 3 observed 3 artifact main@sha1:<first>
    Ready=True/Succeeded @3 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @3 stored artifact for revision 'main@sha1:<first>'
    ");
}

#[tokio::test]
async fn suspended_from_the_start_and_after_a_failure() {
    let world = World::new().await;
    world.create("app", json!({ "suspend": true })).await;
    world.request("app", "one").await;
    world.pass("app").await;
    insta::assert_snapshot!(world.writes(), @"");
    assert_eq!(
        world.status("app").await.last_handled_reconcile_at.as_deref(),
        Some("one")
    );
    world
        .edit(
            "app",
            json!({ "spec": { "suspend": false, "ref": { "branch": "x" } } }),
        )
        .await;
    world.pass("app").await;
    world.edit("app", json!({ "spec": { "suspend": true } })).await;
    world.pass("app").await;
    insta::assert_snapshot!(world.writes(), @r#"
    generation 3 observed 3 artifact none
    Reconciling=True/ProgressingWithRetry @3 building artifact
    Ready=False/GitOperationFailed @3 failed to checkout and determine revision: unable to clone 'http://git/app.git': couldn't find remote ref "refs/heads/x"
    FetchFailed=True/GitOperationFailed @2 failed to checkout and determine revision: unable to clone 'http://git/app.git': couldn't find remote ref "refs/heads/x"
    "#);
}
