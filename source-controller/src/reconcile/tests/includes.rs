//! Artifacts of other repositories, merged into this one's.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_runtime::watch::Next;

use super::world::World;

/// A world with the ready object `lib`, of a repository with a module and a text.
async fn with_library() -> World {
    let mut world = World::new().await;
    world.serve(
        "lib",
        &[
            ("modules/net/main.tf", "# net\n"),
            ("top.tf", "# top\n"),
            ("notes.txt", ""),
        ],
    );
    world.create_of("lib").await;
    world.told().await;
    world
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
    let world = with_library().await;
    let mut spec = include(&json!({}));
    spec["ignore"] = json!("*.txt\n!README.md\n");
    world.create("app", spec).await;
    assert_eq!(world.pass("app").await, Next::After(Duration::from_secs(300)));
    insta::assert_snapshot!(world.writes(), @"
    generation 1 observed -1 artifact none
    Reconciling=True/Progressing @1 processing object: new generation -1 -> 1
    Ready=Unknown/Progressing @1 processing object: new generation -1 -> 1

    generation 1 observed 1 artifact main@sha1:<first>
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ");
    insta::assert_snapshot!(world.names(&world.artifact("app").await).join("\n"), @"
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
    let status = world.status("app").await;
    assert_eq!(status.included_artifacts, [world.artifact("lib").await]);
    assert_eq!(status.observed_include[0].repository.name, "lib");
    assert!(status.content_config_checksum.is_some());
    // Nothing changed: nothing is written.
    world.pass("app").await;
    assert_eq!(world.writes(), "");
}

#[tokio::test]
async fn what_is_included_is_put_where_it_is_wanted() {
    let world = with_library().await;
    for (fields, wanted) in [
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
        world.create("app", include(&fields)).await;
        world.pass("app").await;
        let own = [".", ".sourceignore", "main.tf"];
        let names: Vec<_> = world
            .names(&world.artifact("app").await)
            .into_iter()
            .filter(|name| !own.contains(&name.as_str()))
            .collect();
        assert_eq!(names.join(" "), wanted, "{fields}");
        world.delete("app").await;
        world.pass("app").await;
    }
    // A file takes the place of a file.
    world
        .create(
            "app",
            include(&json!({ "fromPath": "top.tf", "toPath": "main.tf" })),
        )
        .await;
    world.pass("app").await;
    let contents = world.contents(&world.artifact("app").await);
    assert!(
        contents.contains(&("main.tf".into(), "# top\n".into())),
        "{contents:?}"
    );
}

#[tokio::test]
async fn an_include_that_is_missing_is_waited_for_and_costs_no_traffic() {
    let mut world = World::new().await;
    world.serve("lib", &[("a.tf", "")]);
    world.create("app", include(&json!({}))).await;
    let wait = Next::After(Duration::from_secs(30));
    assert_eq!(world.pass("app").await, wait);
    insta::assert_snapshot!(world.writes(), @r#"
    generation 1 observed -1 artifact none
    Reconciling=True/Progressing @1 processing object: new generation -1 -> 1
    Ready=Unknown/Progressing @1 processing object: new generation -1 -> 1

    generation 1 observed -1 artifact none
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/NotFound @1 could not get resource for include 'lib': GitRepository.source.toolkit.fluxcd.io "lib" not found
    IncludeUnavailable=True/NotFound @1 could not get resource for include 'lib': GitRepository.source.toolkit.fluxcd.io "lib" not found
    "#);
    assert_eq!(world.pass("app").await, wait);
    assert_eq!(world.writes(), "", "the same again writes nothing");
    assert_eq!(world.told().await, Vec::<String>::new());
    world
        .create("lib", json!({ "url": world.server.url("lib") }))
        .await;
    assert_eq!(world.pass("app").await, wait);
    insta::assert_snapshot!(world.writes(), @"
    generation 1 observed -1 artifact none
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/NoArtifact @1 no artifact available for include 'lib'
    IncludeUnavailable=True/NoArtifact @1 no artifact available for include 'lib'
    ");
    assert!(
        world.server.requests().is_empty(),
        "no traffic before the includes are there"
    );
    world.pass("lib").await;
    // Of another shard, it is not there.
    world
        .edit("lib", json!({ "metadata": { "labels": { "shard": "1" } } }))
        .await;
    assert_eq!(world.pass("app").await, wait);
    assert!(
        world
            .table("app")
            .await
            .contains("IncludeUnavailable=True/NotFound")
    );
    world
        .edit("lib", json!({ "metadata": { "labels": { "shard": null } } }))
        .await;
    world.pass("app").await;
    insta::assert_snapshot!(world.writes(), @"
    generation 1 observed -1 artifact none
    Reconciling=True/Progressing @1 building artifact: included artifacts differ from last observed includes
    Ready=Unknown/Progressing @1 building artifact: included artifacts differ from last observed includes

    generation 1 observed 1 artifact main@sha1:<first>
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ");
}

#[tokio::test]
async fn an_artifact_that_is_there_is_good_and_one_that_goes_takes_nothing_along() {
    let world = with_library().await;
    world.create("app", include(&json!({}))).await;
    world.pass("app").await;
    world.server.withdraw("lib");
    world.pass("lib").await;
    world.pass("app").await;
    assert_eq!(world.writes(), "");
    std::fs::remove_file(world.file(&world.artifact("lib").await)).unwrap();
    world.pass("lib").await;
    assert_eq!(world.pass("app").await, Next::After(Duration::from_secs(30)));
    insta::assert_snapshot!(world.writes(), @"
    generation 1 observed 1 artifact main@sha1:<first>
    Reconciling=True/ProgressingWithRetry @1 reconciliation in progress
    Ready=False/NoArtifact @1 no artifact available for include 'lib'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    IncludeUnavailable=True/NoArtifact @1 no artifact available for include 'lib'
    ");
}

#[tokio::test]
async fn another_revision_or_digest_of_an_include_makes_the_artifact_anew() {
    let mut world = with_library().await;
    world.create("app", include(&json!({}))).await;
    world.pass("app").await;
    let first = world.artifact("app").await;
    world.serve("lib", &[("b.tf", "# b\n")]);
    world.pass("lib").await;
    world.told().await;
    world.pass("app").await;
    insta::assert_snapshot!(world.writes(), @"
    generation 1 observed 1 artifact main@sha1:<first>
    Reconciling=True/Progressing @1 building artifact: included artifacts differ from last observed includes
    Ready=Unknown/Progressing @1 building artifact: included artifacts differ from last observed includes
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactOutdated=True/IncludeChange @1 included artifacts differ from last observed includes

    generation 1 observed 1 artifact main@sha1:<first>
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ");
    insta::assert_snapshot!(world.told().await.join("\n"), @"event Normal NewArtifact stored artifact for commit 'first' (files, digest, revision)");
    let second = world.artifact("app").await;
    assert_eq!((&first.revision, &first.path), (&second.revision, &second.path));
    assert_ne!(first.digest, second.digest);
    // The same revision with other rules: another digest alone.
    world
        .edit("lib", json!({ "spec": { "ignore": "nothing" } }))
        .await;
    world.others["lib"]
        .commit_files(&[("c.jpg", "")], "third")
        .unwrap();
    world.pass("lib").await;
    world.pass("app").await;
    let third = world.artifact("app").await;
    world.edit("lib", json!({ "spec": { "ignore": "*.jpg" } })).await;
    world.pass("lib").await;
    world.pass("app").await;
    assert_ne!(world.artifact("app").await.digest, third.digest);
    insta::assert_snapshot!(world.writes(), @"
    generation 1 observed 1 artifact main@sha1:<first>
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ");
    // No include at all.
    world.edit("app", json!({ "spec": { "include": null } })).await;
    world.pass("app").await;
    let status = world.status("app").await;
    assert_eq!(
        (status.included_artifacts.len(), status.observed_include.len()),
        (0, 0)
    );
    assert_eq!(
        world.names(&world.artifact("app").await),
        [".", ".sourceignore", "main.tf"]
    );
}

#[tokio::test]
async fn includes_that_cannot_be_merged_are_named_and_tried_again() {
    let world = with_library().await;
    let mut shown = Vec::new();
    for fields in [
        json!({ "fromPath": "../../../path" }),
        json!({ "fromPath": "nowhere", "toPath": "x" }),
        json!({ "toPath": "main.tf" }),
        json!({ "toPath": "main.tf/below" }),
        json!({ "toPath": "/" }),
        json!({ "toPath": ".." }),
    ] {
        world.create("app", include(&fields)).await;
        assert_eq!(world.pass("app").await, Next::Backoff, "{fields}");
        let table = world.table("app").await;
        let failure = table
            .lines()
            .find(|line| line.starts_with("StorageOperationFailed"));
        shown.push(failure.unwrap_or(&table).to_owned());
        world.delete("app").await;
        world.pass("app").await;
    }
    insta::assert_snapshot!(shown.join("\n"), @"
    StorageOperationFailed=True/CopyFailure @1 failed to copy 'lib' include from ../../../path to lib: No such file or directory (os error 2)
    StorageOperationFailed=True/CopyFailure @1 failed to copy 'lib' include from nowhere to x: No such file or directory (os error 2)
    StorageOperationFailed=True/CopyFailure @1 failed to copy 'lib' include from  to main.tf: 'main.tf' exists already
    StorageOperationFailed=True/CopyFailure @1 failed to copy 'lib' include from  to main.tf/below: 'main.tf' is not a directory
    StorageOperationFailed=True/CopyFailure @1 failed to copy 'lib' include from  to /: '' exists already
    StorageOperationFailed=True/CopyFailure @1 failed to copy 'lib' include from  to ..: '' exists already
    ");
}

#[tokio::test]
async fn links_on_the_way_to_the_target_are_followed_inside_the_tree_alone() {
    let mut world = with_library().await;
    world.repository.symlink("link", "/dir").unwrap();
    world.repository.symlink("loop", "loop").unwrap();
    world.commit("links", &[("dir/own.tf", "")]);
    world
        .create(
            "app",
            include(&json!({ "fromPath": "top.tf", "toPath": "link/../link/x.tf" })),
        )
        .await;
    world.pass("app").await;
    let names = world.names(&world.artifact("app").await);
    assert!(names.contains(&"dir/x.tf".to_owned()), "{names:?}");
    world
        .create(
            "circle",
            include(&json!({ "fromPath": "top.tf", "toPath": "loop/x.tf" })),
        )
        .await;
    assert_eq!(world.pass("circle").await, Next::Backoff);
    insta::assert_snapshot!(world.table("circle").await, @"
    Reconciling=True/ProgressingWithRetry @1 building artifact: new upstream revision 'main@sha1:<links>'
    Ready=False/IllegalPath @1 path calculation for include 'lib' failed: 'loop/x.tf' leads through too many links
    StorageOperationFailed=True/IllegalPath @1 path calculation for include 'lib' failed: 'loop/x.tf' leads through too many links
    generation 1 observed -1 artifact none
    event Normal NewArtifact stored artifact for commit 'links' (files, digest, revision)
    event Warning IllegalPath path calculation for include 'lib' failed: 'loop/x.tf' leads through too many links
    ");
}

#[tokio::test]
async fn a_status_that_does_not_tell_the_truth_about_an_include_is_not_believed() {
    let world = with_library().await;
    world.create("other", json!({})).await;
    world.pass("other").await;
    let (own, foreign) = (world.artifact("lib").await, world.artifact("other").await);
    let patch = |artifact: Value| json!({ "status": { "artifact": artifact } });
    let mut shown = Vec::new();
    for artifact in [
        json!({ "path": foreign.path }),
        json!({ "path": own.path, "digest": foreign.digest }),
        json!({ "digest": "md5:00" }),
    ] {
        let (params, patch) = (
            kube::api::PatchParams::default(),
            kube::api::Patch::Merge(patch(artifact)),
        );
        world
            .objects()
            .patch_status("lib", &params, &patch)
            .await
            .unwrap();
        world.create("app", include(&json!({}))).await;
        assert_eq!(world.pass("app").await, Next::Backoff);
        let table = world.table("app").await.replace(&foreign.digest, "<digest>");
        let failure = table
            .lines()
            .find(|line| line.starts_with("StorageOperationFailed"));
        shown.push(failure.unwrap_or(&table).to_owned());
        world.delete("app").await;
        world.pass("app").await;
    }
    insta::assert_snapshot!(shown.join("\n"), @r#"
    StorageOperationFailed=True/CopyFailure @1 failed to copy 'lib' include from  to lib: 'gitrepository/team/other/<first>.tar.gz' is no artifact of that repository
    StorageOperationFailed=True/CopyFailure @1 failed to copy 'lib' include from  to lib: its file does not have the digest <digest> any more
    StorageOperationFailed=True/CopyFailure @1 failed to copy 'lib' include from  to lib: its digest cannot be checked: digest algorithm "md5" is not known
    "#);
}
