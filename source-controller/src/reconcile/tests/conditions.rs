//! Tests of conditions: leftovers of earlier reconciliations, several failures at once, foreign types; and of events.

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_runtime::watch::Requeue;

use super::environment::TestEnvironment;

/// Adds conditions to a status.
async fn add_conditions(env: &TestEnvironment, conditions: &[(&str, &str, &str)]) {
    let existing = json!(env.status("app").await.conditions);
    let Value::Array(mut all) = existing else {
        unreachable!()
    };
    for (kind, status, reason) in conditions {
        all.retain(|existing| existing["type"] != *kind);
        all.push(json!({
            "type": kind, "status": status, "reason": reason, "message": "left over",
            "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 1,
        }));
    }
    let patch = json!({ "status": { "conditions": all } });
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    env.objects().patch_status("app", &params, &patch).await.unwrap();
}

#[tokio::test]
async fn success_removes_all_leftover_conditions() {
    let env = TestEnvironment::ready().await;
    let clean = env.table("app").await;
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
        // With the wrong polarity.
        &[
            ("FetchFailed", "False", "Succeeded"),
            ("ArtifactInStorage", "False", "x"),
        ],
    ] {
        add_conditions(&env, left_over).await;
        env.reconcile("app").await;
        env.events().await;
        assert_eq!(env.table("app").await, clean, "{left_over:?}");
    }
}

#[tokio::test]
async fn the_first_of_several_failures_is_ready_and_each_is_removed_by_its_own_phase() {
    let env = TestEnvironment::ready().await;
    env.server.withdraw("app");
    env.reconcile("app").await;
    env.edit(
        "app",
        json!({ "spec": { "include": [{ "repository": { "name": "lib" } }] } }),
    )
    .await;
    env.events().await;
    // The remote is not contacted this time, so its failure stays.
    env.reconcile("app").await;
    insta::assert_snapshot!(env.table("app").await, @r#"
    Reconciling=True/ProgressingWithRetry @2 processing object: new generation 1 -> 2
    Ready=False/GitOperationFailed @2 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    IncludeUnavailable=True/NotFound @2 could not get resource for include 'lib': GitRepository.source.toolkit.fluxcd.io "lib" not found
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    generation 2 observed 1 artifact main@sha1:<first>
    "#);
    env.server.serve("app", &env.repository);
    env.edit("app", json!({ "spec": { "include": null } })).await;
    env.reconcile("app").await;
    insta::assert_snapshot!(env.table("app").await, @"
    Ready=True/Succeeded @3 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @3 stored artifact for revision 'main@sha1:<first>'
    generation 3 observed 3 artifact main@sha1:<first>
    event Normal Succeeded stored artifact for commit 'main@sha1:<first>' (digest, revision)
    ");
}

#[tokio::test]
async fn conditions_of_other_writers_are_retained() {
    let mut env = TestEnvironment::ready().await;
    add_conditions(&env, &[("Foreign", "False", "Because")]).await;
    let foreign = |status: sluice_api::source::GitRepositoryStatus| {
        let mut found = status.conditions.into_iter().filter(|c| c.type_ == "Foreign");
        found.next()
    };
    let before = foreign(env.status("app").await);
    assert!(before.is_some());
    env.commit("second", &[("b.tf", "")]);
    env.reconcile("app").await;
    assert_eq!(foreign(env.status("app").await), before);
    env.server.withdraw("app");
    env.reconcile("app").await;
    assert_eq!(foreign(env.status("app").await), before);
}

#[tokio::test]
async fn a_message_is_truncated_to_the_limit_of_the_api() {
    let env = TestEnvironment::ready().await;
    let branch = "x".repeat(40_000);
    env.edit("app", json!({ "spec": { "ref": { "branch": branch } } }))
        .await;
    env.reconcile("app").await;
    let status = env.status("app").await;
    let failed = status
        .conditions
        .iter()
        .find(|c| c.type_ == "FetchFailed")
        .unwrap();
    assert_eq!(failed.message.len(), 32768);
    assert!(failed.message.ends_with("..."));
}

#[tokio::test]
async fn events_depend_on_the_previous_and_the_new_status() {
    let mut env = TestEnvironment::ready().await;
    let events = async |env: &TestEnvironment| {
        env.reconcile("app").await;
        env.masked(&env.events().await.join("\n"))
    };
    let mut scenario = vec![format!("no change: {}", events(&env).await)];
    env.server.withdraw("app");
    scenario.push(format!("failure: {}", events(&env).await));
    scenario.push(format!("the same failure: {}", events(&env).await));
    env.edit("app", json!({ "spec": { "url": "https://git:port/x" } }))
        .await;
    scenario.push(format!("another failure: {}", events(&env).await));
    let url = env.server.serve("app", &env.repository);
    env.edit("app", json!({ "spec": { "url": url } })).await;
    scenario.push(format!("recovery: {}", events(&env).await));
    env.server.withdraw("app");
    events(&env).await;
    env.server.serve("app", &env.repository);
    env.commit("second", &[("b.tf", "")]);
    scenario.push(format!("recovery with a new revision: {}", events(&env).await));
    // A new revision with an identical artifact.
    env.commit("third", &[("c.md", "")]);
    scenario.push(format!(
        "new revision with the same bytes: {}",
        events(&env).await
    ));
    insta::assert_snapshot!(scenario.join("\n"), @"
    no change: 
    failure: event Warning GitOperationFailed failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    the same failure: event Warning GitOperationFailed failed to checkout and determine revision: unable to list remote for 'http://git/app.git': repository not found: no such repository
    another failure: event Warning URLInvalid failed to parse url 'https://git:port/x': invalid port after host
    recovery: event Normal Succeeded stored artifact for commit 'main@sha1:<first>' (digest, revision)
    recovery with a new revision: event Normal NewArtifact stored artifact for commit 'second' (files, digest, revision)
    new revision with the same bytes:
    ");
}

#[tokio::test]
async fn an_object_deleted_before_its_finalizer_was_added_is_ignored() {
    let env = TestEnvironment::new().await;
    let object = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": { "name": "app", "finalizers": ["example.com/foreign"] },
        "spec": { "url": env.server.url("app"), "interval": "5m" },
    });
    let object = serde_json::from_value(object).unwrap();
    env.objects()
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
    env.delete("app").await;
    assert_eq!(env.reconcile("app").await, Requeue::OnChange);
    assert_eq!(env.writes(), "");
    assert!(env.events().await.is_empty());
    let object = env.get("app").await;
    assert_eq!(object.metadata.finalizers.unwrap(), ["example.com/foreign"]);
}
