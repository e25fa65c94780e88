//! Every way to say which commit is wanted: what becomes of it, and that looking again changes nothing.

use serde_json::{Value, json};
use sluice_harness::git::Step;
use sluice_runtime::watch::Next;

use super::world::World;

/// Branches `master`, `main` and `side`, a pull request, and versions.
async fn published() -> World {
    let mut world = World::new().await;
    world.repository.git(["branch", "master"]).unwrap();
    for tag in ["0.1.0", "v0.2.0", "v0.2.1", "v1.0.0-alpha", "v1.1.0-alpha"] {
        world.commit(tag, &[("version.tf", tag)]);
        world.repository.annotated_tag(tag, "release").unwrap();
    }
    world.repository.branch("side").unwrap();
    world.commit("aside", &[("side.tf", "")]);
    world.repository.git(["checkout", "--quiet", "--detach"]).unwrap();
    let pull = world.commit("pull", &[("pull.tf", "")]);
    world
        .repository
        .git(["update-ref", "refs/pull/1/head", &pull])
        .unwrap();
    world.repository.checkout("main").unwrap();
    world
}

fn strategies(world: &World) -> Vec<(&'static str, Value)> {
    let pull = world.repository.resolve("refs/pull/1/head").unwrap();
    let first = world.repository.resolve("master").unwrap();
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
    let world = published().await;
    let mut revisions = Vec::new();
    for (name, reference) in strategies(&world) {
        world.create(name, json!({ "ref": reference })).await;
        world.pass(name).await;
        revisions.push(format!("{name}: {}", world.artifact(name).await.revision));
    }
    insta::assert_snapshot!(world.masked(&revisions.join("\n")), @r"
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
async fn looking_again_moves_nothing_and_writes_nothing_whatever_the_strategy() {
    let world = published().await;
    for (name, reference) in strategies(&world) {
        world.create(name, json!({ "ref": reference })).await;
        world.pass(name).await;
        world.told().await;
        let before = world.get(name).await.metadata.resource_version;
        world.server.clear_requests();
        assert!(matches!(world.pass(name).await, Next::After(_)), "{name}");
        let steps: Vec<_> = world
            .server
            .requests()
            .iter()
            .map(|request| request.step)
            .collect();
        let pinned = name.starts_with("commit");
        assert!(
            !steps.contains(&Step::Fetch) && (!pinned || steps.is_empty()),
            "{name}: {steps:?}"
        );
        assert_eq!(world.get(name).await.metadata.resource_version, before, "{name}");
        assert_eq!(world.told().await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn a_version_that_is_not_picked_is_no_news() {
    let mut world = published().await;
    world.create("app", json!({ "ref": { "semver": "0.2.x" } })).await;
    world.pass("app").await;
    world.told().await;
    let before = world.get("app").await.metadata.resource_version;
    world.commit("v2.0.0", &[("version.tf", "2")]);
    world.repository.annotated_tag("v2.0.0", "release").unwrap();
    world.repository.git(["tag", "--delete", "0.1.0"]).unwrap();
    world.pass("app").await;
    assert_eq!(world.get("app").await.metadata.resource_version, before);
    world.commit("v0.2.7", &[("version.tf", "0.2.7")]);
    world.repository.annotated_tag("v0.2.7", "release").unwrap();
    world.pass("app").await;
    insta::assert_snapshot!(world.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'v0.2.7@sha1:<v0.2.7>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'v0.2.7@sha1:<v0.2.7>'
    generation 1 observed 1 artifact v0.2.7@sha1:<v0.2.7>
    event Normal NewArtifact stored artifact for commit 'v0.2.7' (files, digest, revision)
    ");
}

#[tokio::test]
async fn another_ignore_rule_makes_an_artifact_of_the_same_revision() {
    let world = published().await;
    world.create("app", json!({ "ref": { "semver": "*" } })).await;
    world.pass("app").await;
    let before = world.artifact("app").await;
    world
        .edit("app", json!({ "spec": { "ignore": "version.tf" } }))
        .await;
    world.pass("app").await;
    let after = world.artifact("app").await;
    assert_eq!(before.revision, after.revision);
    assert_ne!(before.digest, after.digest);
    assert!(!world.names(&after).contains(&"version.tf".to_owned()));
}

#[tokio::test]
async fn revisions_of_older_versions_are_compared_in_todays_form() {
    let world = World::new().await;
    let commit = world.repository.head().unwrap();
    for (name, reference, legacy) in [
        ("branch", json!({ "branch": "main" }), format!("main/{commit}")),
        ("commit", json!({ "commit": commit }), format!("HEAD/{commit}")),
        ("bare", json!({ "commit": commit }), commit.clone()),
    ] {
        world.create(name, json!({ "ref": reference })).await;
        world.pass(name).await;
        let patch = kube::api::Patch::Merge(json!({ "status": { "artifact": { "revision": legacy } } }));
        world
            .objects()
            .patch_status(name, &kube::api::PatchParams::default(), &patch)
            .await
            .unwrap();
        world.told().await;
        world.server.clear_requests();
        world.pass(name).await;
        assert_eq!(world.server.count(Step::Fetch), 0, "{name}");
        assert_eq!(world.artifact(name).await.revision, legacy, "{name}");
        assert_eq!(world.told().await, Vec::<String>::new(), "{name}");
        // Other content of the same commit is no new revision either.
        world.edit(name, json!({ "spec": { "ignore": "main.tf" } })).await;
        world.pass(name).await;
        let told = world.table(name).await;
        assert!(!told.contains("new upstream revision"), "{told}");
        assert!(world.artifact(name).await.revision.contains("sha1:"), "{name}");
    }
}

#[tokio::test]
async fn refs_that_cannot_be_found_are_named() {
    let world = published().await;
    let missing = "0123456789abcdef0123456789abcdef01234567";
    let mut shown = Vec::new();
    for (name, reference) in [
        ("tag", json!({ "tag": "v9" })),
        ("name", json!({ "name": "refs/pull/9/head" })),
        ("slash", json!({ "name": "refs/heads/main/" })),
        ("none", json!({ "semver": ">9" })),
        ("text", json!({ "semver": "newest" })),
        ("commit", json!({ "commit": missing })),
    ] {
        world.create(name, json!({ "ref": reference })).await;
        assert_eq!(world.pass(name).await, Next::Backoff, "{name}");
        shown.extend(
            world
                .table(name)
                .await
                .lines()
                .filter(|line| line.starts_with("FetchFailed"))
                .map(|line| format!("{name}: {line}")),
        );
    }
    insta::assert_snapshot!(world.masked(&shown.join("\n")), @r#"
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
    let mut world = World::new().await;
    let subject = format!("{} and more", "ü".repeat(50));
    world.commit(&subject, &[("a.tf", "")]);
    world.create("app", json!({})).await;
    world.pass("app").await;
    let told = world.told().await.join("\n");
    let wanted = format!("stored artifact for commit '{}...'", "ü".repeat(50));
    assert!(told.contains(&wanted), "{told}");
}
