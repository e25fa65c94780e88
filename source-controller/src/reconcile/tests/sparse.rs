//! `spec.sparseCheckout`: only what it names is packed, and what it names has to be there.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_harness::git::Step;
use sluice_runtime::watch::Next;

use super::world::World;

/// A repository with a lightweight and an annotated tag at its only commit, whose server can leave files out.
async fn world() -> World {
    let mut world = World::new().await;
    let allow = ["config", "uploadpack.allowFilter", "true"];
    world.repository.git(allow).unwrap();
    world.commit(
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
    world.repository.tag("light").unwrap();
    world.repository.annotated_tag("heavy", "x").unwrap();
    world
}

async fn packed(world: &World, name: &str) -> Vec<String> {
    assert_eq!(
        world.pass(name).await,
        Next::After(std::time::Duration::from_secs(300)),
        "{:?}",
        world.status(name).await.conditions
    );
    world.names(&world.artifact(name).await)
}

#[tokio::test]
async fn every_kind_of_reference_can_be_sparse() {
    let world = world().await;
    let head = world.repository.head().unwrap();
    for tag in ["1.0.0", "1.1.0+a", "1.1.0+b"] {
        world.repository.tag(tag).unwrap();
    }
    let one = &[".", "other", "other/deep", "other/deep/e.tf"][..];
    let many = &[".", ".sourceignore", "main.tf", "other", "other/f.tf"][..];
    for (number, (reference, paths, wanted)) in [
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
        world
            .create(&name, json!({ "ref": reference, "sparseCheckout": paths }))
            .await;
        assert_eq!(packed(&world, &name).await, wanted, "{number}");
        assert_eq!(json!(world.status(&name).await.observed_sparse_checkout), paths);
    }
}

#[tokio::test]
async fn paths_select_by_their_text_and_bring_their_own_ignore_files() {
    let world = world().await;
    let everything = {
        world.create("all", json!({})).await;
        packed(&world, "all").await
    };
    for (number, (paths, wanted)) in [
        // The ignore file of the root is not selected, that of the directory is.
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
        world.create(&name, json!({ "sparseCheckout": paths })).await;
        assert_eq!(packed(&world, &name).await, wanted, "{paths}");
    }
}

#[tokio::test]
async fn a_path_that_is_not_there_is_named_and_looked_for_again() {
    let mut world = world().await;
    world
        .create("app", json!({ "sparseCheckout": ["other", "/none"] }))
        .await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    insta::assert_snapshot!(world.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact: new upstream revision 'main@sha1:<trees>'
    Ready=False/GitOperationFailed @1 failed to sparse checkout directories : sparse checkout dir '/none' does not exist in repository: no such file or directory
    FetchFailed=True/GitOperationFailed @1 failed to sparse checkout directories : sparse checkout dir '/none' does not exist in repository: no such file or directory
    generation 1 observed -1 artifact none
    event Warning GitOperationFailed failed to sparse checkout directories : sparse checkout dir '/none' does not exist in repository: no such file or directory
    ");
    world.commit("none", &[("none/x", "")]);
    world.pass("app").await;
    // A leading slash selects nothing, so it is not there.
    insta::assert_snapshot!(world.table("app").await, @r"
    Reconciling=True/ProgressingWithRetry @1 building artifact: new upstream revision 'main@sha1:<none>'
    Ready=False/GitOperationFailed @1 failed to sparse checkout directories : sparse checkout dir '/none' does not exist in repository: no such file or directory
    FetchFailed=True/GitOperationFailed @1 failed to sparse checkout directories : sparse checkout dir '/none' does not exist in repository: no such file or directory
    generation 1 observed -1 artifact none
    event Warning GitOperationFailed failed to sparse checkout directories : sparse checkout dir '/none' does not exist in repository: no such file or directory
    ");
    world
        .edit("app", json!({ "spec": { "sparseCheckout": ["other", "none"] } }))
        .await;
    assert_eq!(
        packed(&world, "app").await,
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
async fn paths_are_looked_for_within_the_repository() {
    let world = world().await;
    let outcome = async |name: &str, paths: Value| {
        world.create(name, json!({ "sparseCheckout": paths })).await;
        world.pass(name).await == Next::Backoff
    };
    assert!(!outcome("exists", json!(["other/deep/e.tf"])).await);
    assert!(!outcome("none", json!([])).await);
    assert!(outcome("missing", json!(["dir", "dirx"])).await);
    // A prefix of a name selects, but is no name itself.
    assert!(outcome("prefix", json!(["dirfoo"])).await);
    assert!(outcome("below-a-file", json!(["main.tf/x"])).await);
    // Looked for as `/etc/passwd` and `dir` below the root of the repository, where the one is not and the other not
    // selected.
    assert!(outcome("escape", json!(["dir", "../../etc/passwd"])).await);
    assert!(outcome("unselected", json!(["dir", "../other"])).await);
    assert!(!outcome("back-in", json!(["dir", "../dir"])).await);
}

#[tokio::test]
async fn other_paths_rebuild_the_artifact_of_the_same_commit() {
    let world = world().await;
    world.create("app", json!({ "sparseCheckout": ["other"] })).await;
    let before = packed(&world, "app").await;
    let digest = world.artifact("app").await.digest;
    for (paths, changes) in [
        (json!(["other"]), false),
        (json!(["./other"]), true),
        (json!(["other", "dir/"]), true),
        (json!(["dir/", "other"]), true),
        (json!(null), true),
        (json!([]), false),
    ] {
        let observed = world.status("app").await.content_config_checksum;
        world
            .edit("app", json!({ "spec": { "sparseCheckout": paths } }))
            .await;
        world.pass("app").await;
        let changed = world.status("app").await.content_config_checksum != observed;
        assert_eq!(changed, changes, "{paths}");
    }
    assert_ne!(world.artifact("app").await.digest, digest);
    world
        .edit("app", json!({ "spec": { "sparseCheckout": ["other"] } }))
        .await;
    assert_eq!(packed(&world, "app").await, before);
    assert_eq!(world.artifact("app").await.digest, digest);
}

#[tokio::test]
async fn a_new_commit_is_sparse_as_well_and_an_old_form_of_its_revision_is_no_news() {
    let mut world = world().await;
    world
        .create("app", json!({ "sparseCheckout": ["other/deep"] }))
        .await;
    packed(&world, "app").await;
    world.commit("next", &[("other/deep/n.tf", "n"), ("dir/n.tf", "n")]);
    assert_eq!(
        packed(&world, "app").await,
        [".", "other", "other/deep", "other/deep/e.tf", "other/deep/n.tf"]
    );
    let head = world.repository.head().unwrap();
    let legacy = json!({ "status": { "artifact": { "revision": format!("main/{head}") } } });
    let objects = world.objects();
    objects
        .patch_status("app", &PatchParams::default(), &Patch::Merge(legacy))
        .await
        .unwrap();
    let (digest, fetched) = (
        world.artifact("app").await.digest,
        world.server.count(Step::Fetch),
    );
    packed(&world, "app").await;
    assert_eq!(world.artifact("app").await.digest, digest);
    assert_eq!(world.server.count(Step::Fetch), fetched);
}

/// Makes an artifact of one of forty directories: its digest, and the bytes that the server sent for it.
async fn one_of_forty(filters: bool) -> (String, u64) {
    let mut world = World::new().await;
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
    world.commit("stacks", &files);
    let allow = [
        "config",
        "uploadpack.allowFilter",
        if filters { "true" } else { "false" },
    ];
    world.repository.git(allow).unwrap();
    world
        .create("app", json!({ "sparseCheckout": ["stack-7/"] }))
        .await;
    assert_eq!(packed(&world, "app").await, [".", "stack-7", "stack-7/main.tf"]);
    let requests = world.server.requests();
    let answers = requests.iter().filter(|request| request.step == Step::Fetch);
    let digest = world.artifact("app").await.digest;
    (digest, answers.map(|request| request.response_bytes).sum())
}

#[tokio::test]
async fn only_what_is_selected_travels_from_a_server_that_can_leave_files_out() {
    let (digest, all) = one_of_forty(false).await;
    let (same, part) = one_of_forty(true).await;
    assert_eq!(same, digest);
    assert!(part * 10 < all, "{part} of {all} bytes");
}
