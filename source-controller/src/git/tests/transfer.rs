//! Bringing commits into a mirror.

use sluice_harness::git::{Fault, Scope};

use super::*;

#[tokio::test]
async fn a_first_fetch_brings_the_whole_commit() {
    let world = World::with_files().await;
    let checkout = world.fetch(&main()).await.unwrap();
    assert_eq!(world.steps(), [Step::InfoRefs, Step::LsRefs, Step::Fetch]);
    let commit = checkout.commit();
    assert_eq!(commit.id.to_string(), world.repository.head().unwrap());
    assert_eq!(
        (commit.subject(), commit.message.as_str()),
        ("First", "First\n\nwith a body\n")
    );
    assert!(
        commit.author.starts_with("Ada Lovelace <ada@example.com> "),
        "{}",
        commit.author
    );
    assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"));
    assert_eq!(
        read_all(checkout).await.unwrap(),
        100 * noise(0, 8192).len() as u64
    );
    assert_eq!(fsck(&generation(&world)), "");
}

#[tokio::test]
async fn a_later_fetch_brings_the_difference() {
    let world = World::with_files().await;
    world.fetch(&main()).await.unwrap();
    let all = world.fetched_bytes();
    for number in 0..3 {
        let changed = format!("{}# changed {number}\n", noise(7, 8192));
        world
            .repository
            .commit_files(&[("modules/7/main.tf", changed)], "change")
            .unwrap();
        let checkout = world.fetch(&main()).await.unwrap();
        let difference = world.fetched_bytes();
        assert!(
            difference < 8192 && difference * 100 < all,
            "{difference} of {all} bytes"
        );
        assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"));
        read_all(checkout).await.unwrap();
    }
    assert_eq!(fsck(&generation(&world)), "");
}

#[tokio::test]
async fn several_commits_at_once_are_one_fetch() {
    let world = World::with_files().await;
    world.fetch(&main()).await.unwrap();
    for number in 0..3 {
        world
            .repository
            .commit_files(&[(&*format!("new/{number}"), noise(number, 100))], "more")
            .unwrap();
    }
    world.repository.remove("modules/3").unwrap();
    world.repository.commit("less").unwrap();
    world.steps();
    let checkout = world.fetch(&main()).await.unwrap();
    assert_eq!(world.steps(), [Step::LsRefs, Step::Fetch]);
    assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"));
}

#[tokio::test]
async fn history_that_was_replaced_and_pruned_does_no_harm() {
    let world = World::with_files().await;
    world.fetch(&main()).await.unwrap();
    world
        .repository
        .git(["checkout", "--quiet", "--orphan", "other"])
        .unwrap();
    world.repository.remove("modules").unwrap();
    world
        .repository
        .commit_files(&[("only", noise(1, 5000))], "unrelated")
        .unwrap();
    world
        .repository
        .git(["branch", "--force", "main", "other"])
        .unwrap();
    world
        .repository
        .git(["reflog", "expire", "--expire=now", "--all"])
        .unwrap();
    world.repository.git(["gc", "--quiet", "--prune=now"]).unwrap();
    let checkout = world.fetch(&main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, "main"));
    assert_eq!(fsck(&generation(&world)), "");
}

#[tokio::test]
async fn a_ref_that_moves_back_needs_no_transfer() {
    let world = World::with_files().await;
    world.fetch(&main()).await.unwrap();
    world.repository.commit_files(&[("a", "1")], "two").unwrap();
    world.fetch(&main()).await.unwrap();
    world
        .repository
        .git(["reset", "--quiet", "--hard", "HEAD~1"])
        .unwrap();
    world.steps();
    let checkout = world.fetch(&main()).await.unwrap();
    assert_eq!(world.steps(), [Step::LsRefs]);
    assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"));
}

#[tokio::test]
async fn a_tag_is_fetched_with_its_commit() {
    let world = World::new().await;
    let commit = world.repository.commit_files(&[("a", "1")], "one").unwrap();
    world.repository.annotated_tag("v1", "release").unwrap();
    let checkout = world.fetch(&Reference::Tag("v1".into())).await.unwrap();
    assert_eq!(checkout.commit().id.to_string(), commit);
    assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"));
}

#[tokio::test]
async fn any_commit_can_be_pinned() {
    let world = World::new().await;
    let first = world.repository.commit_files(&[("a", "1")], "one").unwrap();
    world.repository.commit_files(&[("a", "2")], "two").unwrap();
    let checkout = world.fetch(&pinned(&first)).await.unwrap();
    assert_eq!(
        (checkout.commit().subject(), world.steps()),
        ("one", vec![Step::InfoRefs, Step::Fetch])
    );
    assert_eq!(files(&checkout), ls_tree(&world.repository, &first));
    let missing = "0123456789abcdef0123456789abcdef01234567";
    let error = world.fetch(&pinned(missing)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("unable to resolve commit object for '{missing}': object not found")
    );
    let tree = world.repository.resolve("HEAD^{tree}").unwrap();
    let error = world.fetch(&pinned(&tree)).await.unwrap_err();
    assert!(error.to_string().ends_with("is a tree, not a commit"), "{error}");
}

#[tokio::test]
async fn objects_that_share_a_mirror_share_the_transfer() {
    let world = shared(World::with_files().await);
    let jobs = (0..6).map(|_| {
        let world = Arc::clone(&world);
        tokio::spawn(async move { read_all(world.fetch(&main()).await.unwrap()).await.unwrap() })
    });
    for job in jobs.collect::<Vec<_>>() {
        assert!(bounded(job).await.unwrap() > 0);
    }
    assert_eq!(world.server.count(Step::Fetch), 1);
}

#[tokio::test]
async fn two_branches_are_fetched_into_one_mirror_at_the_same_time() {
    let world = World::with_files().await;
    world.repository.branch("other").unwrap();
    world.repository.commit_files(&[("b", "1")], "two").unwrap();
    let other = Reference::Branch("other".into());
    let main = main();
    let (one, two) = tokio::join!(world.fetch(&main), world.fetch(&other));
    assert_eq!(files(&one.unwrap()), ls_tree(&world.repository, "main"));
    assert_eq!(files(&two.unwrap()), ls_tree(&world.repository, "other"));
    assert_eq!(fsck(&generation(&world)), "");
}

#[tokio::test]
async fn a_connection_that_broke_is_replaced() {
    let world = World::new().await;
    world.repository.commit_files(&[("a", "1")], "one").unwrap();
    world.head(&main()).await.unwrap();
    world.server.fault(Scope::LS_REFS, Fault::Truncated(10));
    let error = world.head(&main()).await.unwrap_err();
    assert!(
        matches!(error, FetchError::Connection { .. } | FetchError::Answer { .. }),
        "{error}"
    );
    world.server.clear_faults();
    world.fetch(&main()).await.unwrap();
}
