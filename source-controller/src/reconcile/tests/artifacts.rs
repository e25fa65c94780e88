//! Tests of artifacts for commits.

use std::time::Duration;

use serde_json::json;
use sluice_harness::git::Step;
use sluice_runtime::watch::Requeue;

use super::environment::TestEnvironment;
use crate::archive::{Algorithm, Hasher};

const INTERVAL: Requeue = Requeue::After(Duration::from_mins(5));

#[tokio::test]
async fn a_commit_becomes_an_artifact() {
    let env = TestEnvironment::new().await;
    env.create("app", json!({})).await;
    assert_eq!(env.reconcile("app").await, INTERVAL);
    insta::assert_snapshot!(env.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 1 observed 1 artifact main@sha1:<first>
    event Normal NewArtifact stored artifact for commit 'first' (files, digest, revision)
    ");
    let artifact = env.artifact("app").await;
    insta::assert_snapshot!(env.masked(&artifact.url), @r"
    http://sc/gitrepository/team/app/<first>.tar.gz
    ");
    assert_eq!(env.names(&artifact), [".", ".sourceignore", "main.tf"]);
    assert_eq!(artifact.commit_subject(), "first");
    let content = std::fs::read(env.file(&artifact)).unwrap();
    assert_eq!(artifact.size, Some(i64::try_from(content.len()).unwrap()));
    assert_eq!(
        artifact.digest,
        Hasher::of(Algorithm::Sha256, content.as_slice())
            .unwrap()
            .to_string()
    );
    assert!(
        env.status("app")
            .await
            .content_config_checksum
            .is_some_and(|sum| sum.starts_with("sha256:"))
    );
}

#[tokio::test]
async fn an_unchanged_head_costs_one_lookup_and_writes_nothing() {
    let env = TestEnvironment::ready().await;
    let before = env.get("app").await.metadata.resource_version;
    env.server.clear_requests();
    assert_eq!(env.reconcile("app").await, INTERVAL);
    assert_eq!(env.get("app").await.metadata.resource_version, before);
    assert_eq!(
        (env.server.count(Step::LsRefs), env.server.count(Step::Fetch)),
        (1, 0)
    );
    insta::assert_snapshot!(env.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 1 observed 1 artifact main@sha1:<first>
    ");
}

#[tokio::test]
async fn a_new_commit_supersedes_the_artifact_which_is_retained() {
    let mut env = TestEnvironment::ready().await;
    let old = env.artifact("app").await;
    env.commit("second", &[("main.tf", "locals { a = 1 }\n")]);
    env.reconcile("app").await;
    insta::assert_snapshot!(env.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<second>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<second>'
    generation 1 observed 1 artifact main@sha1:<second>
    event Normal NewArtifact stored artifact for commit 'second' (files, digest, revision)
    ");
    assert!(env.file(&old).exists());
    env.clock.advance(Duration::from_secs(59));
    env.reconcile("app").await;
    assert!(env.file(&old).exists());
    env.clock.advance(Duration::from_secs(2));
    env.reconcile("app").await;
    assert!(!env.file(&old).exists());
    assert!(env.file(&env.artifact("app").await).exists());
}

#[tokio::test]
async fn other_ignore_rules_rebuild_the_artifact_of_the_same_commit() {
    let env = TestEnvironment::ready().await;
    let before = env.artifact("app").await;
    env.edit("app", json!({ "spec": { "ignore": "!README.md\n" } }))
        .await;
    env.reconcile("app").await;
    insta::assert_snapshot!(env.table("app").await, @r"
    Ready=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @2 stored artifact for revision 'main@sha1:<first>'
    generation 2 observed 2 artifact main@sha1:<first>
    event Normal NewArtifact stored artifact for commit 'first' (files, digest, revision)
    ");
    let after = env.artifact("app").await;
    assert_eq!((&before.revision, &before.path), (&after.revision, &after.path));
    assert_ne!(before.digest, after.digest);
    assert_eq!(env.names(&after), [".", ".sourceignore", "README.md", "main.tf"]);
    // Back to none, which differs from empty.
    env.edit("app", json!({ "spec": { "ignore": "" } })).await;
    env.reconcile("app").await;
    assert_eq!(env.status("app").await.observed_ignore.as_deref(), Some(""));
    assert_eq!(env.artifact("app").await.digest, before.digest);
}

#[tokio::test]
async fn branches_tags_and_commits_are_followed() {
    let mut env = TestEnvironment::new().await;
    let first = env.repository.head().unwrap();
    env.repository.annotated_tag("v1", "one").unwrap();
    env.commit("second", &[("b.tf", "")]);
    for (name, reference) in [
        ("tag", json!({ "tag": "v1" })),
        ("commit", json!({ "commit": first })),
        ("both", json!({ "commit": first, "branch": "main" })),
        ("branch", json!({ "branch": "main" })),
    ] {
        env.create(name, json!({ "ref": reference })).await;
        env.reconcile(name).await;
    }
    let mut revisions = Vec::new();
    for name in ["tag", "commit", "both", "branch"] {
        revisions.push(format!("{name}: {}", env.artifact(name).await.revision));
    }
    insta::assert_snapshot!(env.masked(&revisions.join("\n")), @r"
    tag: v1@sha1:<first>
    commit: sha1:<first>
    both: main@sha1:<first>
    branch: main@sha1:<second>
    ");
}

#[tokio::test]
async fn two_objects_of_one_repository_fetch_it_once() {
    let env = TestEnvironment::new().await;
    for name in ["one", "two"] {
        env.create(name, json!({})).await;
        env.reconcile(name).await;
    }
    assert_eq!(env.server.count(Step::Fetch), 1);
    let (one, two) = (env.artifact("one").await, env.artifact("two").await);
    assert_eq!(one.digest, two.digest);
    assert_ne!(one.path, two.path);
}

#[tokio::test]
async fn lfs_pointers_and_refused_names_are_reported_once_per_artifact() {
    let mut env = TestEnvironment::new().await;
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n";
    env.commit(
        "large",
        &[
            ("data/a.bin", pointer),
            ("data/b.bin", pointer),
            ("con.txt", ""),
            ("odd\\name", ""),
            ("up../x", ""),
        ],
    );
    env.create("app", json!({ "ignore": "/data/b.bin\n" })).await;
    assert_eq!(env.reconcile("app").await, INTERVAL);
    let events = |lines: Vec<String>| -> Vec<String> {
        let about = |line: &String| line.contains("LFS") || line.contains("reject");
        lines.into_iter().filter(about).collect()
    };
    assert_eq!(
        events(env.events().await),
        [
            "event Normal GitLFSPointers Git LFS pointers instead of files in the artifact: 1, the first is 'data/a.bin'; \
             LFS content is not fetched",
            "event Warning UnreadablePath consumers reject artifacts with a backslash, a tab or a line break in a name, or \
             a directory that ends in '..'; such names: 2, the first is 'odd\\\\name'; rename them or exclude them with \
             spec.ignore",
        ]
    );
    assert!(
        env.names(&env.artifact("app").await)
            .contains(&"con.txt".to_owned())
    );
    // The same bytes are not a new artifact.
    env.edit("app", json!({ "spec": { "ignore": "data/b.bin\n" } }))
        .await;
    assert_eq!(env.reconcile("app").await, INTERVAL);
    assert_eq!(events(env.events().await), [""; 0]);
}

#[tokio::test]
async fn links_are_omitted_and_a_linked_ignore_file_applies() {
    let mut env = TestEnvironment::new().await;
    env.repository.remove(".sourceignore").unwrap();
    env.repository.symlink(".sourceignore", "rules/ignore").unwrap();
    env.repository.symlink("link.tf", "main.tf").unwrap();
    env.repository.write_executable("run.sh", "#!/bin/sh\n").unwrap();
    env.commit("links", &[("rules/ignore", "*.txt\n"), ("a.txt", "")]);
    env.create("app", json!({})).await;
    env.reconcile("app").await;
    let names = env.names(&env.artifact("app").await);
    assert_eq!(
        names,
        [".", "README.md", "main.tf", "rules", "rules/ignore", "run.sh"]
    );
}
