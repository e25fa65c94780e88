//! Tests of suspension, requests, deletion and panics.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::json;
use sluice_runtime::schedule::Backoff;
use sluice_runtime::shutdown::Token;
use sluice_runtime::watch::Requeue;

use super::environment::{LIMIT, TestEnvironment, has_condition};
use crate::git::{Checkout, FetchError, Head};
use crate::reconcile::{Origin, Source};

#[tokio::test]
async fn a_suspended_object_is_not_reconciled_until_it_is_resumed() {
    let mut env = TestEnvironment::ready().await;
    let commit = env.commit("second", &[("b.tf", "")]);
    env.edit("app", json!({ "spec": { "suspend": true } })).await;
    env.request("app", "one").await;
    env.server.clear_requests();
    assert_eq!(env.reconcile("app").await, Requeue::OnChange);
    insta::assert_snapshot!(env.table("app").await, @r"
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 2 observed 2 artifact main@sha1:<first>
    ");
    assert!(env.server.requests().is_empty());
    assert_eq!(
        env.status("app").await.last_handled_reconcile_at.as_deref(),
        Some("one")
    );
    env.edit("app", json!({ "spec": { "suspend": false } })).await;
    env.reconcile("app").await;
    assert!(env.artifact("app").await.revision.ends_with(&commit));
}

#[tokio::test]
async fn a_request_is_handled_by_successful_and_failed_reconciliations() {
    let env = TestEnvironment::new().await;
    env.create("app", json!({})).await;
    env.reconcile("app").await;
    for (token, away) in [("one", false), ("two", true)] {
        if away {
            env.server.withdraw("app");
        }
        env.request("app", token).await;
        env.reconcile("app").await;
        assert_eq!(
            env.status("app").await.last_handled_reconcile_at.as_deref(),
            Some(token)
        );
    }
    let before = env.get("app").await.metadata.resource_version;
    env.reconcile("app").await;
    assert_eq!(
        env.get("app").await.metadata.resource_version,
        before,
        "a request is handled once"
    );
}

#[tokio::test]
async fn deletion_removes_the_artifacts_even_without_the_remote() {
    let env = TestEnvironment::new().await;
    env.create("app", json!({})).await;
    env.reconcile("app").await;
    let artifact = env.artifact("app").await;
    env.table("app").await;
    env.server.withdraw("app");
    env.edit("app", json!({ "spec": { "suspend": true } })).await;
    env.delete("app").await;
    assert_eq!(env.reconcile("app").await, Requeue::OnChange);
    assert_eq!(
        env.events().await,
        ["event Normal GarbageCollectionSucceeded garbage collected artifacts for deleted resource"]
    );
    assert!(env.objects().get_opt("app").await.unwrap().is_none());
    assert!(!env.file(&artifact).parent().unwrap().exists());
}

#[tokio::test]
async fn a_shutdown_is_not_a_failure_of_an_object() {
    let env = TestEnvironment::ready().await;
    let before = env.get("app").await.metadata.resource_version;
    let stopped = || {
        let context = env.context();
        context.stop.cancel();
        context
    };
    // How far the reconciliation gets is undefined, but it must not report a failure.
    env.reconcile_in(stopped(), "app").await;
    assert_eq!(env.get("app").await.metadata.resource_version, before);
    env.delete("app").await;
    env.reconcile_in(stopped(), "app").await;
    let mut events = env.events().await;
    events.retain(|event| !event.contains("GarbageCollectionSucceeded"));
    assert_eq!(events, Vec::<String>::new());
    if env.objects().get_opt("app").await.unwrap().is_some() {
        env.reconcile("app").await;
    }
    assert!(env.objects().get_opt("app").await.unwrap().is_none());
}

#[tokio::test]
async fn events_carry_the_objects_event_annotations() {
    let env = TestEnvironment::new().await;
    env.create("app", json!({})).await;
    env.edit(
        "app",
        json!({ "metadata": { "annotations": { "event.toolkit.fluxcd.io/team": "a" } } }),
    )
    .await;
    env.reconcile("app").await;
    let table = env.table("app").await;
    assert!(table.contains("(team, files, digest, revision)"), "{table}");
}

/// Panics for one host, and fails for all others.
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
async fn a_panic_affects_only_its_own_object() {
    let env = TestEnvironment::new().await;
    env.create("bad", json!({ "url": "http://panics/x.git" })).await;
    env.create("good", json!({ "url": "http://elsewhere/x.git" }))
        .await;
    let controller = env.start_controller_with(env.context_with(Arc::new(Broken)), Backoff::default());
    env.until("good", has_condition("FetchFailed", "EmptyGitRepository"))
        .await;
    // The other object panics repeatedly without affecting others.
    let panics = async {
        while !controller
            .metrics
            .text()
            .lines()
            .any(|line| line.contains("panics_total") && !line.ends_with(" 0"))
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, panics).await.unwrap();
    env.delete("good").await;
    env.until_gone("good").await;
    controller.end().await;
}
