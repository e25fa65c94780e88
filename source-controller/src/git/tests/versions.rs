//! Tags selected by a version constraint.

use super::*;

fn constraint(text: &str) -> Reference {
    Reference::Semver(text.into())
}

#[tokio::test]
async fn the_highest_matching_version_needs_one_request() {
    let env = TestEnvironment::new().await;
    let mut commits = Vec::new();
    for tag in [
        "v0.1.0",
        "0.2.0",
        "v0.2.1",
        "v1.0.0-alpha",
        "v1.1.0-alpha",
        "latest",
    ] {
        commits.push(env.repository.commit(tag).unwrap());
        env.repository.annotated_tag(tag, "release").unwrap();
    }
    env.head(&main()).await.unwrap();
    for (text, tag, commit) in [
        ("*", "v0.2.1", &commits[2]),
        ("<v0.2.1", "0.2.0", &commits[1]),
        (">=1.0.0-0 <1.1.0-0", "v1.0.0-alpha", &commits[3]),
    ] {
        env.steps();
        let head = env.head(&constraint(text)).await.unwrap();
        assert_eq!(env.steps(), [Step::LsRefs]);
        assert_eq!(head.revision(), format!("{tag}@sha1:{commit}"));
        assert_eq!(head.reference, Reference::Tag(tag.into()));
        let checkout = env.fetch(&constraint(text)).await.unwrap();
        assert_eq!(checkout.commit().id, head.commit);
        checkout.raw_tag(head.object).unwrap();
    }
}

#[tokio::test]
async fn of_equal_versions_the_most_recent_commit_is_selected() {
    let env = TestEnvironment::with_files().await;
    // The order of the names is the opposite of the order of the dates.
    for tag in ["v1.0.0+c", "v1.0.0+a", "v1.0.0+b"] {
        let id = env
            .repository
            .commit_files(&[("modules/0/main.tf", tag)], tag)
            .unwrap();
        env.repository.git(["tag", tag, &id]).unwrap();
    }
    let newest = env.repository.head().unwrap();
    let head = env.head(&constraint("1.x")).await.unwrap();
    assert_eq!(head.revision(), format!("v1.0.0+b@sha1:{newest}"));
    // The commits are in the mirror: the next lookup costs only the list.
    env.steps();
    assert_eq!(env.head(&constraint("1.x")).await.unwrap(), head);
    assert_eq!(env.steps(), [Step::LsRefs]);
    env.fetch(&constraint("1.x")).await.unwrap();
    assert_eq!(env.steps(), [Step::LsRefs]);
}

#[tokio::test]
async fn equal_versions_of_one_commit_need_no_fetch() {
    let env = TestEnvironment::new().await;
    let commit = env.repository.commit("one").unwrap();
    for tag in ["1.0.0", "v1.0.0", "v1.00.0"] {
        env.repository.tag(tag).unwrap();
    }
    let head = env.head(&constraint("*")).await.unwrap();
    assert_eq!(head.revision(), format!("v1.00.0@sha1:{commit}"));
    assert_eq!(env.steps(), [Step::InfoRefs, Step::LsRefs]);
}

#[tokio::test]
async fn unsatisfied_constraints_are_distinguished_from_invalid_ones() {
    let env = TestEnvironment::new().await;
    env.repository.commit("one").unwrap();
    for (tag, text, expected) in [
        ("v0.1", "*", "no match found for semver: *"),
        ("v1.0.0-rc.1", ">=1", "no match found for semver: >=1"),
        (
            "v1.0.0",
            "one",
            "semver parse error: improper constraint: \"one\"",
        ),
    ] {
        env.repository.tag(tag).unwrap();
        assert_eq!(
            env.head(&constraint(text)).await.unwrap_err().to_string(),
            expected
        );
    }
    env.steps();
    env.head(&constraint("one")).await.unwrap_err();
    assert_eq!(env.steps(), [], "an invalid constraint sends no request");
}

#[tokio::test]
async fn fifty_thousand_tags_are_supported() {
    let env = TestEnvironment::new().await;
    let commit = env.repository.commit("one").unwrap();
    let line = |number: u32| format!("{commit} refs/tags/v0.{}.{}\n", number / 100, number % 100);
    let lines: String = (0..50_000).map(line).collect();
    std::fs::write(env.repository.git_dir().join("packed-refs"), lines).unwrap();
    let head = env.head(&constraint("0.x")).await.unwrap();
    assert_eq!(head.revision(), format!("v0.499.99@sha1:{commit}"));
    let mut remote = env.remote();
    remote.limits.refs_bytes = 1 << 20;
    let error = env.head_at(&remote, &constraint("0.x")).await.unwrap_err();
    let expected = format!(
        "{} lists refs in more than 1048576 bytes; raise --git-max-refs-bytes or delete refs",
        remote.address.host()
    );
    assert_eq!(error.to_string(), expected);
}
