//! A server that does not pass the protocol version to Git: refs, request and pack use one channel.

use sluice_harness::ssh::Fault;

use super::*;

#[tokio::test]
async fn version_0_works_over_ssh() {
    let env = Ssh::new();
    env.server.fault(Some(Fault::Version0)).unwrap();
    let remote = env.remote();
    let checkout = env.fetch(&remote).await.unwrap();
    assert_eq!(checkout.commit().id.to_string(), env.commit);
    assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"));
    // An incremental fetch, a tag, and a commit by its hash.
    env.repository
        .commit_files(&[("1/main.tf", noise(77, 900))], "second")
        .unwrap();
    let tag = env.repository.annotated_tag("v1.0.0", "release").unwrap();
    let checkout = env.fetch(&remote).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"));
    read_all(checkout).await.unwrap();
    let found = bounded(head(&remote, &Reference::Semver("1.x".into())))
        .await
        .unwrap();
    assert_eq!(found.object.to_string(), tag);
    let mirror = env.mirrors.open(&remote);
    let tagged = bounded(fetch(&mirror, &remote, &found, &CancellationToken::new()))
        .await
        .unwrap();
    tagged.raw_tag(found.object).unwrap();
    assert_eq!(env.connections().len(), 1, "one connection serves all");
}

#[tokio::test]
async fn a_long_ref_advertisement_is_read_over_ssh() {
    let env = Ssh::new();
    env.server.fault(Some(Fault::Version0)).unwrap();
    let line = |number: u32| format!("{} refs/tags/v0.0.{number}\n", env.commit);
    let lines: String = (0..5_000).map(line).collect();
    std::fs::write(env.repository.git_dir().join("packed-refs"), lines).unwrap();
    let mut remote = env.remote();
    let found = bounded(head(&remote, &Reference::Semver("*".into())))
        .await
        .unwrap();
    assert_eq!(found.revision(), format!("v0.0.4999@sha1:{}", env.commit));
    env.fetch(&remote).await.unwrap();
    remote.limits.refs_bytes = 100_000;
    let error = bounded(head(&remote, &main())).await.unwrap_err();
    assert!(
        error.to_string().contains("raise --git-max-refs-bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn an_empty_repository_is_reported_in_version_0_over_ssh() {
    let env = Ssh::new();
    env.server.fault(Some(Fault::Version0)).unwrap();
    let empty = Repository::create().unwrap();
    let url = env.server.serve("empty", &empty).unwrap();
    let remote = env.remote_with(&url, &env.key.private, "", &env.server.known_hosts());
    let error = bounded(head(&remote, &main())).await.unwrap_err();
    assert!(matches!(error, FetchError::Empty), "{error}");
}
