//! Tests of every remote fault in every phase that contacts a remote: the affected object fails, keeps its artifact and
//! recovers; another object of the same host is unaffected.

use std::time::Duration;

use serde_json::json;
use sluice_harness::git::{Fault, Injection, Repository, Scope};

use super::environment::TestEnvironment;

/// Returns every fault of the server.
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

/// An object with an artifact and a new revision at its remote, and another object of the same host.
async fn environment() -> (TestEnvironment, Repository) {
    let mut env = TestEnvironment::new().await;
    let neighbour = Repository::create().unwrap();
    neighbour.commit_files(&[("main.tf", "")], "theirs").unwrap();
    let url = env.server.serve("neighbour", &neighbour);
    env.create("app", json!({})).await;
    env.create("neighbour", json!({ "url": url })).await;
    for name in ["app", "neighbour"] {
        env.reconcile(name).await;
    }
    env.commit("second", &[("main.tf", "locals { a = 1 }\n")]);
    (env, neighbour)
}

/// Sets the timeout of the object: a short one for a fault that lasts, and one that no other reconciliation reaches on a slow machine.
async fn set_timeout(env: &TestEnvironment, fault: Option<&Fault>) {
    let lasts = matches!(fault, Some(Fault::Hung | Fault::Stalled(_)));
    let timeout = if lasts { "600ms" } else { "60s" };
    env.edit("app", json!({ "spec": { "timeout": timeout } })).await;
}

async fn check_each_fault(scope: Scope) {
    let (env, _neighbour) = environment().await;
    let before = env.artifact("app").await;
    for fault in faults() {
        set_timeout(&env, Some(&fault)).await;
        // Cached server data is dropped after each failure, so each step is repeated.
        env.server
            .inject(Injection::new(scope, fault.clone()).repository("app"));
        env.reconcile("app").await;
        let table = env.summary("app").await;
        assert!(table.contains("Ready=False"), "{scope:?} {fault:?}: {table}");
        assert!(
            table.contains("FetchFailed=True/GitOperationFailed"),
            "{scope:?} {fault:?}: {table}"
        );
        assert!(
            table.contains("ArtifactInStorage=True"),
            "{scope:?} {fault:?}: {table}"
        );
        assert_eq!(env.artifact("app").await, before, "{scope:?} {fault:?}");
        assert!(env.file(&before).exists());
        env.reconcile("neighbour").await;
        let neighbour = env.summary("neighbour").await;
        assert!(
            neighbour.contains("Ready=True"),
            "{scope:?} {fault:?}: {neighbour}"
        );
        env.server.clear_faults();
        env.clock.advance(Duration::from_hours(1));
    }
    set_timeout(&env, None).await;
    env.reconcile("app").await;
    let table = env.summary("app").await;
    assert!(
        table.contains("Ready=True") && table.contains("<second>"),
        "{table}"
    );
}

#[tokio::test]
async fn faults_of_the_first_request() {
    check_each_fault(Scope::INFO_REFS).await;
}

#[tokio::test]
async fn faults_of_the_lookup() {
    check_each_fault(Scope::LS_REFS).await;
}

#[tokio::test]
async fn faults_of_the_fetch() {
    check_each_fault(Scope::FETCH).await;
}
