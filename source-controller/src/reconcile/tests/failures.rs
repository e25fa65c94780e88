//! What goes wrong is said by the object, and mended once the cause is gone.

use std::time::Duration;

use serde_json::json;
use sluice_harness::closed::ClosedPort;
use sluice_harness::git::{Fault, Repository, Scope};
use sluice_runtime::watch::Next;

use super::world::World;
use crate::git::Limits;

#[tokio::test]
async fn a_missing_branch_is_named_and_tried_again() {
    let world = World::new().await;
    world
        .create("app", json!({ "ref": { "branch": "nowhere" } }))
        .await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    insta::assert_snapshot!(world.table("app").await, @r#"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/GitOperationFailed @1 failed to checkout and determine revision: unable to clone 'http://git/app.git': couldn't find remote ref "refs/heads/nowhere"
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: unable to clone 'http://git/app.git': couldn't find remote ref "refs/heads/nowhere"
    generation 1 observed -1 artifact none
    event Warning GitOperationFailed failed to checkout and determine revision: unable to clone 'http://git/app.git': couldn't find remote ref "refs/heads/nowhere"
    "#);
    let before = world.get("app").await.metadata.resource_version;
    world.clock.advance(Duration::from_secs(5));
    assert_eq!(world.pass("app").await, Next::Backoff);
    assert_eq!(
        world.get("app").await.metadata.resource_version,
        before,
        "the same failure writes nothing"
    );
    world.table("app").await;
    world.repository.branch("nowhere").unwrap();
    world.pass("app").await;
    insta::assert_snapshot!(world.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'nowhere@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'nowhere@sha1:<first>'
    generation 1 observed 1 artifact nowhere@sha1:<first>
    event Normal NewArtifact stored artifact for commit 'first' (files, digest, revision)
    ");
}

#[tokio::test]
async fn an_artifact_outlives_a_failure_and_the_recovery_is_told() {
    let world = World::ready().await;
    world.server.withdraw("app");
    assert_eq!(world.pass("app").await, Next::Backoff);
    insta::assert_snapshot!(world.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 reconciliation in progress
    Ready=False/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    generation 1 observed 1 artifact main@sha1:<first>
    event Warning GitOperationFailed failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    ");
    assert!(world.file(&world.artifact("app").await).exists());
    world.server.serve("app", &world.repository);
    world.pass("app").await;
    insta::assert_snapshot!(world.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 1 observed 1 artifact main@sha1:<first>
    event Normal Succeeded stored artifact for commit 'main@sha1:<first>' (digest, revision)
    ");
}

#[tokio::test]
async fn credentials_come_from_the_secret_and_are_tried_again_once_it_is_mended() {
    let world = World::new().await;
    world.server.require_basic("user", "right");
    world
        .create("app", json!({ "secretRef": { "name": "login" } }))
        .await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    insta::assert_snapshot!(world.table("app").await, @r#"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/AuthenticationFailed @1 failed to get secret 'team/login': secrets "login" not found
    FetchFailed=True/AuthenticationFailed @1 failed to get secret 'team/login': secrets "login" not found
    generation 1 observed -1 artifact none
    event Warning AuthenticationFailed failed to get secret 'team/login': secrets "login" not found
    "#);
    world.secret("login", json!({ "password": "right" })).await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    insta::assert_snapshot!(world.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/AuthenticationFailed @1 failed to configure authentication options: secret 'team/login': invalid 'http' auth option: 'password' requires 'username' to be set
    FetchFailed=True/AuthenticationFailed @1 failed to configure authentication options: secret 'team/login': invalid 'http' auth option: 'password' requires 'username' to be set
    generation 1 observed -1 artifact none
    event Warning AuthenticationFailed failed to configure authentication options: secret 'team/login': invalid 'http' auth option: 'password' requires 'username' to be set
    ");
    world
        .secret("login", json!({ "username": "user", "password": "wrong" }))
        .await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    let table = world.table("app").await;
    assert!(!table.contains("wrong"), "{table}");
    insta::assert_snapshot!(table, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': authentication required: Unauthorized
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': authentication required: Unauthorized
    generation 1 observed -1 artifact none
    event Warning GitOperationFailed failed to checkout and determine revision: unable to list remote for 'http://git/app.git': authentication required: Unauthorized
    ");
    world.secret("login", json!({ "password": "right" })).await;
    world.pass("app").await;
    insta::assert_snapshot!(world.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 1 observed 1 artifact main@sha1:<first>
    event Normal NewArtifact stored artifact for commit 'first' (files, digest, revision)
    ");
}

#[tokio::test]
async fn an_unusable_url_stalls_the_object() {
    let world = World::new().await;
    world
        .create("app", json!({ "url": "https://user:hidden@git:port/x" }))
        .await;
    assert_eq!(world.pass("app").await, Next::OnChange);
    insta::assert_snapshot!(world.table("app").await, @r"
    Stalled=True/URLInvalid @1 failed to parse url 'https://user:***@git:port/x': invalid port after host
    Ready=False/URLInvalid @1 failed to parse url 'https://user:***@git:port/x': invalid port after host
    FetchFailed=True/URLInvalid @1 failed to parse url 'https://user:***@git:port/x': invalid port after host
    generation 1 observed 1 artifact none
    event Warning URLInvalid failed to parse url 'https://user:***@git:port/x': invalid port after host
    ");
}

#[tokio::test]
async fn a_closed_port_is_tried_again() {
    let world = World::new().await;
    let port = ClosedPort::take().unwrap();
    let closed = port.address().unwrap();
    world
        .create("app", json!({ "url": format!("http://{closed}/app.git") }))
        .await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    let table = world.table("app").await;
    assert!(table.contains("FetchFailed=True/GitOperationFailed"), "{table}");
    assert!(table.contains(&closed.to_string()), "{table}");
}

#[tokio::test]
async fn a_remote_that_hangs_is_given_up_after_the_timeout() {
    let world = World::new().await;
    world.server.fault(Scope::LS_REFS, Fault::Hung);
    world.create("app", json!({ "timeout": "200ms" })).await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    insta::assert_snapshot!(world.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/GitOperationFailed @1 failed to checkout and determine revision: timed out: no complete answer from git within 200ms (deadline exceeded)
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: timed out: no complete answer from git within 200ms (deadline exceeded)
    generation 1 observed -1 artifact none
    event Warning GitOperationFailed failed to checkout and determine revision: timed out: no complete answer from git within 200ms (deadline exceeded)
    ");
}

#[tokio::test]
async fn a_remote_that_asks_to_wait_is_left_alone_for_that_time() {
    let world = World::new().await;
    world.server.fault(Scope::Any, Fault::RetryAfter(429, 17));
    world.create("app", json!({})).await;
    assert_eq!(world.pass("app").await, Next::After(Duration::from_secs(17)));
}

#[tokio::test]
async fn an_empty_repository_is_named() {
    let world = World::with(Repository::create().unwrap()).await;
    world.create("app", json!({})).await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    insta::assert_snapshot!(world.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/EmptyGitRepository @1 git repository is empty
    FetchFailed=True/EmptyGitRepository @1 git repository is empty
    generation 1 observed -1 artifact none
    event Warning EmptyGitRepository git repository is empty
    ");
}

#[tokio::test]
async fn a_corrupted_pack_is_refused_and_fetched_again() {
    let world = World::new().await;
    world.server.fault(Scope::FETCH, Fault::Corrupted(40));
    world.create("app", json!({})).await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    let table = world.table("app").await;
    assert!(table.contains("FetchFailed=True/GitOperationFailed"), "{table}");
    assert!(table.contains("artifact none"), "{table}");
    world.server.clear_faults();
    world.pass("app").await;
    assert!(world.table("app").await.contains("Ready=True/Succeeded"));
}

#[tokio::test]
async fn a_repository_that_is_too_large_names_the_limit_and_its_flag() {
    let mut world = World::new().await;
    let noise: String = (0..40_000_u32)
        .map(|n| char::from(b'a' + u8::try_from(n * n % 23).unwrap()))
        .collect();
    world.commit("big", &[("big.txt", &noise)]);
    world.limit(Limits {
        pack_bytes: 200,
        ..Limits::default()
    });
    world.create("pack", json!({})).await;
    assert_eq!(world.pass("pack").await, Next::Backoff);
    insta::assert_snapshot!(world.table("pack").await, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact: new upstream revision 'main@sha1:<big>'
    Ready=False/GitOperationFailed @1 failed to checkout and determine revision: the repository is too large: more than 200 bytes in one fetch; raise --git-max-pack-bytes or make it smaller
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: the repository is too large: more than 200 bytes in one fetch; raise --git-max-pack-bytes or make it smaller
    generation 1 observed -1 artifact none
    event Warning GitOperationFailed failed to checkout and determine revision: the repository is too large: more than 200 bytes in one fetch; raise --git-max-pack-bytes or make it smaller
    ");
    world.limit(Limits {
        blob_bytes: 10_000,
        ..Limits::default()
    });
    world.create("blob", json!({})).await;
    assert_eq!(world.pass("blob").await, Next::Backoff);
    let table = world.table("blob").await;
    assert!(table.contains("--git-max-blob-bytes"), "{table}");
    assert!(table.contains("artifact none"), "{table}");
}

#[tokio::test]
async fn ignore_files_are_bounded_together() {
    let mut world = World::new().await;
    let rules = "a\n".repeat(300);
    let files: Vec<_> = (0..4).map(|n| format!("{n}/.sourceignore")).collect();
    let files: Vec<_> = files.iter().map(|path| (path.as_str(), rules.as_str())).collect();
    world.commit("rules", &files);
    world.limit(Limits {
        ignore_bytes: 2000,
        ..Limits::default()
    });
    world.create("app", json!({})).await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    let table = world.table("app").await;
    let words = "failed to read ignore file '3/.sourceignore': the ignore files have more than 2000 bytes together; raise --git-max-ignore-bytes";
    assert!(table.contains(words), "{table}");
    assert!(table.contains("artifact none"), "{table}");
}

#[tokio::test]
async fn a_name_with_a_control_character_fails_the_pass_unless_it_is_left_out() {
    let mut world = World::new().await;
    world.commit("odd", &[("a/b\tc", ""), ("a/b", "")]);
    world.create("app", json!({})).await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    let table = world.table("app").await;
    let words = r#"FetchFailed=True/GitOperationFailed @1 path "a/b\tc" has a control character"#;
    assert!(table.contains(words), "{table}");
    assert!(table.contains("artifact none"), "{table}");
    world.create("without", json!({ "ignore": "a/b?c" })).await;
    world.pass("without").await;
    let table = world.table("without").await;
    assert!(table.contains("Ready=True/Succeeded"), "{table}");
}

#[tokio::test]
async fn an_ignore_file_that_leads_out_of_the_repository_fails_the_pass() {
    let mut world = World::new().await;
    world.repository.remove(".sourceignore").unwrap();
    world.repository.symlink(".sourceignore", "/etc/passwd").unwrap();
    world.commit("link", &[("a", "")]);
    world.create("app", json!({})).await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    insta::assert_snapshot!(world.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 failed to read ignore file '.sourceignore': it links out of the repository
    Ready=False/ProgressingWithRetry @1 failed to read ignore file '.sourceignore': it links out of the repository
    generation 1 observed -1 artifact none
    event Warning SourceIgnoreError failed to read ignore file '.sourceignore': it links out of the repository
    ");
}
