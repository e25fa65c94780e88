//! Commits become artifacts.

use std::time::Duration;

use serde_json::json;
use sluice_harness::git::Step;
use sluice_runtime::watch::Next;

use super::world::World;
use crate::archive::{Algorithm, Hasher};

const INTERVAL: Next = Next::After(Duration::from_secs(300));

#[tokio::test]
async fn a_commit_becomes_an_artifact() {
    let world = World::new().await;
    world.create("app", json!({})).await;
    assert_eq!(world.pass("app").await, INTERVAL);
    insta::assert_snapshot!(world.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 1 observed 1 artifact main@sha1:<first>
    event Normal NewArtifact stored artifact for commit 'first' (files, digest, revision)
    ");
    let artifact = world.artifact("app").await;
    insta::assert_snapshot!(world.masked(&artifact.url), @r"
    http://sc/gitrepository/team/app/<first>.tar.gz
    ");
    assert_eq!(world.names(&artifact), [".", ".sourceignore", "main.tf"]);
    let content = std::fs::read(world.file(&artifact)).unwrap();
    assert_eq!(artifact.size, Some(i64::try_from(content.len()).unwrap()));
    assert_eq!(
        artifact.digest,
        Hasher::of(Algorithm::Sha256, content.as_slice())
            .unwrap()
            .to_string()
    );
    assert!(
        world
            .status("app")
            .await
            .content_config_checksum
            .is_some_and(|sum| sum.starts_with("sha256:"))
    );
}

#[tokio::test]
async fn an_unchanged_head_costs_one_lookup_and_writes_nothing() {
    let world = World::ready().await;
    let before = world.get("app").await.metadata.resource_version;
    world.server.clear_requests();
    assert_eq!(world.pass("app").await, INTERVAL);
    assert_eq!(world.get("app").await.metadata.resource_version, before);
    assert_eq!(
        (world.server.count(Step::LsRefs), world.server.count(Step::Fetch)),
        (1, 0)
    );
    insta::assert_snapshot!(world.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 1 observed 1 artifact main@sha1:<first>
    ");
}

#[tokio::test]
async fn a_new_commit_supersedes_the_artifact_which_stays_for_its_time() {
    let mut world = World::ready().await;
    let old = world.artifact("app").await;
    world.commit("second", &[("main.tf", "locals { a = 1 }\n")]);
    world.pass("app").await;
    insta::assert_snapshot!(world.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<second>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<second>'
    generation 1 observed 1 artifact main@sha1:<second>
    event Normal NewArtifact stored artifact for commit 'second' (files, digest, revision)
    ");
    assert!(world.file(&old).exists());
    world.clock.advance(Duration::from_secs(59));
    world.pass("app").await;
    assert!(world.file(&old).exists());
    world.clock.advance(Duration::from_secs(2));
    world.pass("app").await;
    assert!(!world.file(&old).exists());
    assert!(world.file(&world.artifact("app").await).exists());
}

#[tokio::test]
async fn other_ignore_rules_rebuild_the_artifact_of_the_same_commit() {
    let world = World::ready().await;
    let before = world.artifact("app").await;
    world
        .edit("app", json!({ "spec": { "ignore": "!README.md\n" } }))
        .await;
    world.pass("app").await;
    insta::assert_snapshot!(world.table("app").await, @r"
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    generation 2 observed 2 artifact main@sha1:<first>
    event Normal NewArtifact stored artifact for commit 'first' (files, digest, revision)
    ");
    let after = world.artifact("app").await;
    assert_eq!((&before.revision, &before.path), (&after.revision, &after.path));
    assert_ne!(before.digest, after.digest);
    assert_eq!(
        world.names(&after),
        [".", ".sourceignore", "README.md", "main.tf"]
    );
    // Back to none, which is not the same as empty.
    world.edit("app", json!({ "spec": { "ignore": "" } })).await;
    world.pass("app").await;
    assert_eq!(world.status("app").await.observed_ignore.as_deref(), Some(""));
    assert_eq!(world.artifact("app").await.digest, before.digest);
}

#[tokio::test]
async fn branches_tags_and_commits_are_followed() {
    let mut world = World::new().await;
    let first = world.repository.head().unwrap();
    world.repository.annotated_tag("v1", "one").unwrap();
    world.commit("second", &[("b.tf", "")]);
    for (name, reference) in [
        ("tag", json!({ "tag": "v1" })),
        ("commit", json!({ "commit": first })),
        ("both", json!({ "commit": first, "branch": "main" })),
        ("branch", json!({ "branch": "main" })),
    ] {
        world.create(name, json!({ "ref": reference })).await;
        world.pass(name).await;
    }
    let mut revisions = Vec::new();
    for name in ["tag", "commit", "both", "branch"] {
        revisions.push(format!("{name}: {}", world.artifact(name).await.revision));
    }
    insta::assert_snapshot!(world.masked(&revisions.join("\n")), @r"
    tag: v1@sha1:<first>
    commit: sha1:<first>
    both: main@sha1:<first>
    branch: main@sha1:<second>
    ");
}

#[tokio::test]
async fn two_objects_of_one_repository_fetch_it_once() {
    let world = World::new().await;
    for name in ["one", "two"] {
        world.create(name, json!({})).await;
        world.pass(name).await;
    }
    assert_eq!(world.server.count(Step::Fetch), 1);
    let (one, two) = (world.artifact("one").await, world.artifact("two").await);
    assert_eq!(one.digest, two.digest);
    assert_ne!(one.path, two.path);
}

#[tokio::test]
async fn pointers_and_names_that_consumers_refuse_are_told_once_for_each_artifact() {
    let mut world = World::new().await;
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n";
    world.commit(
        "large",
        &[
            ("data/a.bin", pointer),
            ("data/b.bin", pointer),
            ("con.txt", ""),
            ("odd\\name", ""),
            ("up../x", ""),
        ],
    );
    world.create("app", json!({ "ignore": "/data/b.bin\n" })).await;
    assert_eq!(world.pass("app").await, INTERVAL);
    let told = |lines: Vec<String>| -> Vec<String> {
        let about = |line: &String| line.contains("LFS") || line.contains("refuse");
        lines.into_iter().filter(about).collect()
    };
    assert_eq!(
        told(world.told().await),
        [
            "event Normal GitLFSPointers the artifact holds Git LFS pointers instead of files: 1, the first is 'data/a.bin'; \
             LFS content is not fetched",
            "event Warning UnreadablePath consumers refuse the artifact for names with a backslash, a tab, a line break or a \
             directory that ends in '..': 2, the first is 'odd\\\\name'; rename them or leave them out with spec.ignore",
        ]
    );
    assert!(
        world
            .names(&world.artifact("app").await)
            .contains(&"con.txt".to_owned())
    );
    // The same bytes again are no new artifact.
    world
        .edit("app", json!({ "spec": { "ignore": "data/b.bin\n" } }))
        .await;
    assert_eq!(world.pass("app").await, INTERVAL);
    assert_eq!(told(world.told().await), [""; 0]);
}

#[tokio::test]
async fn links_are_left_out_and_a_linked_ignore_file_counts() {
    let mut world = World::new().await;
    world.repository.remove(".sourceignore").unwrap();
    world.repository.symlink(".sourceignore", "rules/ignore").unwrap();
    world.repository.symlink("link.tf", "main.tf").unwrap();
    world
        .repository
        .write_executable("run.sh", "#!/bin/sh\n")
        .unwrap();
    world.commit("links", &[("rules/ignore", "*.txt\n"), ("a.txt", "")]);
    world.create("app", json!({})).await;
    world.pass("app").await;
    let names = world.names(&world.artifact("app").await);
    assert_eq!(
        names,
        [".", "README.md", "main.tf", "rules", "rules/ignore", "run.sh"]
    );
}
