//! A server that passes no version of the protocol on to Git: the refs, the request and the pack go over one channel.

use sluice_harness::ssh::Fault;

use super::*;

#[tokio::test]
async fn a_server_without_version_2_is_read_over_ssh() {
    let world = Ssh::new();
    world.server.fault(Some(Fault::Version0)).unwrap();
    let remote = world.remote();
    let checkout = world.fetch(&remote).await.unwrap();
    assert_eq!(checkout.commit().id.to_string(), world.commit);
    assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"));
    // A difference to what is held, a tag, and a commit by its hash.
    world
        .repository
        .commit_files(&[("1/main.tf", noise(77, 900))], "second")
        .unwrap();
    let tag = world.repository.annotated_tag("v1.0.0", "release").unwrap();
    let checkout = world.fetch(&remote).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"));
    read_all(checkout).await.unwrap();
    let found = bounded(head(&remote, &Reference::Semver("1.x".into())))
        .await
        .unwrap();
    assert_eq!(found.object.to_string(), tag);
    let mirror = world.mirrors.open(&remote);
    let tagged = bounded(fetch(&mirror, &remote, &found, &CancellationToken::new()))
        .await
        .unwrap();
    tagged.raw_tag(found.object).unwrap();
    assert_eq!(world.connections().len(), 1, "one connection serves all");
}

#[tokio::test]
async fn a_list_of_refs_that_is_longer_than_a_greeting_is_read_over_ssh() {
    let world = Ssh::new();
    world.server.fault(Some(Fault::Version0)).unwrap();
    let line = |number: u32| format!("{} refs/tags/v0.0.{number}\n", world.commit);
    let lines: String = (0..5_000).map(line).collect();
    std::fs::write(world.repository.git_dir().join("packed-refs"), lines).unwrap();
    let mut remote = world.remote();
    let found = bounded(head(&remote, &Reference::Semver("*".into())))
        .await
        .unwrap();
    assert_eq!(found.revision(), format!("v0.0.4999@sha1:{}", world.commit));
    world.fetch(&remote).await.unwrap();
    remote.limits.refs_bytes = 100_000;
    let error = bounded(head(&remote, &main())).await.unwrap_err();
    assert!(
        error.to_string().contains("raise --git-max-refs-bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn an_empty_repository_is_named_over_ssh_without_version_2() {
    let world = Ssh::new();
    world.server.fault(Some(Fault::Version0)).unwrap();
    let empty = Repository::create().unwrap();
    let url = world.server.serve("empty", &empty).unwrap();
    let remote = world.remote_with(&url, &world.key.private, "", &world.server.known_hosts());
    let error = bounded(head(&remote, &main())).await.unwrap_err();
    assert!(matches!(error, FetchError::Empty), "{error}");
}
