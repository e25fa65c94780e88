//! Tags that a version constraint picks.

use super::*;

fn constraint(text: &str) -> Reference {
    Reference::Semver(text.into())
}

#[tokio::test]
async fn the_highest_version_that_fits_is_found_with_one_request() {
    let world = World::new().await;
    let mut commits = Vec::new();
    for tag in [
        "v0.1.0",
        "0.2.0",
        "v0.2.1",
        "v1.0.0-alpha",
        "v1.1.0-alpha",
        "latest",
    ] {
        commits.push(world.repository.commit(tag).unwrap());
        world.repository.annotated_tag(tag, "release").unwrap();
    }
    world.head(&main()).await.unwrap();
    for (text, tag, commit) in [
        ("*", "v0.2.1", &commits[2]),
        ("<v0.2.1", "0.2.0", &commits[1]),
        (">=1.0.0-0 <1.1.0-0", "v1.0.0-alpha", &commits[3]),
    ] {
        world.steps();
        let head = world.head(&constraint(text)).await.unwrap();
        assert_eq!(world.steps(), [Step::LsRefs]);
        assert_eq!(head.revision(), format!("{tag}@sha1:{commit}"));
        assert_eq!(head.reference, Reference::Tag(tag.into()));
        let checkout = world.fetch(&constraint(text)).await.unwrap();
        assert_eq!(checkout.commit().id, head.commit);
        checkout.raw_tag(head.object).unwrap();
    }
}

#[tokio::test]
async fn of_equal_versions_the_one_made_last_is_taken() {
    let world = World::with_files().await;
    // Names that say the opposite of the dates.
    for tag in ["v1.0.0+c", "v1.0.0+a", "v1.0.0+b"] {
        let id = world
            .repository
            .commit_files(&[("modules/0/main.tf", tag)], tag)
            .unwrap();
        world.repository.git(["tag", tag, &id]).unwrap();
    }
    let newest = world.repository.head().unwrap();
    let head = world.head(&constraint("1.x")).await.unwrap();
    assert_eq!(head.revision(), format!("v1.0.0+b@sha1:{newest}"));
    // Their commits are here now: the next look costs the list alone.
    world.steps();
    assert_eq!(world.head(&constraint("1.x")).await.unwrap(), head);
    assert_eq!(world.steps(), [Step::LsRefs]);
    world.fetch(&constraint("1.x")).await.unwrap();
    assert_eq!(world.steps(), [Step::LsRefs]);
}

#[tokio::test]
async fn equal_versions_of_one_commit_need_no_commit_to_decide() {
    let world = World::new().await;
    let commit = world.repository.commit("one").unwrap();
    for tag in ["1.0.0", "v1.0.0", "v1.00.0"] {
        world.repository.tag(tag).unwrap();
    }
    let head = world.head(&constraint("*")).await.unwrap();
    assert_eq!(head.revision(), format!("v1.00.0@sha1:{commit}"));
    assert_eq!(world.steps(), [Step::InfoRefs, Step::LsRefs]);
}

#[tokio::test]
async fn constraints_that_nothing_satisfies_are_told_from_those_that_are_none() {
    let world = World::new().await;
    world.repository.commit("one").unwrap();
    for (tag, text, wanted) in [
        ("v0.1", "*", "no match found for semver: *"),
        ("v1.0.0-rc.1", ">=1", "no match found for semver: >=1"),
        (
            "v1.0.0",
            "one",
            "semver parse error: improper constraint: \"one\"",
        ),
    ] {
        world.repository.tag(tag).unwrap();
        assert_eq!(
            world.head(&constraint(text)).await.unwrap_err().to_string(),
            wanted
        );
    }
    world.steps();
    world.head(&constraint("one")).await.unwrap_err();
    assert_eq!(world.steps(), [], "nobody is asked about it");
}

#[tokio::test]
async fn fifty_thousand_tags_are_a_list_like_any_other() {
    let world = World::new().await;
    let commit = world.repository.commit("one").unwrap();
    let line = |number: u32| format!("{commit} refs/tags/v0.{}.{}\n", number / 100, number % 100);
    let lines: String = (0..50_000).map(line).collect();
    std::fs::write(world.repository.git_dir().join("packed-refs"), lines).unwrap();
    let head = world.head(&constraint("0.x")).await.unwrap();
    assert_eq!(head.revision(), format!("v0.499.99@sha1:{commit}"));
    let mut remote = world.remote();
    remote.limits.refs_bytes = 1 << 20;
    let error = world.head_at(&remote, &constraint("0.x")).await.unwrap_err();
    let wanted = format!(
        "{} lists refs in more than 1048576 bytes; raise --git-max-refs-bytes or delete refs",
        remote.address.host()
    );
    assert_eq!(error.to_string(), wanted);
}
