//! Tests of `spec.sparseCheckout`.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_harness::git::Step;
use sluice_runtime::watch::Requeue;

use super::environment::TestEnvironment;

/// An environment with a lightweight and an annotated tag, and a server that supports filters.
async fn environment() -> TestEnvironment {
    let mut env = TestEnvironment::new().await;
    let allow = ["config", "uploadpack.allowFilter", "true"];
    env.repository.git(allow).unwrap();
    env.commit(
        "trees",
        &[
            ("dir/a.tf", "a"),
            ("dir/.sourceignore", "*.txt\n"),
            ("dir/b.txt", "b"),
            ("dir-old/c.tf", "c"),
            ("dirfoo.txt", "d"),
            ("other/deep/e.tf", "e"),
            ("other/f.tf", "f"),
            (".github/g.yaml", "g"),
        ],
    );
    env.repository.tag("light").unwrap();
    env.repository.annotated_tag("heavy", "x").unwrap();
    env
}

async fn packed(env: &TestEnvironment, name: &str) -> Vec<String> {
    assert_eq!(
        env.reconcile(name).await,
        Requeue::After(std::time::Duration::from_mins(5)),
        "{:?}",
        env.status(name).await.conditions
    );
    env.names(&env.artifact(name).await)
}

#[tokio::test]
async fn every_kind_of_reference_can_be_sparse() {
    let env = environment().await;
    let head = env.repository.head().unwrap();
    for tag in ["1.0.0", "1.1.0+a", "1.1.0+b"] {
        env.repository.tag(tag).unwrap();
    }
    let one = &[".", "other", "other/deep", "other/deep/e.tf"][..];
    let many = &[".", ".sourceignore", "main.tf", "other", "other/f.tf"][..];
    for (number, (reference, paths, expected)) in [
        (json!({ "branch": "main" }), json!(["other/deep"]), one),
        (
            json!({ "branch": "main" }),
            json!(["./other/f.tf", "main.tf", ".sourceignore"]),
            many,
        ),
        (json!({ "commit": head }), json!(["other/deep/"]), one),
        (
            json!({ "commit": head, "branch": "main" }),
            json!(["other/deep"]),
            one,
        ),
        (json!({ "tag": "light" }), json!(["other/deep"]), one),
        (json!({ "semver": "1.0.x" }), json!(["other/deep"]), one),
        (json!({ "semver": "*" }), json!(["other/deep"]), one),
        (json!({ "name": "refs/heads/main" }), json!(["other/deep"]), one),
        (
            json!({ "tag": "heavy" }),
            json!(["other/f.tf", "main.tf", ".sourceignore"]),
            many,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("app-{number}");
        env.create(&name, json!({ "ref": reference, "sparseCheckout": paths }))
            .await;
        assert_eq!(packed(&env, &name).await, expected, "{number}");
        assert_eq!(json!(env.status(&name).await.observed_sparse_checkout), paths);
    }
}

#[tokio::test]
async fn sparse_paths_select_by_prefix_with_their_own_ignore_files() {
    let env = environment().await;
    let everything = {
        env.create("all", json!({})).await;
        packed(&env, "all").await
    };
    for (number, (paths, expected)) in [
        // The ignore file of the root is not selected; that of the directory is.
        (
            json!(["dir"]),
            vec![
                ".",
                "dir",
                "dir/.sourceignore",
                "dir/a.tf",
                "dir-old",
                "dir-old/c.tf",
                "dirfoo.txt",
            ],
        ),
        (json!(["dir/"]), vec![".", "dir", "dir/.sourceignore", "dir/a.tf"]),
        (
            json!([".", ".github"]),
            vec![".", ".github", ".github/g.yaml", ".sourceignore"],
        ),
        (json!([""]), everything.iter().map(String::as_str).collect()),
        (json!(["./"]), everything.iter().map(String::as_str).collect()),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("app-{number}");
        env.create(&name, json!({ "sparseCheckout": paths })).await;
        assert_eq!(packed(&env, &name).await, expected, "{paths}");
    }
}

#[tokio::test]
async fn a_missing_sparse_path_is_reported_and_retried() {
    let mut env = environment().await;
    env.create("app", json!({ "sparseCheckout": ["other", "/none"] }))
        .await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    insta::assert_snapshot!(env.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact: new upstream revision 'main@sha1:<trees>'
    Ready=False/GitOperationFailed @1 failed to sparse checkout directories : sparse checkout dir '/none' does not exist in repository: no such file or directory
    FetchFailed=True/GitOperationFailed @1 failed to sparse checkout directories : sparse checkout dir '/none' does not exist in repository: no such file or directory
    generation 1 observed -1 artifact none
    event Warning GitOperationFailed failed to sparse checkout directories : sparse checkout dir '/none' does not exist in repository: no such file or directory
    ");
    env.commit("none", &[("none/x", "")]);
    env.reconcile("app").await;
    // A path with a leading slash selects nothing, so it counts as missing.
    insta::assert_snapshot!(env.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact: new upstream revision 'main@sha1:<none>'
    Ready=False/GitOperationFailed @1 failed to sparse checkout directories : sparse checkout dir '/none' does not exist in repository: no such file or directory
    FetchFailed=True/GitOperationFailed @1 failed to sparse checkout directories : sparse checkout dir '/none' does not exist in repository: no such file or directory
    generation 1 observed -1 artifact none
    event Warning GitOperationFailed failed to sparse checkout directories : sparse checkout dir '/none' does not exist in repository: no such file or directory
    ");
    env.edit("app", json!({ "spec": { "sparseCheckout": ["other", "none"] } }))
        .await;
    assert_eq!(
        packed(&env, "app").await,
        [
            ".",
            "none",
            "none/x",
            "other",
            "other/deep",
            "other/deep/e.tf",
            "other/f.tf"
        ]
    );
}

#[tokio::test]
async fn sparse_paths_are_resolved_within_the_repository() {
    let env = environment().await;
    let outcome = async |name: &str, paths: Value| {
        env.create(name, json!({ "sparseCheckout": paths })).await;
        env.reconcile(name).await == Requeue::Backoff
    };
    assert!(!outcome("exists", json!(["other/deep/e.tf"])).await);
    assert!(!outcome("none", json!([])).await);
    assert!(outcome("missing", json!(["dir", "dirx"])).await);
    // A prefix of a name selects, but does not exist as a path.
    assert!(outcome("prefix", json!(["dirfoo"])).await);
    assert!(outcome("below-a-file", json!(["main.tf/x"])).await);
    // Resolved below the root of the repository to `/etc/passwd` and `dir`: the former does not exist, the latter is
    // not selected.
    assert!(outcome("escape", json!(["dir", "../../etc/passwd"])).await);
    assert!(outcome("unselected", json!(["dir", "../other"])).await);
    assert!(!outcome("back-in", json!(["dir", "../dir"])).await);
}

#[tokio::test]
async fn other_paths_rebuild_the_artifact_of_the_same_commit() {
    let env = environment().await;
    env.create("app", json!({ "sparseCheckout": ["other"] })).await;
    let before = packed(&env, "app").await;
    let digest = env.artifact("app").await.digest;
    for (paths, changes) in [
        (json!(["other"]), false),
        (json!(["./other"]), true),
        (json!(["other", "dir/"]), true),
        (json!(["dir/", "other"]), true),
        (json!(null), true),
        (json!([]), false),
    ] {
        let observed = env.status("app").await.content_config_checksum;
        env.edit("app", json!({ "spec": { "sparseCheckout": paths } }))
            .await;
        env.reconcile("app").await;
        let changed = env.status("app").await.content_config_checksum != observed;
        assert_eq!(changed, changes, "{paths}");
    }
    assert_ne!(env.artifact("app").await.digest, digest);
    env.edit("app", json!({ "spec": { "sparseCheckout": ["other"] } }))
        .await;
    assert_eq!(packed(&env, "app").await, before);
    assert_eq!(env.artifact("app").await.digest, digest);
}

#[tokio::test]
async fn a_new_commit_is_sparse_and_its_legacy_revision_is_unchanged() {
    let mut env = environment().await;
    env.create("app", json!({ "sparseCheckout": ["other/deep"] }))
        .await;
    packed(&env, "app").await;
    env.commit("next", &[("other/deep/n.tf", "n"), ("dir/n.tf", "n")]);
    assert_eq!(
        packed(&env, "app").await,
        [".", "other", "other/deep", "other/deep/e.tf", "other/deep/n.tf"]
    );
    let head = env.repository.head().unwrap();
    let legacy = json!({ "status": { "artifact": { "revision": format!("main/{head}") } } });
    let objects = env.objects();
    objects
        .patch_status("app", &PatchParams::default(), &Patch::Merge(legacy))
        .await
        .unwrap();
    let (digest, fetched) = (env.artifact("app").await.digest, env.server.count(Step::Fetch));
    packed(&env, "app").await;
    assert_eq!(env.artifact("app").await.digest, digest);
    assert_eq!(env.server.count(Step::Fetch), fetched);
}

/// Builds an artifact of one of forty directories; returns its digest and the number of bytes sent by the server.
async fn one_of_forty(filters: bool) -> (String, u64) {
    let mut env = TestEnvironment::new().await;
    let noise = |seed: u64| -> String {
        let next = |n: &u64| Some(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        let numbers = std::iter::successors(Some(seed), next).take(2000);
        numbers.map(|n| n.to_string()).collect()
    };
    let files: Vec<_> = (0..40)
        .map(|n| (format!("stack-{n}/main.tf"), noise(n)))
        .collect();
    let files: Vec<_> = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    env.commit("stacks", &files);
    let allow = [
        "config",
        "uploadpack.allowFilter",
        if filters { "true" } else { "false" },
    ];
    env.repository.git(allow).unwrap();
    env.create("app", json!({ "sparseCheckout": ["stack-7/"] })).await;
    assert_eq!(packed(&env, "app").await, [".", "stack-7", "stack-7/main.tf"]);
    let requests = env.server.requests();
    let responses = requests.iter().filter(|request| request.step == Step::Fetch);
    let digest = env.artifact("app").await.digest;
    (digest, responses.map(|request| request.response_bytes).sum())
}

#[tokio::test]
async fn only_selected_files_are_fetched_from_a_server_with_filters() {
    let (digest, all) = one_of_forty(false).await;
    let (same, part) = one_of_forty(true).await;
    assert_eq!(same, digest);
    assert!(part * 10 < all, "{part} of {all} bytes");
}
