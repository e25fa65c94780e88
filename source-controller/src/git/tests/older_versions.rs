//! Servers without protocol version 2: the real `git http-backend` in an older version, with and without optional
//! capabilities.

use sluice_harness::git::{Fault, Scope};
use sluice_runtime::failure::Failure as _;

use super::*;

/// Missing capabilities, more for each older server.
const MISSING_CAPABILITIES: [&[&str]; 5] = [
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

async fn older_server(version: u8, missing: &'static [&'static str]) -> TestEnvironment {
    let env = TestEnvironment::with_files().await;
    env.server.limit_protocol_version(version);
    env.server.fault(Scope::INFO_REFS, Fault::Without(missing));
    env
}

#[tokio::test]
async fn commits_are_fetched_incrementally() {
    for (version, missing) in MISSING_CAPABILITIES
        .into_iter()
        .map(|missing| (0, missing))
        .chain([(1, MISSING_CAPABILITIES[0])])
    {
        let env = older_server(version, missing).await;
        let checkout = env.fetch(&main()).await.unwrap();
        assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"), "{missing:?}");
        assert_eq!(
            env.steps(),
            [Step::InfoRefs, Step::InfoRefs, Step::Fetch],
            "{missing:?}"
        );
        for number in 0..3 {
            let changed = [(&*format!("modules/{number}/main.tf"), noise(200 + number, 1000))];
            env.repository.commit_files(&changed, "change").unwrap();
            let checkout = env.fetch(&main()).await.unwrap();
            let difference = env.fetched_bytes();
            // Without thin packs, Git's server sends complete trees to clients without history.
            let whole = missing.contains(&"thin-pack") && !missing.contains(&"shallow");
            assert!(whole || difference < 8192, "{missing:?}: {difference} bytes");
            assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"), "{missing:?}");
            read_all(checkout).await.unwrap();
        }
        assert_eq!(
            env.steps(),
            [Step::InfoRefs, Step::Fetch].repeat(3),
            "{missing:?}"
        );
        assert_eq!(fsck(&generation(&env)), "", "{missing:?}");
    }
}

#[tokio::test]
async fn shallow_fetches_are_used_if_supported() {
    let env = older_server(0, &[]).await;
    env.repository.commit_files(&[("a", "1")], "two").unwrap();
    env.fetch(&main()).await.unwrap();
    let shallow = std::fs::read_to_string(generation(&env).join("shallow")).unwrap();
    assert_eq!(shallow.trim(), env.repository.head().unwrap());
    let env = older_server(0, &["shallow"]).await;
    env.repository.commit_files(&[("a", "1")], "two").unwrap();
    env.fetch(&main()).await.unwrap();
    let shallow = std::fs::read_to_string(generation(&env).join("shallow")).unwrap();
    assert_eq!(shallow, "");
}

#[tokio::test]
async fn every_kind_of_reference_is_found_in_the_advertisement() {
    let env = older_server(0, &[]).await;
    let commit = env.repository.head().unwrap();
    let tag = env.repository.annotated_tag("v1.0.0", "release").unwrap();
    env.repository.tag("v0.9.0").unwrap();
    env.repository
        .git(["update-ref", "refs/pull/1/head", "HEAD"])
        .unwrap();
    env.repository.branch("main-2").unwrap();
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
        let head = env.head(&reference).await.unwrap();
        assert_eq!(
            (head.revision(), head.object.to_string()),
            (revision, object.clone())
        );
        env.fetch(&reference).await.unwrap();
    }
    let error = env.head(&Reference::Branch("gone".into())).await.unwrap_err();
    assert!(matches!(error, FetchError::MissingReference { .. }), "{error}");
}

#[tokio::test]
async fn an_empty_repository_is_reported() {
    for version in [0, 1] {
        let env = TestEnvironment::new().await;
        env.server.limit_protocol_version(version);
        let error = env.head(&main()).await.unwrap_err();
        assert_eq!(error.reason(), "EmptyGitRepository", "{error}");
        let error = env.head(&Reference::Semver("*".into())).await.unwrap_err();
        assert!(
            error.to_string().ends_with("remote repository is empty"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn an_unsupported_hash_function_is_reported() {
    for version in [0, 1] {
        let arguments = ["--initial-branch=main", "--object-format=sha256"];
        let env = TestEnvironment::of(Repository::create_with(&arguments).unwrap()).await;
        env.server.limit_protocol_version(version);
        env.repository.commit("one").unwrap();
        let error = env.head(&main()).await.unwrap_err().to_string();
        assert!(
            error.ends_with("object format is sha256; only sha1 is supported"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_ref_advertisement_is_read_up_to_the_limit() {
    let env = older_server(0, &[]).await;
    let commit = env.repository.head().unwrap();
    let line = |number: u32| format!("{commit} refs/tags/v0.0.{number}\n");
    let lines: String = (0..20_000).map(line).collect();
    std::fs::write(env.repository.git_dir().join("packed-refs"), lines).unwrap();
    let head = env.head(&Reference::Semver("0.x".into())).await.unwrap();
    assert_eq!(head.revision(), format!("v0.0.19999@sha1:{commit}"));
    let mut remote = env.remote();
    remote.limits.refs_bytes = 1 << 20;
    let error = env.head_at(&remote, &main()).await.unwrap_err();
    assert!(
        error.to_string().contains("raise --git-max-refs-bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn a_truncated_pack_is_refused_with_and_without_side_band() {
    for missing in [MISSING_CAPABILITIES[0], MISSING_CAPABILITIES[3]] {
        let env = older_server(0, missing).await;
        env.head(&main()).await.unwrap();
        for bytes in [0, 20, 300, 100_000] {
            env.server.clear_faults();
            env.server.fault(Scope::INFO_REFS, Fault::Without(missing));
            env.server.fault(Scope::FETCH, Fault::Truncated(bytes));
            let error = env.fetch(&main()).await.unwrap_err();
            let named = matches!(
                error,
                FetchError::Connection { .. } | FetchError::Protocol { .. } | FetchError::Pack { .. }
            );
            assert!(named, "{missing:?} {bytes}: {error}");
        }
        env.server.clear_faults();
        env.server.fault(Scope::INFO_REFS, Fault::Without(missing));
        let checkout = env.fetch(&main()).await.unwrap();
        assert_eq!(files(&checkout), ls_tree(&env.repository, "main"));
        assert_eq!(env.files(|name| name.contains("git2")), Vec::<PathBuf>::new());
    }
}

#[tokio::test]
async fn an_upgrade_of_the_server_to_version_2_is_detected() {
    let env = older_server(0, &[]).await;
    env.fetch(&main()).await.unwrap();
    env.server.limit_protocol_version(2);
    env.repository.commit_files(&[("a", "1")], "two").unwrap();
    // The cached endpoint stays in use as long as it works.
    env.fetch(&main()).await.unwrap();
    env.transport.forget(&env.remote());
    env.steps();
    env.head(&main()).await.unwrap();
    assert_eq!(env.steps(), [Step::InfoRefs, Step::LsRefs]);
}
