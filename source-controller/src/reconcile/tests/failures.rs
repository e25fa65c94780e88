//! Tests of failures and of the recovery.

use std::time::Duration;

use serde_json::json;
use sluice_harness::closed_port::ClosedPort;
use sluice_harness::git::{Fault, Repository, Scope};
use sluice_runtime::watch::Requeue;

use super::environment::TestEnvironment;
use crate::git::Limits;

#[tokio::test]
async fn a_missing_branch_is_reported_and_retried() {
    let env = TestEnvironment::new().await;
    env.create("app", json!({ "ref": { "branch": "nowhere" } })).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    insta::assert_snapshot!(env.table("app").await, @r#"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/GitOperationFailed @1 failed to checkout and determine revision: unable to clone 'http://git/app.git': couldn't find remote ref "refs/heads/nowhere"
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: unable to clone 'http://git/app.git': couldn't find remote ref "refs/heads/nowhere"
    generation 1 observed -1 artifact none
    event Warning GitOperationFailed failed to checkout and determine revision: unable to clone 'http://git/app.git': couldn't find remote ref "refs/heads/nowhere"
    "#);
    let before = env.get("app").await.metadata.resource_version;
    env.clock.advance(Duration::from_secs(5));
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    assert_eq!(
        env.get("app").await.metadata.resource_version,
        before,
        "the same failure writes nothing"
    );
    env.table("app").await;
    env.repository.branch("nowhere").unwrap();
    env.reconcile("app").await;
    insta::assert_snapshot!(env.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'nowhere@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'nowhere@sha1:<first>'
    generation 1 observed 1 artifact nowhere@sha1:<first>
    event Normal NewArtifact stored artifact for commit 'first' (files, digest, revision)
    ");
}

#[tokio::test]
async fn an_artifact_outlives_a_failure_and_the_recovery_is_reported() {
    let env = TestEnvironment::ready().await;
    env.server.withdraw("app");
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    insta::assert_snapshot!(env.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 reconciliation in progress
    Ready=False/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    generation 1 observed 1 artifact main@sha1:<first>
    event Warning GitOperationFailed failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    ");
    assert!(env.file(&env.artifact("app").await).exists());
    env.server.serve("app", &env.repository);
    env.reconcile("app").await;
    insta::assert_snapshot!(env.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 1 observed 1 artifact main@sha1:<first>
    event Normal Succeeded stored artifact for commit 'main@sha1:<first>' (digest, revision)
    ");
}

#[tokio::test]
async fn credentials_are_read_from_the_secret_and_retried_once_it_is_corrected() {
    let env = TestEnvironment::new().await;
    env.server.require_basic("user", "right");
    env.create("app", json!({ "secretRef": { "name": "login" } }))
        .await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    insta::assert_snapshot!(env.table("app").await, @r#"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/AuthenticationFailed @1 failed to get secret 'team/login': secrets "login" not found
    FetchFailed=True/AuthenticationFailed @1 failed to get secret 'team/login': secrets "login" not found
    generation 1 observed -1 artifact none
    event Warning AuthenticationFailed failed to get secret 'team/login': secrets "login" not found
    "#);
    env.secret("login", json!({ "password": "right" })).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    insta::assert_snapshot!(env.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/AuthenticationFailed @1 failed to configure authentication options: secret 'team/login': invalid 'http' auth option: 'password' requires 'username' to be set
    FetchFailed=True/AuthenticationFailed @1 failed to configure authentication options: secret 'team/login': invalid 'http' auth option: 'password' requires 'username' to be set
    generation 1 observed -1 artifact none
    event Warning AuthenticationFailed failed to configure authentication options: secret 'team/login': invalid 'http' auth option: 'password' requires 'username' to be set
    ");
    env.secret("login", json!({ "username": "user", "password": "wrong" }))
        .await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    let table = env.table("app").await;
    assert!(!table.contains("wrong"), "{table}");
    insta::assert_snapshot!(table, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': authentication required: Unauthorized
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': authentication required: Unauthorized
    generation 1 observed -1 artifact none
    event Warning GitOperationFailed failed to checkout and determine revision: unable to list remote for 'http://git/app.git': authentication required: Unauthorized
    ");
    env.secret("login", json!({ "password": "right" })).await;
    env.reconcile("app").await;
    insta::assert_snapshot!(env.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 1 observed 1 artifact main@sha1:<first>
    event Normal NewArtifact stored artifact for commit 'first' (files, digest, revision)
    ");
}

#[tokio::test]
async fn an_unusable_url_stalls_the_object() {
    let env = TestEnvironment::new().await;
    env.create("app", json!({ "url": "https://user:hidden@git:port/x" }))
        .await;
    assert_eq!(env.reconcile("app").await, Requeue::OnChange);
    insta::assert_snapshot!(env.table("app").await, @r"
    Stalled=True/URLInvalid @1 failed to parse url 'https://user:***@git:port/x': invalid port after host
    Ready=False/URLInvalid @1 failed to parse url 'https://user:***@git:port/x': invalid port after host
    FetchFailed=True/URLInvalid @1 failed to parse url 'https://user:***@git:port/x': invalid port after host
    generation 1 observed 1 artifact none
    event Warning URLInvalid failed to parse url 'https://user:***@git:port/x': invalid port after host
    ");
}

#[tokio::test]
async fn a_closed_port_is_retried() {
    let env = TestEnvironment::new().await;
    let port = ClosedPort::reserve().unwrap();
    let closed = port.address().unwrap();
    env.create("app", json!({ "url": format!("http://{closed}/app.git") }))
        .await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    let table = env.table("app").await;
    assert!(table.contains("FetchFailed=True/GitOperationFailed"), "{table}");
    assert!(table.contains(&closed.to_string()), "{table}");
}

#[tokio::test]
async fn a_hanging_remote_times_out() {
    let env = TestEnvironment::new().await;
    env.server.fault(Scope::LS_REFS, Fault::Hung);
    env.create("app", json!({ "timeout": "200ms" })).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    insta::assert_snapshot!(env.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/GitOperationFailed @1 failed to checkout and determine revision: timed out: no complete response from git within 200ms (deadline exceeded)
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: timed out: no complete response from git within 200ms (deadline exceeded)
    generation 1 observed -1 artifact none
    event Warning GitOperationFailed failed to checkout and determine revision: timed out: no complete response from git within 200ms (deadline exceeded)
    ");
}

#[tokio::test]
async fn a_throttling_remote_is_retried_after_its_delay() {
    let env = TestEnvironment::new().await;
    env.server.fault(Scope::Any, Fault::RetryAfter(429, 17));
    env.create("app", json!({})).await;
    assert_eq!(
        env.reconcile("app").await,
        Requeue::After(Duration::from_secs(17))
    );
}

#[tokio::test]
async fn an_empty_repository_is_reported() {
    let env = TestEnvironment::with(Repository::create().unwrap()).await;
    env.create("app", json!({})).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    insta::assert_snapshot!(env.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/EmptyGitRepository @1 git repository is empty
    FetchFailed=True/EmptyGitRepository @1 git repository is empty
    generation 1 observed -1 artifact none
    event Warning EmptyGitRepository git repository is empty
    ");
}

#[tokio::test]
async fn a_corrupted_pack_is_refused_and_fetched_again() {
    let env = TestEnvironment::new().await;
    env.server.fault(Scope::FETCH, Fault::Corrupted(40));
    env.create("app", json!({})).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    let table = env.table("app").await;
    assert!(table.contains("FetchFailed=True/GitOperationFailed"), "{table}");
    assert!(table.contains("artifact none"), "{table}");
    env.server.clear_faults();
    env.reconcile("app").await;
    assert!(env.table("app").await.contains("Ready=True/Succeeded"));
}

#[tokio::test]
async fn a_repository_that_is_too_large_names_the_limit_and_its_flag() {
    let mut env = TestEnvironment::new().await;
    let noise: String = (0..40_000_u32)
        .map(|n| char::from(b'a' + u8::try_from(n * n % 23).unwrap()))
        .collect();
    env.commit("big", &[("big.txt", &noise)]);
    env.limit(Limits {
        pack_bytes: 200,
        ..Limits::default()
    });
    env.create("pack", json!({})).await;
    assert_eq!(env.reconcile("pack").await, Requeue::Backoff);
    insta::assert_snapshot!(env.table("pack").await, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact: new upstream revision 'main@sha1:<big>'
    Ready=False/GitOperationFailed @1 failed to checkout and determine revision: the repository is too large: more than 200 bytes in one fetch; raise --git-max-pack-bytes or make it smaller
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: the repository is too large: more than 200 bytes in one fetch; raise --git-max-pack-bytes or make it smaller
    generation 1 observed -1 artifact none
    event Warning GitOperationFailed failed to checkout and determine revision: the repository is too large: more than 200 bytes in one fetch; raise --git-max-pack-bytes or make it smaller
    ");
    env.limit(Limits {
        blob_bytes: 10_000,
        ..Limits::default()
    });
    env.create("blob", json!({})).await;
    assert_eq!(env.reconcile("blob").await, Requeue::Backoff);
    let table = env.table("blob").await;
    assert!(table.contains("--git-max-blob-bytes"), "{table}");
    assert!(table.contains("artifact none"), "{table}");
}

#[tokio::test]
async fn the_total_size_of_ignore_files_is_limited() {
    let mut env = TestEnvironment::new().await;
    let policy = "a\n".repeat(300);
    let files: Vec<_> = (0..4).map(|n| format!("{n}/.sourceignore")).collect();
    let files: Vec<_> = files
        .iter()
        .map(|path| (path.as_str(), policy.as_str()))
        .collect();
    env.commit("rules", &files);
    env.limit(Limits {
        ignore_bytes: 2000,
        ..Limits::default()
    });
    env.create("app", json!({})).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    let table = env.table("app").await;
    let text = "failed to read ignore file '3/.sourceignore': the ignore files have more than 2000 bytes together; raise --git-max-ignore-bytes";
    assert!(table.contains(text), "{table}");
    assert!(table.contains("artifact none"), "{table}");
}

#[tokio::test]
async fn the_total_number_of_ignore_patterns_is_limited() {
    let mut env = TestEnvironment::new().await;
    env.commit(
        "rules",
        &[
            ("0/.sourceignore", "a\nb\n# c\n\n"),
            ("1/.sourceignore", "a\nb\n"),
        ],
    );
    env.limit(Limits {
        ignore_patterns: 3,
        ..Limits::default()
    });
    env.create("app", json!({})).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    let table = env.table("app").await;
    let text = "failed to read ignore file '1/.sourceignore': the ignore files have more than 3 patterns together; raise --git-max-ignore-patterns";
    assert!(table.contains(text), "{table}");
    // One more is in the root.
    env.limit(Limits {
        ignore_patterns: 5,
        ..Limits::default()
    });
    env.reconcile("app").await;
    let table = env.table("app").await;
    assert!(table.contains("Ready=True/Succeeded"), "{table}");
}

#[tokio::test]
async fn a_name_with_a_control_character_fails_unless_it_is_ignored() {
    let mut env = TestEnvironment::new().await;
    env.commit("odd", &[("a/b\tc", ""), ("a/b", "")]);
    env.create("app", json!({})).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    let table = env.table("app").await;
    let text = r#"FetchFailed=True/GitOperationFailed @1 path "a/b\tc" has a control character"#;
    assert!(table.contains(text), "{table}");
    assert!(table.contains("artifact none"), "{table}");
    env.create("without", json!({ "ignore": "a/b?c" })).await;
    env.reconcile("without").await;
    let table = env.table("without").await;
    assert!(table.contains("Ready=True/Succeeded"), "{table}");
}

#[tokio::test]
async fn an_ignore_file_linked_out_of_the_repository_fails() {
    let mut env = TestEnvironment::new().await;
    env.repository.remove(".sourceignore").unwrap();
    env.repository.symlink(".sourceignore", "/etc/passwd").unwrap();
    env.commit("link", &[("a", "")]);
    env.create("app", json!({})).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    insta::assert_snapshot!(env.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 failed to read ignore file '.sourceignore': it links out of the repository
    Ready=False/ProgressingWithRetry @1 failed to read ignore file '.sourceignore': it links out of the repository
    generation 1 observed -1 artifact none
    event Warning SourceIgnoreError failed to read ignore file '.sourceignore': it links out of the repository
    ");
}
