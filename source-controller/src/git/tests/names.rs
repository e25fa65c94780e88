//! Refs by their full names, and tags of every kind.

use super::*;

fn named(name: &str) -> Reference {
    Reference::Name(name.into())
}

#[tokio::test]
async fn any_ref_can_be_named() {
    let env = TestEnvironment::new().await;
    let first = env.repository.commit_files(&[("a", "1")], "one").unwrap();
    let tag = env.repository.annotated_tag("v1", "release").unwrap();
    let second = env.repository.commit_files(&[("a", "2")], "two").unwrap();
    // On no branch, like the ref of a pull request from a fork.
    env.repository.git(["checkout", "--quiet", "--detach"]).unwrap();
    let pull = env.repository.commit_files(&[("a", "3")], "three").unwrap();
    env.repository
        .git(["update-ref", "refs/pull/1/head", &pull])
        .unwrap();
    env.repository.checkout("main").unwrap();
    for (name, commit, object) in [
        ("refs/heads/main", &second, &second),
        ("HEAD", &second, &second),
        ("refs/pull/1/head", &pull, &pull),
        ("refs/tags/v1", &first, &tag),
        ("refs/tags/v1^{}", &first, &tag),
    ] {
        let head = env.head(&named(name)).await.unwrap();
        assert_eq!(
            (head.commit.to_string(), head.object.to_string()),
            (commit.clone(), object.clone()),
            "{name}"
        );
        assert_eq!(head.revision(), format!("{name}@sha1:{commit}"));
        let checkout = env.fetch(&named(name)).await.unwrap();
        assert_eq!(files(&checkout), ls_tree(&env.repository, commit), "{name}");
    }
    assert_eq!(fsck(&generation(&env)), "");
}

#[tokio::test]
async fn another_ref_of_the_same_commit_needs_no_transfer() {
    let env = TestEnvironment::new().await;
    env.repository.commit_files(&[("a", "1")], "one").unwrap();
    env.repository.branch("other").unwrap();
    env.fetch(&named("refs/heads/main")).await.unwrap();
    env.steps();
    env.fetch(&named("refs/heads/other")).await.unwrap();
    assert_eq!(env.steps(), [Step::LsRefs]);
}

#[tokio::test]
async fn missing_and_invalid_ref_names_are_refused() {
    let env = TestEnvironment::new().await;
    env.repository.commit("one").unwrap();
    for (name, expected) in [
        (
            "refs/heads/gone",
            "unable to resolve ref 'refs/heads/gone' to a specific commit",
        ),
        ("main", "unable to resolve ref 'main' to a specific commit"),
        (
            "refs/heads/a b",
            "unable to resolve ref 'refs/heads/a b' to a specific commit",
        ),
        (
            "/refs/heads/main",
            "ref /refs/heads/main is invalid; Git refs cannot begin or end with a slash '/'",
        ),
        (
            "refs/heads/main/",
            "ref refs/heads/main/ is invalid; Git refs cannot begin or end with a slash '/'",
        ),
    ] {
        assert_eq!(env.head(&named(name)).await.unwrap_err().to_string(), expected);
    }
}

#[tokio::test]
async fn a_tag_is_stored_with_its_peeled_commit() {
    let env = TestEnvironment::new().await;
    let commit = env.repository.commit_files(&[("a", "1")], "one").unwrap();
    let inner = env.repository.annotated_tag("inner", "inner").unwrap();
    let outer = {
        env.repository
            .git(["tag", "--annotate", "--message", "outer", "outer", "inner"])
            .unwrap();
        env.repository.resolve("refs/tags/outer").unwrap()
    };
    // Fetch the commit first, then each tag separately.
    env.fetch(&main()).await.unwrap();
    for (name, tag, points_to) in [("inner", &inner, &commit), ("outer", &outer, &inner)] {
        let reference = Reference::Tag(name.into());
        let head = env.head(&reference).await.unwrap();
        let object = head.tag().unwrap().object.unwrap();
        assert_eq!(object.to_string(), *tag);
        let checkout = env.fetch(&reference).await.unwrap();
        assert_eq!(checkout.commit().id.to_string(), commit);
        let raw = checkout.raw_tag(object).unwrap();
        assert!(
            raw.starts_with(format!("object {points_to}\n").as_bytes()),
            "{name}"
        );
    }
    env.steps();
    env.fetch(&Reference::Tag("outer".into())).await.unwrap();
    assert_eq!(env.steps(), [Step::LsRefs]);
    let head = env.head(&Reference::Tag("outer".into())).await.unwrap();
    assert_eq!(head.revision(), format!("outer@sha1:{commit}"));
}

#[tokio::test]
async fn a_tag_of_another_object_type_is_refused() {
    let env = TestEnvironment::new().await;
    env.repository.commit_files(&[("a", "1")], "one").unwrap();
    for (name, object, kind) in [("tree", "HEAD^{tree}", "tree"), ("blob", "HEAD:a", "blob")] {
        let id = env.repository.resolve(object).unwrap();
        env.repository
            .git(["tag", "--annotate", "--message", "odd", name, &id])
            .unwrap();
        env.repository
            .git(["tag", &format!("light-{name}"), &id])
            .unwrap();
        for tag in [name.to_owned(), format!("light-{name}")] {
            let error = env.fetch(&Reference::Tag(tag.clone())).await.unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("object {id} is a {kind}, not a commit"),
                "{tag}"
            );
        }
    }
}

#[tokio::test]
async fn a_pinned_commit_may_have_the_name_of_its_tag() {
    let env = TestEnvironment::new().await;
    let commit = env.repository.commit_files(&[("a", "1")], "one").unwrap();
    let tag = env.repository.annotated_tag("v1", "release").unwrap();
    env.repository.commit_files(&[("a", "2")], "two").unwrap();
    env.repository.annotated_tag("v2", "release").unwrap();
    let pin = |name: &str| Reference::Commit {
        commit: commit.clone(),
        branch: None,
        name: Some(name.into()),
    };
    for (name, object) in [
        ("refs/tags/v1", &tag),
        ("refs/tags/v1^{}", &commit),
        ("refs/tags/v2", &commit),
        ("refs/tags/v9", &commit),
    ] {
        let head = env.head(&pin(name)).await.unwrap();
        assert_eq!(head.object.to_string(), *object, "{name}");
        assert_eq!(head.revision(), format!("{name}@sha1:{commit}"));
        let checkout = env.fetch(&pin(name)).await.unwrap();
        assert_eq!(checkout.commit().id, head.commit, "{name}");
        if head.object != head.commit {
            checkout.raw_tag(head.object).unwrap();
        }
    }
}
