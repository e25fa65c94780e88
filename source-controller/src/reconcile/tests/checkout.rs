//! Tests of every kind of reference: the resulting revision, and reconciliations without changes.

use serde_json::{Value, json};
use sluice_harness::git::Step;
use sluice_runtime::watch::Requeue;

use super::environment::TestEnvironment;

/// An environment with branches `master`, `main` and `side`, a pull request, and versions.
async fn published() -> TestEnvironment {
    let mut env = TestEnvironment::new().await;
    env.repository.git(["branch", "master"]).unwrap();
    for tag in ["0.1.0", "v0.2.0", "v0.2.1", "v1.0.0-alpha", "v1.1.0-alpha"] {
        env.commit(tag, &[("version.tf", tag)]);
        env.repository.annotated_tag(tag, "release").unwrap();
    }
    env.repository.branch("side").unwrap();
    env.commit("aside", &[("side.tf", "")]);
    env.repository.git(["checkout", "--quiet", "--detach"]).unwrap();
    let pull = env.commit("pull", &[("pull.tf", "")]);
    env.repository
        .git(["update-ref", "refs/pull/1/head", &pull])
        .unwrap();
    env.repository.checkout("main").unwrap();
    env
}

fn strategies(env: &TestEnvironment) -> Vec<(&'static str, Value)> {
    let pull = env.repository.resolve("refs/pull/1/head").unwrap();
    let first = env.repository.resolve("master").unwrap();
    vec![
        ("nothing", Value::Null),
        ("branch", json!({ "branch": "side" })),
        ("tag", json!({ "tag": "v0.2.0" })),
        ("commit", json!({ "commit": first })),
        ("commit-branch", json!({ "commit": first, "branch": "side" })),
        (
            "commit-name",
            json!({ "commit": pull, "name": "refs/pull/1/head" }),
        ),
        ("name-branch", json!({ "name": "refs/heads/side" })),
        ("name-tag", json!({ "name": "refs/tags/v0.2.0" })),
        ("name-peeled", json!({ "name": "refs/tags/v0.2.0^{}" })),
        ("name-pull", json!({ "name": "refs/pull/1/head" })),
        ("semver-any", json!({ "semver": "*" })),
        ("semver-below", json!({ "semver": "<v0.2.1" })),
        ("semver-pre", json!({ "semver": ">=1.0.0-0 <1.1.0-0" })),
        (
            "tag-before-semver",
            json!({ "tag": "0.1.0", "semver": "*", "branch": "main" }),
        ),
        (
            "name-before-tag",
            json!({ "name": "refs/heads/side", "tag": "0.1.0" }),
        ),
    ]
}

#[tokio::test]
async fn every_strategy_has_its_revision() {
    let env = published().await;
    let mut revisions = Vec::new();
    for (name, reference) in strategies(&env) {
        env.create(name, json!({ "ref": reference })).await;
        env.reconcile(name).await;
        revisions.push(format!("{name}: {}", env.artifact(name).await.revision));
    }
    insta::assert_snapshot!(env.masked(&revisions.join("\n")), @r"
    nothing: master@sha1:<first>
    branch: side@sha1:<aside>
    tag: v0.2.0@sha1:<v0.2.0>
    commit: sha1:<first>
    commit-branch: side@sha1:<first>
    commit-name: refs/pull/1/head@sha1:<pull>
    name-branch: refs/heads/side@sha1:<aside>
    name-tag: refs/tags/v0.2.0@sha1:<v0.2.0>
    name-peeled: refs/tags/v0.2.0^{}@sha1:<v0.2.0>
    name-pull: refs/pull/1/head@sha1:<pull>
    semver-any: v0.2.1@sha1:<v0.2.1>
    semver-below: v0.2.0@sha1:<v0.2.0>
    semver-pre: v1.0.0-alpha@sha1:<v1.0.0-alpha>
    tag-before-semver: 0.1.0@sha1:<0.1.0>
    name-before-tag: refs/heads/side@sha1:<aside>
    ");
}

#[tokio::test]
async fn an_unchanged_reference_causes_no_fetch_and_no_write() {
    let env = published().await;
    for (name, reference) in strategies(&env) {
        env.create(name, json!({ "ref": reference })).await;
        env.reconcile(name).await;
        env.events().await;
        let before = env.get(name).await.metadata.resource_version;
        env.server.clear_requests();
        assert!(matches!(env.reconcile(name).await, Requeue::After(_)), "{name}");
        let steps: Vec<_> = env.server.requests().iter().map(|request| request.step).collect();
        let pinned = name.starts_with("commit");
        assert!(
            !steps.contains(&Step::Fetch) && (!pinned || steps.is_empty()),
            "{name}: {steps:?}"
        );
        assert_eq!(env.get(name).await.metadata.resource_version, before, "{name}");
        assert_eq!(env.events().await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn an_unselected_version_changes_nothing() {
    let mut env = published().await;
    env.create("app", json!({ "ref": { "semver": "0.2.x" } })).await;
    env.reconcile("app").await;
    env.events().await;
    let before = env.get("app").await.metadata.resource_version;
    env.commit("v2.0.0", &[("version.tf", "2")]);
    env.repository.annotated_tag("v2.0.0", "release").unwrap();
    env.repository.git(["tag", "--delete", "0.1.0"]).unwrap();
    env.reconcile("app").await;
    assert_eq!(env.get("app").await.metadata.resource_version, before);
    env.commit("v0.2.7", &[("version.tf", "0.2.7")]);
    env.repository.annotated_tag("v0.2.7", "release").unwrap();
    env.reconcile("app").await;
    insta::assert_snapshot!(env.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'v0.2.7@sha1:<v0.2.7>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'v0.2.7@sha1:<v0.2.7>'
    generation 1 observed 1 artifact v0.2.7@sha1:<v0.2.7>
    event Normal NewArtifact stored artifact for commit 'v0.2.7' (files, digest, revision)
    ");
}

#[tokio::test]
async fn another_ignore_rule_builds_an_artifact_of_the_same_revision() {
    let env = published().await;
    env.create("app", json!({ "ref": { "semver": "*" } })).await;
    env.reconcile("app").await;
    let before = env.artifact("app").await;
    env.edit("app", json!({ "spec": { "ignore": "version.tf" } }))
        .await;
    env.reconcile("app").await;
    let after = env.artifact("app").await;
    assert_eq!(before.revision, after.revision);
    assert_ne!(before.digest, after.digest);
    assert!(!env.names(&after).contains(&"version.tf".to_owned()));
}

#[tokio::test]
async fn legacy_revisions_are_compared_in_the_current_format() {
    let env = TestEnvironment::new().await;
    let commit = env.repository.head().unwrap();
    for (name, reference, legacy) in [
        ("branch", json!({ "branch": "main" }), format!("main/{commit}")),
        ("commit", json!({ "commit": commit }), format!("HEAD/{commit}")),
        ("bare", json!({ "commit": commit }), commit.clone()),
    ] {
        env.create(name, json!({ "ref": reference })).await;
        env.reconcile(name).await;
        let patch = kube::api::Patch::Merge(json!({ "status": { "artifact": { "revision": legacy } } }));
        env.objects()
            .patch_status(name, &kube::api::PatchParams::default(), &patch)
            .await
            .unwrap();
        env.events().await;
        env.server.clear_requests();
        env.reconcile(name).await;
        assert_eq!(env.server.count(Step::Fetch), 0, "{name}");
        assert_eq!(env.artifact(name).await.revision, legacy, "{name}");
        assert_eq!(env.events().await, Vec::<String>::new(), "{name}");
        // Other content of the same commit is not a new revision either.
        env.edit(name, json!({ "spec": { "ignore": "main.tf" } })).await;
        env.reconcile(name).await;
        let events = env.table(name).await;
        assert!(!events.contains("new upstream revision"), "{events}");
        assert!(env.artifact(name).await.revision.contains("sha1:"), "{name}");
    }
}

#[tokio::test]
async fn refs_that_cannot_be_found_are_named() {
    let env = published().await;
    let missing = "0123456789abcdef0123456789abcdef01234567";
    let mut failures = Vec::new();
    for (name, reference) in [
        ("tag", json!({ "tag": "v9" })),
        ("name", json!({ "name": "refs/pull/9/head" })),
        ("slash", json!({ "name": "refs/heads/main/" })),
        ("none", json!({ "semver": ">9" })),
        ("text", json!({ "semver": "newest" })),
        ("commit", json!({ "commit": missing })),
    ] {
        env.create(name, json!({ "ref": reference })).await;
        assert_eq!(env.reconcile(name).await, Requeue::Backoff, "{name}");
        failures.extend(
            env.table(name)
                .await
                .lines()
                .filter(|line| line.starts_with("FetchFailed"))
                .map(|line| format!("{name}: {line}")),
        );
    }
    insta::assert_snapshot!(env.masked(&failures.join("\n")), @r#"
    tag: FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: unable to clone 'http://git/app.git': couldn't find remote ref "refs/tags/v9"
    name: FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: unable to resolve ref 'refs/pull/9/head' to a specific commit
    slash: FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: ref refs/heads/main/ is invalid; Git refs cannot begin or end with a slash '/'
    none: FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: no match found for semver: >9
    text: FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: semver parse error: improper constraint: "newest"
    commit: FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: unable to resolve commit object for '0123456789abcdef0123456789abcdef01234567': object not found
    "#);
}

#[tokio::test]
async fn a_long_subject_is_cut_after_fifty_characters() {
    let mut env = TestEnvironment::new().await;
    let subject = format!("{} and more", "ü".repeat(50));
    env.commit(&subject, &[("a.tf", "")]);
    env.create("app", json!({})).await;
    env.reconcile("app").await;
    let events = env.events().await.join("\n");
    let expected = format!("stored artifact for commit '{}...'", "ü".repeat(50));
    assert!(events.contains(&expected), "{events}");
}
