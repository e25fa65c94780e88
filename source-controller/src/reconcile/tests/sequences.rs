//! Golden sequences of all status writes of a reconciliation. The general rules are in `environment/conformance.rs`.

use serde_json::json;

use super::environment::{TestEnvironment, Verdict, kstatus};

#[tokio::test]
async fn first_artifact_no_op_and_new_revision() {
    let mut env = TestEnvironment::new().await;
    env.create("app", json!({})).await;
    env.reconcile("app").await;
    insta::assert_snapshot!(env.writes(), @"
    generation 1 observed -1 artifact none
    Reconciling=True/Progressing @1 processing object: new generation -1 -> 1
    Ready=Unknown/Progressing @1 processing object: new generation -1 -> 1

    generation 1 observed 1 artifact main@sha1:<first>
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ");
    assert_eq!(kstatus(&env.get("app").await), Verdict::Current);
    env.reconcile("app").await;
    insta::assert_snapshot!(env.writes(), @"");
    env.commit("second", &[("main.tf", "locals { a = 1 }\n")]);
    env.reconcile("app").await;
    insta::assert_snapshot!(env.writes(), @"
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
    let env = TestEnvironment::ready().await;
    env.edit("app", json!({ "spec": { "ignore": "!README.md\n" } }))
        .await;
    assert_eq!(kstatus(&env.get("app").await), Verdict::InProgress);
    env.reconcile("app").await;
    insta::assert_snapshot!(env.writes(), @"
    generation 2 observed 1 artifact main@sha1:<first>
    Reconciling=True/Progressing @2 processing object: new generation 1 -> 2
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'

    generation 2 observed 2 artifact main@sha1:<first>
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ");
    env.request("app", "one").await;
    env.reconcile("app").await;
    insta::assert_snapshot!(env.writes(), @"
    generation 2 observed 2 artifact main@sha1:<first>
    Reconciling=True/Progressing @2 reconciliation in progress
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'

    generation 2 observed 2 artifact main@sha1:<first>
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ");
    // An edit that does not affect the content.
    env.edit("app", json!({ "spec": { "interval": "7m" } })).await;
    env.reconcile("app").await;
    insta::assert_snapshot!(env.writes(), @"
    generation 3 observed 2 artifact main@sha1:<first>
    Reconciling=True/Progressing @3 processing object: new generation 2 -> 3
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'

    generation 3 observed 3 artifact main@sha1:<first>
    Ready=True/Succeeded @3 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @3 stored artifact for revision 'main@sha1:<first>'
    ");
    assert_eq!(kstatus(&env.get("app").await), Verdict::Current);
}

#[tokio::test]
async fn a_failure_and_the_recovery() {
    let env = TestEnvironment::ready().await;
    env.server.withdraw("app");
    env.reconcile("app").await;
    insta::assert_snapshot!(env.writes(), @"
    generation 1 observed 1 artifact main@sha1:<first>
    Reconciling=True/ProgressingWithRetry @1 reconciliation in progress
    Ready=False/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    ");
    // kstatus reports retried failures as in progress, not as failed.
    assert_eq!(kstatus(&env.get("app").await), Verdict::InProgress);
    env.reconcile("app").await;
    insta::assert_snapshot!(env.writes(), @"");
    env.edit("app", json!({ "spec": { "interval": "7m" } })).await;
    env.reconcile("app").await;
    insta::assert_snapshot!(env.writes(), @"
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
    env.server.serve("app", &env.repository);
    env.reconcile("app").await;
    insta::assert_snapshot!(env.writes(), @"
    generation 2 observed 2 artifact main@sha1:<first>
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ");
}

#[tokio::test]
async fn a_stall_and_the_edit_that_ends_it() {
    let env = TestEnvironment::ready().await;
    let url = env.server.url("app");
    env.edit("app", json!({ "spec": { "url": "https://git:port/x" } }))
        .await;
    env.reconcile("app").await;
    insta::assert_snapshot!(env.writes(), @"
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
    assert_eq!(kstatus(&env.get("app").await), Verdict::Failed);
    // A request without an edit has the same result.
    env.request("app", "again").await;
    env.reconcile("app").await;
    insta::assert_snapshot!(env.writes(), @"
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
    env.edit("app", json!({ "spec": { "url": url } })).await;
    env.reconcile("app").await;
    insta::assert_snapshot!(env.writes(), @"
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
    let env = TestEnvironment::new().await;
    env.create("app", json!({ "suspend": true })).await;
    env.request("app", "one").await;
    env.reconcile("app").await;
    insta::assert_snapshot!(env.writes(), @"");
    assert_eq!(
        env.status("app").await.last_handled_reconcile_at.as_deref(),
        Some("one")
    );
    env.edit(
        "app",
        json!({ "spec": { "suspend": false, "ref": { "branch": "x" } } }),
    )
    .await;
    env.reconcile("app").await;
    env.edit("app", json!({ "spec": { "suspend": true } })).await;
    env.reconcile("app").await;
    insta::assert_snapshot!(env.writes(), @r#"
    generation 3 observed 3 artifact none
    Reconciling=True/ProgressingWithRetry @3 building artifact
    Ready=False/GitOperationFailed @3 failed to checkout and determine revision: unable to clone 'http://git/app.git': couldn't find remote ref "refs/heads/x"
    FetchFailed=True/GitOperationFailed @2 failed to checkout and determine revision: unable to clone 'http://git/app.git': couldn't find remote ref "refs/heads/x"
    "#);
}
