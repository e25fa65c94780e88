//! Tests of included artifacts.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_runtime::watch::Requeue;

use super::environment::TestEnvironment;

/// An environment with the ready object `lib`, whose repository has a module and a text file.
async fn with_library() -> TestEnvironment {
    let mut env = TestEnvironment::new().await;
    env.serve(
        "lib",
        &[
            ("modules/net/main.tf", "# net\n"),
            ("top.tf", "# top\n"),
            ("notes.txt", ""),
        ],
    );
    env.create_and_reconcile("lib").await;
    env.events().await;
    env
}

fn include(fields: &Value) -> Value {
    let mut include = json!({ "repository": { "name": "lib" } });
    include
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    json!({ "include": [include] })
}

#[tokio::test]
async fn an_included_artifact_is_packed_under_the_rules_of_the_including_repository() {
    let env = with_library().await;
    let mut spec = include(&json!({}));
    spec["ignore"] = json!("*.txt\n!README.md\n");
    env.create("app", spec).await;
    assert_eq!(env.reconcile("app").await, Requeue::After(Duration::from_mins(5)));
    insta::assert_snapshot!(env.writes(), @"
    generation 1 observed -1 artifact none
    Reconciling=True/Progressing @1 processing object: new generation -1 -> 1
    Ready=Unknown/Progressing @1 processing object: new generation -1 -> 1

    generation 1 observed 1 artifact main@sha1:<first>
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ");
    insta::assert_snapshot!(env.names(&env.artifact("app").await).join("\n"), @"
    .
    .sourceignore
    README.md
    lib
    lib/modules
    lib/modules/net
    lib/modules/net/main.tf
    lib/top.tf
    main.tf
    ");
    let status = env.status("app").await;
    assert_eq!(status.included_artifacts, [env.artifact("lib").await]);
    assert_eq!(status.observed_include[0].repository.name, "lib");
    assert!(status.content_config_checksum.is_some());
    // Nothing changed, so nothing is written.
    env.reconcile("app").await;
    assert_eq!(env.writes(), "");
}

#[tokio::test]
async fn includes_are_placed_at_their_target_path() {
    let env = with_library().await;
    for (fields, expected) in [
        (json!({ "fromPath": "modules" }), "lib lib/net lib/net/main.tf"),
        (
            json!({ "fromPath": "/modules/net/", "toPath": "a/b" }),
            "a a/b a/b/main.tf",
        ),
        (json!({ "fromPath": "top.tf", "toPath": "x.tf" }), "x.tf"),
        (json!({ "fromPath": "top.tf", "toPath": "../../y.tf" }), "y.tf"),
        (
            json!({ "fromPath": "modules/../top.tf", "toPath": "dir/../z.tf" }),
            "z.tf",
        ),
    ] {
        env.create("app", include(&fields)).await;
        env.reconcile("app").await;
        let own = [".", ".sourceignore", "main.tf"];
        let names: Vec<_> = env
            .names(&env.artifact("app").await)
            .into_iter()
            .filter(|name| !own.contains(&name.as_str()))
            .collect();
        assert_eq!(names.join(" "), expected, "{fields}");
        env.delete("app").await;
        env.reconcile("app").await;
    }
    // A file replaces a file.
    env.create(
        "app",
        include(&json!({ "fromPath": "top.tf", "toPath": "main.tf" })),
    )
    .await;
    env.reconcile("app").await;
    let contents = env.contents(&env.artifact("app").await);
    assert!(
        contents.contains(&("main.tf".into(), "# top\n".into())),
        "{contents:?}"
    );
}

#[tokio::test]
async fn a_missing_include_is_awaited_without_git_requests() {
    let mut env = TestEnvironment::new().await;
    env.serve("lib", &[("a.tf", "")]);
    env.create("app", include(&json!({}))).await;
    let wait = Requeue::After(Duration::from_secs(30));
    assert_eq!(env.reconcile("app").await, wait);
    insta::assert_snapshot!(env.writes(), @r#"
    generation 1 observed -1 artifact none
    Reconciling=True/Progressing @1 processing object: new generation -1 -> 1
    Ready=Unknown/Progressing @1 processing object: new generation -1 -> 1

    generation 1 observed -1 artifact none
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/NotFound @1 could not get resource for include 'lib': GitRepository.source.toolkit.fluxcd.io "lib" not found
    IncludeUnavailable=True/NotFound @1 could not get resource for include 'lib': GitRepository.source.toolkit.fluxcd.io "lib" not found
    "#);
    assert_eq!(env.reconcile("app").await, wait);
    assert_eq!(env.writes(), "", "the same again writes nothing");
    assert_eq!(env.events().await, Vec::<String>::new());
    env.create("lib", json!({ "url": env.server.url("lib") })).await;
    assert_eq!(env.reconcile("app").await, wait);
    insta::assert_snapshot!(env.writes(), @"
    generation 1 observed -1 artifact none
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/NoArtifact @1 no artifact available for include 'lib'
    IncludeUnavailable=True/NoArtifact @1 no artifact available for include 'lib'
    ");
    assert!(
        env.server.requests().is_empty(),
        "no traffic before the includes are there"
    );
    env.reconcile("lib").await;
    // An object of another shard counts as missing.
    env.edit("lib", json!({ "metadata": { "labels": { "shard": "1" } } }))
        .await;
    assert_eq!(env.reconcile("app").await, wait);
    assert!(
        env.table("app")
            .await
            .contains("IncludeUnavailable=True/NotFound")
    );
    env.edit("lib", json!({ "metadata": { "labels": { "shard": null } } }))
        .await;
    env.reconcile("app").await;
    insta::assert_snapshot!(env.writes(), @"
    generation 1 observed -1 artifact none
    Reconciling=True/Progressing @1 building artifact: included artifacts differ from last observed includes
    Ready=Unknown/Progressing @1 building artifact: included artifacts differ from last observed includes

    generation 1 observed 1 artifact main@sha1:<first>
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ");
}

#[tokio::test]
async fn an_included_artifact_is_used_while_it_exists() {
    let env = with_library().await;
    env.create("app", include(&json!({}))).await;
    env.reconcile("app").await;
    env.server.withdraw("lib");
    env.reconcile("lib").await;
    env.reconcile("app").await;
    assert_eq!(env.writes(), "");
    std::fs::remove_file(env.file(&env.artifact("lib").await)).unwrap();
    env.reconcile("lib").await;
    assert_eq!(
        env.reconcile("app").await,
        Requeue::After(Duration::from_secs(30))
    );
    insta::assert_snapshot!(env.writes(), @"
    generation 1 observed 1 artifact main@sha1:<first>
    Reconciling=True/ProgressingWithRetry @1 reconciliation in progress
    Ready=False/NoArtifact @1 no artifact available for include 'lib'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    IncludeUnavailable=True/NoArtifact @1 no artifact available for include 'lib'
    ");
}

#[tokio::test]
async fn another_revision_or_digest_of_an_include_rebuilds_the_artifact() {
    let mut env = with_library().await;
    env.create("app", include(&json!({}))).await;
    env.reconcile("app").await;
    let first = env.artifact("app").await;
    env.serve("lib", &[("b.tf", "# b\n")]);
    env.reconcile("lib").await;
    env.events().await;
    env.reconcile("app").await;
    insta::assert_snapshot!(env.writes(), @"
    generation 1 observed 1 artifact main@sha1:<first>
    Reconciling=True/Progressing @1 building artifact: included artifacts differ from last observed includes
    Ready=Unknown/Progressing @1 building artifact: included artifacts differ from last observed includes
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactOutdated=True/IncludeChange @1 included artifacts differ from last observed includes

    generation 1 observed 1 artifact main@sha1:<first>
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ");
    insta::assert_snapshot!(env.events().await.join("\n"), @"event Normal NewArtifact stored artifact for commit 'first' (files, digest, revision)");
    let second = env.artifact("app").await;
    assert_eq!((&first.revision, &first.path), (&second.revision, &second.path));
    assert_ne!(first.digest, second.digest);
    // The same revision with other ignore rules: only the digest changes.
    env.edit("lib", json!({ "spec": { "ignore": "nothing" } })).await;
    env.others["lib"].commit_files(&[("c.jpg", "")], "third").unwrap();
    env.reconcile("lib").await;
    env.reconcile("app").await;
    let third = env.artifact("app").await;
    env.edit("lib", json!({ "spec": { "ignore": "*.jpg" } })).await;
    env.reconcile("lib").await;
    env.reconcile("app").await;
    assert_ne!(env.artifact("app").await.digest, third.digest);
    insta::assert_snapshot!(env.writes(), @"
    generation 1 observed 1 artifact main@sha1:<first>
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ");
    // Without includes.
    env.edit("app", json!({ "spec": { "include": null } })).await;
    env.reconcile("app").await;
    let status = env.status("app").await;
    assert_eq!(
        (status.included_artifacts.len(), status.observed_include.len()),
        (0, 0)
    );
    assert_eq!(
        env.names(&env.artifact("app").await),
        [".", ".sourceignore", "main.tf"]
    );
}

#[tokio::test]
async fn includes_that_cannot_be_merged_are_reported_and_retried() {
    let env = with_library().await;
    let mut failures = Vec::new();
    for fields in [
        json!({ "fromPath": "../../../path" }),
        json!({ "fromPath": "nowhere", "toPath": "x" }),
        json!({ "toPath": "main.tf" }),
        json!({ "toPath": "main.tf/below" }),
        json!({ "toPath": "/" }),
        json!({ "toPath": ".." }),
    ] {
        env.create("app", include(&fields)).await;
        assert_eq!(env.reconcile("app").await, Requeue::Backoff, "{fields}");
        let table = env.table("app").await;
        let failure = table
            .lines()
            .find(|line| line.starts_with("StorageOperationFailed"));
        failures.push(failure.unwrap_or(&table).to_owned());
        env.delete("app").await;
        env.reconcile("app").await;
    }
    insta::assert_snapshot!(failures.join("\n"), @"
    StorageOperationFailed=True/CopyFailure @1 failed to copy 'lib' include from ../../../path to lib: No such file or directory (os error 2)
    StorageOperationFailed=True/CopyFailure @1 failed to copy 'lib' include from nowhere to x: No such file or directory (os error 2)
    StorageOperationFailed=True/CopyFailure @1 failed to copy 'lib' include from  to main.tf: 'main.tf' exists already
    StorageOperationFailed=True/CopyFailure @1 failed to copy 'lib' include from  to main.tf/below: 'main.tf' is not a directory
    StorageOperationFailed=True/CopyFailure @1 failed to copy 'lib' include from  to /: '' exists already
    StorageOperationFailed=True/CopyFailure @1 failed to copy 'lib' include from  to ..: '' exists already
    ");
}

#[tokio::test]
async fn links_in_the_target_path_are_followed_within_the_tree() {
    let mut env = with_library().await;
    env.repository.symlink("link", "/dir").unwrap();
    env.repository.symlink("loop", "loop").unwrap();
    env.commit("links", &[("dir/own.tf", "")]);
    env.create(
        "app",
        include(&json!({ "fromPath": "top.tf", "toPath": "link/../link/x.tf" })),
    )
    .await;
    env.reconcile("app").await;
    let names = env.names(&env.artifact("app").await);
    assert!(names.contains(&"dir/x.tf".to_owned()), "{names:?}");
    env.create(
        "circle",
        include(&json!({ "fromPath": "top.tf", "toPath": "loop/x.tf" })),
    )
    .await;
    assert_eq!(env.reconcile("circle").await, Requeue::Backoff);
    insta::assert_snapshot!(env.table("circle").await, @"
    Reconciling=True/ProgressingWithRetry @1 building artifact: new upstream revision 'main@sha1:<links>'
    Ready=False/IllegalPath @1 path calculation for include 'lib' failed: 'loop/x.tf' leads through too many symlinks
    StorageOperationFailed=True/IllegalPath @1 path calculation for include 'lib' failed: 'loop/x.tf' leads through too many symlinks
    generation 1 observed -1 artifact none
    event Normal NewArtifact stored artifact for commit 'links' (files, digest, revision)
    event Warning IllegalPath path calculation for include 'lib' failed: 'loop/x.tf' leads through too many symlinks
    ");
}

#[tokio::test]
async fn a_forged_status_of_an_include_is_rejected() {
    let env = with_library().await;
    env.create("other", json!({})).await;
    env.reconcile("other").await;
    let (own, foreign) = (env.artifact("lib").await, env.artifact("other").await);
    let patch = |artifact: Value| json!({ "status": { "artifact": artifact } });
    let mut failures = Vec::new();
    for artifact in [
        json!({ "path": foreign.path }),
        json!({ "path": own.path, "digest": foreign.digest }),
        json!({ "digest": "md5:00" }),
    ] {
        let (params, patch) = (
            kube::api::PatchParams::default(),
            kube::api::Patch::Merge(patch(artifact)),
        );
        env.objects().patch_status("lib", &params, &patch).await.unwrap();
        env.create("app", include(&json!({}))).await;
        assert_eq!(env.reconcile("app").await, Requeue::Backoff);
        let table = env.table("app").await.replace(&foreign.digest, "<digest>");
        let failure = table
            .lines()
            .find(|line| line.starts_with("StorageOperationFailed"));
        failures.push(failure.unwrap_or(&table).to_owned());
        env.delete("app").await;
        env.reconcile("app").await;
    }
    insta::assert_snapshot!(failures.join("\n"), @r#"
    StorageOperationFailed=True/CopyFailure @1 failed to copy 'lib' include from  to lib: 'gitrepository/team/other/<first>.tar.gz' is not an artifact of that repository
    StorageOperationFailed=True/CopyFailure @1 failed to copy 'lib' include from  to lib: the artifact file no longer matches digest <digest>
    StorageOperationFailed=True/CopyFailure @1 failed to copy 'lib' include from  to lib: invalid artifact digest: unknown digest algorithm "md5"
    "#);
}
