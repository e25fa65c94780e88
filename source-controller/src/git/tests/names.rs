//! Refs by their full names, and tags of every kind.

use super::*;

fn named(name: &str) -> Reference {
    Reference::Name(name.into())
}

#[tokio::test]
async fn any_ref_can_be_named() {
    let world = World::new().await;
    let first = world.repository.commit_files(&[("a", "1")], "one").unwrap();
    let tag = world.repository.annotated_tag("v1", "release").unwrap();
    let second = world.repository.commit_files(&[("a", "2")], "two").unwrap();
    // On no branch: what a host shows of a fork.
    world.repository.git(["checkout", "--quiet", "--detach"]).unwrap();
    let pull = world.repository.commit_files(&[("a", "3")], "three").unwrap();
    world
        .repository
        .git(["update-ref", "refs/pull/1/head", &pull])
        .unwrap();
    world.repository.checkout("main").unwrap();
    for (name, commit, object) in [
        ("refs/heads/main", &second, &second),
        ("HEAD", &second, &second),
        ("refs/pull/1/head", &pull, &pull),
        ("refs/tags/v1", &first, &tag),
        ("refs/tags/v1^{}", &first, &tag),
    ] {
        let head = world.head(&named(name)).await.unwrap();
        assert_eq!(
            (head.commit.to_string(), head.object.to_string()),
            (commit.clone(), object.clone()),
            "{name}"
        );
        assert_eq!(head.revision(), format!("{name}@sha1:{commit}"));
        let checkout = world.fetch(&named(name)).await.unwrap();
        assert_eq!(files(&checkout), ls_tree(&world.repository, commit), "{name}");
    }
    assert_eq!(fsck(&generation(&world)), "");
}

#[tokio::test]
async fn another_ref_of_the_same_commit_needs_no_transfer() {
    let world = World::new().await;
    world.repository.commit_files(&[("a", "1")], "one").unwrap();
    world.repository.branch("other").unwrap();
    world.fetch(&named("refs/heads/main")).await.unwrap();
    world.steps();
    world.fetch(&named("refs/heads/other")).await.unwrap();
    assert_eq!(world.steps(), [Step::LsRefs]);
}

#[tokio::test]
async fn names_that_lead_nowhere_are_refused() {
    let world = World::new().await;
    world.repository.commit("one").unwrap();
    for (name, wanted) in [
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
        assert_eq!(world.head(&named(name)).await.unwrap_err().to_string(), wanted);
    }
}

#[tokio::test]
async fn a_tag_is_kept_with_the_commit_it_leads_to() {
    let world = World::new().await;
    let commit = world.repository.commit_files(&[("a", "1")], "one").unwrap();
    let inner = world.repository.annotated_tag("inner", "inner").unwrap();
    let outer = {
        world
            .repository
            .git(["tag", "--annotate", "--message", "outer", "outer", "inner"])
            .unwrap();
        world.repository.resolve("refs/tags/outer").unwrap()
    };
    // The commit alone first: the tags come later, each for itself.
    world.fetch(&main()).await.unwrap();
    for (name, tag, points_to) in [("inner", &inner, &commit), ("outer", &outer, &inner)] {
        let reference = Reference::Tag(name.into());
        let head = world.head(&reference).await.unwrap();
        let object = head.tag().unwrap().object.unwrap();
        assert_eq!(object.to_string(), *tag);
        let checkout = world.fetch(&reference).await.unwrap();
        assert_eq!(checkout.commit().id.to_string(), commit);
        let raw = checkout.raw_tag(object).unwrap();
        assert!(
            raw.starts_with(format!("object {points_to}\n").as_bytes()),
            "{name}"
        );
    }
    world.steps();
    world.fetch(&Reference::Tag("outer".into())).await.unwrap();
    assert_eq!(world.steps(), [Step::LsRefs]);
    let head = world.head(&Reference::Tag("outer".into())).await.unwrap();
    assert_eq!(head.revision(), format!("outer@sha1:{commit}"));
}

#[tokio::test]
async fn a_tag_of_something_without_files_is_refused() {
    let world = World::new().await;
    world.repository.commit_files(&[("a", "1")], "one").unwrap();
    for (name, object, kind) in [("tree", "HEAD^{tree}", "tree"), ("blob", "HEAD:a", "blob")] {
        let id = world.repository.resolve(object).unwrap();
        world
            .repository
            .git(["tag", "--annotate", "--message", "odd", name, &id])
            .unwrap();
        world
            .repository
            .git(["tag", &format!("light-{name}"), &id])
            .unwrap();
        for tag in [name.to_owned(), format!("light-{name}")] {
            let error = world.fetch(&Reference::Tag(tag.clone())).await.unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("object {id} is a {kind}, not a commit"),
                "{tag}"
            );
        }
    }
}

#[tokio::test]
async fn a_pinned_commit_may_go_by_the_name_of_its_tag() {
    let world = World::new().await;
    let commit = world.repository.commit_files(&[("a", "1")], "one").unwrap();
    let tag = world.repository.annotated_tag("v1", "release").unwrap();
    world.repository.commit_files(&[("a", "2")], "two").unwrap();
    world.repository.annotated_tag("v2", "release").unwrap();
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
        let head = world.head(&pin(name)).await.unwrap();
        assert_eq!(head.object.to_string(), *object, "{name}");
        assert_eq!(head.revision(), format!("{name}@sha1:{commit}"));
        let checkout = world.fetch(&pin(name)).await.unwrap();
        assert_eq!(checkout.commit().id, head.commit, "{name}");
        if head.object != head.commit {
            checkout.raw_tag(head.object).unwrap();
        }
    }
}
