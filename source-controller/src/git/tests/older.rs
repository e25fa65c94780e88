//! Servers without protocol version 2: the real `git http-backend` that is not asked for it, with and without what such
//! a server may lack.

use sluice_harness::git::{Fault, Scope};
use sluice_runtime::failure::Failure as _;

use super::*;

/// What the oldest of servers lack, one more each time.
const LACKS: [&[&str]; 5] = [
    &[],
    &[
        "multi_ack",
        "multi_ack_detailed",
        "thin-pack",
        "ofs-delta",
        "no-progress",
    ],
    &["side-band-64k"],
    &["side-band-64k", "side-band"],
    &[
        "side-band-64k",
        "side-band",
        "shallow",
        "multi_ack",
        "multi_ack_detailed",
        "thin-pack",
        "ofs-delta",
    ],
];

async fn older(version: u8, lacks: &'static [&'static str]) -> World {
    let world = World::with_files().await;
    world.server.speak_at_most(version);
    world.server.fault(Scope::INFO_REFS, Fault::Without(lacks));
    world
}

#[tokio::test]
async fn commits_are_fetched_and_then_their_difference() {
    for (version, lacks) in LACKS.into_iter().map(|lacks| (0, lacks)).chain([(1, LACKS[0])]) {
        let world = older(version, lacks).await;
        let checkout = world.fetch(&main()).await.unwrap();
        assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"), "{lacks:?}");
        assert_eq!(
            world.steps(),
            [Step::InfoRefs, Step::InfoRefs, Step::Fetch],
            "{lacks:?}"
        );
        for number in 0..3_u32 {
            let changed = [(&*format!("modules/{number}/main.tf"), noise(200 + number, 1000))];
            world.repository.commit_files(&changed, "change").unwrap();
            let checkout = world.fetch(&main()).await.unwrap();
            let difference = world.fetched_bytes();
            // Without thin packs, Git's server sends whole trees to those who have no history.
            let whole = lacks.contains(&"thin-pack") && !lacks.contains(&"shallow");
            assert!(whole || difference < 8192, "{lacks:?}: {difference} bytes");
            assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"), "{lacks:?}");
            read_all(checkout).await.unwrap();
        }
        assert_eq!(
            world.steps(),
            [Step::InfoRefs, Step::Fetch].repeat(3),
            "{lacks:?}"
        );
        assert_eq!(fsck(&generation(&world)), "", "{lacks:?}");
    }
}

#[tokio::test]
async fn history_is_cut_off_where_the_server_can() {
    let world = older(0, &[]).await;
    world.repository.commit_files(&[("a", "1")], "two").unwrap();
    world.fetch(&main()).await.unwrap();
    let shallow = std::fs::read_to_string(generation(&world).join("shallow")).unwrap();
    assert_eq!(shallow.trim(), world.repository.head().unwrap());
    let world = older(0, &["shallow"]).await;
    world.repository.commit_files(&[("a", "1")], "two").unwrap();
    world.fetch(&main()).await.unwrap();
    let shallow = std::fs::read_to_string(generation(&world).join("shallow")).unwrap();
    assert_eq!(shallow, "");
}

#[tokio::test]
async fn every_kind_of_reference_is_found_in_the_list() {
    let world = older(0, &[]).await;
    let commit = world.repository.head().unwrap();
    let tag = world.repository.annotated_tag("v1.0.0", "release").unwrap();
    world.repository.tag("v0.9.0").unwrap();
    world
        .repository
        .git(["update-ref", "refs/pull/1/head", "HEAD"])
        .unwrap();
    world.repository.branch("main-2").unwrap();
    for (reference, revision, object) in [
        (main(), format!("main@sha1:{commit}"), &commit),
        (
            Reference::Tag("v1.0.0".into()),
            format!("v1.0.0@sha1:{commit}"),
            &tag,
        ),
        (
            Reference::Semver("*".into()),
            format!("v1.0.0@sha1:{commit}"),
            &tag,
        ),
        (
            Reference::Semver("<1".into()),
            format!("v0.9.0@sha1:{commit}"),
            &commit,
        ),
        (
            Reference::Name("refs/pull/1/head".into()),
            format!("refs/pull/1/head@sha1:{commit}"),
            &commit,
        ),
        (
            Reference::Name("HEAD".into()),
            format!("HEAD@sha1:{commit}"),
            &commit,
        ),
    ] {
        let head = world.head(&reference).await.unwrap();
        assert_eq!(
            (head.revision(), head.object.to_string()),
            (revision, object.clone())
        );
        world.fetch(&reference).await.unwrap();
    }
    let error = world.head(&Reference::Branch("gone".into())).await.unwrap_err();
    assert!(matches!(error, FetchError::MissingReference { .. }), "{error}");
}

#[tokio::test]
async fn an_empty_repository_is_named() {
    for version in [0, 1] {
        let world = World::new().await;
        world.server.speak_at_most(version);
        let error = world.head(&main()).await.unwrap_err();
        assert_eq!(error.reason(), "EmptyGitRepository", "{error}");
        let error = world.head(&Reference::Semver("*".into())).await.unwrap_err();
        assert!(
            error.to_string().ends_with("remote repository is empty"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_repository_of_another_hash_function_is_named() {
    for version in [0, 1] {
        let arguments = ["--initial-branch=main", "--object-format=sha256"];
        let world = World::of(Repository::create_with(&arguments).unwrap()).await;
        world.server.speak_at_most(version);
        world.repository.commit("one").unwrap();
        let error = world.head(&main()).await.unwrap_err().to_string();
        assert!(
            error.ends_with("object format is sha256; only sha1 is supported"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_list_of_any_length_is_read_up_to_the_limit() {
    let world = older(0, &[]).await;
    let commit = world.repository.head().unwrap();
    let line = |number: u32| format!("{commit} refs/tags/v0.0.{number}\n");
    let lines: String = (0..20_000).map(line).collect();
    std::fs::write(world.repository.git_dir().join("packed-refs"), lines).unwrap();
    let head = world.head(&Reference::Semver("0.x".into())).await.unwrap();
    assert_eq!(head.revision(), format!("v0.0.19999@sha1:{commit}"));
    let mut remote = world.remote();
    remote.limits.refs_bytes = 1 << 20;
    let error = world.head_at(&remote, &main()).await.unwrap_err();
    assert!(
        error.to_string().contains("raise --git-max-refs-bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn a_pack_that_breaks_is_refused_with_and_without_bands() {
    for lacks in [LACKS[0], LACKS[3]] {
        let world = older(0, lacks).await;
        world.head(&main()).await.unwrap();
        for bytes in [0, 20, 300, 100_000] {
            world.server.clear_faults();
            world.server.fault(Scope::INFO_REFS, Fault::Without(lacks));
            world.server.fault(Scope::FETCH, Fault::Truncated(bytes));
            let error = world.fetch(&main()).await.unwrap_err();
            let named = matches!(
                error,
                FetchError::Connection { .. } | FetchError::Answer { .. } | FetchError::Pack { .. }
            );
            assert!(named, "{lacks:?} {bytes}: {error}");
        }
        world.server.clear_faults();
        world.server.fault(Scope::INFO_REFS, Fault::Without(lacks));
        let checkout = world.fetch(&main()).await.unwrap();
        assert_eq!(files(&checkout), ls_tree(&world.repository, "main"));
        assert_eq!(world.files(|name| name.contains("git2")), Vec::<PathBuf>::new());
    }
}

#[tokio::test]
async fn a_server_that_learns_version_2_is_spoken_to_in_it() {
    let world = older(0, &[]).await;
    world.fetch(&main()).await.unwrap();
    world.server.speak_at_most(2);
    world.repository.commit_files(&[("a", "1")], "two").unwrap();
    // What was learnt holds as long as it works.
    world.fetch(&main()).await.unwrap();
    world.transport.forget(&world.remote());
    world.steps();
    world.head(&main()).await.unwrap();
    assert_eq!(world.steps(), [Step::InfoRefs, Step::LsRefs]);
}
