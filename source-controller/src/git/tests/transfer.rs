//! Fetches of commits into a mirror.

use sluice_harness::git::{Fault, Scope};

use super::*;

#[tokio::test]
async fn a_first_fetch_transfers_the_complete_commit() {
    let env = TestEnvironment::with_files().await;
    let checkout = env.fetch(&main()).await.unwrap();
    assert_eq!(env.steps(), [Step::InfoRefs, Step::LsRefs, Step::Fetch]);
    let commit = checkout.commit();
    assert_eq!(commit.id.to_string(), env.repository.head().unwrap());
    assert_eq!(
        (commit.subject(), commit.message.as_str()),
        ("First", "First\n\nwith a body\n")
    );
    assert!(
        commit.author.starts_with("Ada Lovelace <ada@example.com> "),
        "{}",
        commit.author
    );
    assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"));
    assert_eq!(
        read_all(checkout).await.unwrap(),
        100 * noise(0, 8192).len() as u64
    );
    assert_eq!(fsck(&generation(&env)), "");
}

#[tokio::test]
async fn a_later_fetch_is_incremental() {
    let env = TestEnvironment::with_files().await;
    env.fetch(&main()).await.unwrap();
    let all = env.fetched_bytes();
    for number in 0..3 {
        let changed = format!("{}# changed {number}\n", noise(7, 8192));
        env.repository
            .commit_files(&[("modules/7/main.tf", changed)], "change")
            .unwrap();
        let checkout = env.fetch(&main()).await.unwrap();
        let difference = env.fetched_bytes();
        assert!(
            difference < 8192 && difference * 100 < all,
            "{difference} of {all} bytes"
        );
        assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"));
        read_all(checkout).await.unwrap();
    }
    assert_eq!(fsck(&generation(&env)), "");
}

/// Git runs while the server answers, on another thread.
#[tokio::test(flavor = "multi_thread")]
async fn a_later_fetch_is_hardly_larger_than_that_of_git() {
    let env = TestEnvironment::with_files().await;
    env.fetch(&main()).await.unwrap();
    let (clones, url) = (
        Repository::create().unwrap(),
        env.server.serve("clone", &env.repository),
    );
    clones
        .git([
            "clone",
            "--quiet",
            "--bare",
            "--depth",
            "1",
            url.as_str(),
            "clone",
        ])
        .unwrap();
    let changed = format!("{}# changed\n", noise(7, 8192));
    env.repository
        .commit_files(&[("modules/7/main.tf", changed)], "change")
        .unwrap();
    env.fetch(&main()).await.unwrap();
    let own = env.fetched_bytes();
    env.server.clear_requests();
    clones
        .git([
            "-C", "clone", "fetch", "--quiet", "--depth", "1", "origin", "main",
        ])
        .unwrap();
    let requests = env.server.requests();
    let fetches = requests.iter().filter(|request| request.step == Step::Fetch);
    let of_git: u64 = fetches.map(|request| request.response_bytes).sum();
    assert!(
        of_git > 0 && own * 4 <= of_git * 5,
        "{own} to {of_git} bytes of git"
    );
}

#[tokio::test]
async fn several_commits_at_once_are_one_fetch() {
    let env = TestEnvironment::with_files().await;
    env.fetch(&main()).await.unwrap();
    for number in 0..3 {
        env.repository
            .commit_files(&[(&*format!("new/{number}"), noise(number, 100))], "more")
            .unwrap();
    }
    env.repository.remove("modules/3").unwrap();
    env.repository.commit("less").unwrap();
    env.steps();
    let checkout = env.fetch(&main()).await.unwrap();
    assert_eq!(env.steps(), [Step::LsRefs, Step::Fetch]);
    assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"));
}

#[tokio::test]
async fn a_replaced_and_pruned_history_is_fetched() {
    let env = TestEnvironment::with_files().await;
    env.fetch(&main()).await.unwrap();
    env.repository
        .git(["checkout", "--quiet", "--orphan", "other"])
        .unwrap();
    env.repository.remove("modules").unwrap();
    env.repository
        .commit_files(&[("only", noise(1, 5000))], "unrelated")
        .unwrap();
    env.repository
        .git(["branch", "--force", "main", "other"])
        .unwrap();
    env.repository
        .git(["reflog", "expire", "--expire=now", "--all"])
        .unwrap();
    env.repository.git(["gc", "--quiet", "--prune=now"]).unwrap();
    let checkout = env.fetch(&main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, "main"));
    assert_eq!(fsck(&generation(&env)), "");
}

#[tokio::test]
async fn a_ref_that_moves_back_needs_no_transfer() {
    let env = TestEnvironment::with_files().await;
    env.fetch(&main()).await.unwrap();
    env.repository.commit_files(&[("a", "1")], "two").unwrap();
    env.fetch(&main()).await.unwrap();
    env.repository
        .git(["reset", "--quiet", "--hard", "HEAD~1"])
        .unwrap();
    env.steps();
    let checkout = env.fetch(&main()).await.unwrap();
    assert_eq!(env.steps(), [Step::LsRefs]);
    assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"));
}

#[tokio::test]
async fn a_tag_is_fetched_with_its_commit() {
    let env = TestEnvironment::new().await;
    let commit = env.repository.commit_files(&[("a", "1")], "one").unwrap();
    env.repository.annotated_tag("v1", "release").unwrap();
    let checkout = env.fetch(&Reference::Tag("v1".into())).await.unwrap();
    assert_eq!(checkout.commit().id.to_string(), commit);
    assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"));
}

#[tokio::test]
async fn any_commit_can_be_pinned() {
    let env = TestEnvironment::new().await;
    let first = env.repository.commit_files(&[("a", "1")], "one").unwrap();
    env.repository.commit_files(&[("a", "2")], "two").unwrap();
    let checkout = env.fetch(&pinned(&first)).await.unwrap();
    assert_eq!(
        (checkout.commit().subject(), env.steps()),
        ("one", vec![Step::InfoRefs, Step::Fetch])
    );
    assert_eq!(files(&checkout), ls_tree(&env.repository, &first));
    let missing = "0123456789abcdef0123456789abcdef01234567";
    let error = env.fetch(&pinned(missing)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("unable to resolve commit object for '{missing}': object not found")
    );
    let tree = env.repository.resolve("HEAD^{tree}").unwrap();
    let error = env.fetch(&pinned(&tree)).await.unwrap_err();
    assert!(error.to_string().ends_with("is a tree, not a commit"), "{error}");
}

#[tokio::test]
async fn objects_that_share_a_mirror_share_the_transfer() {
    let env = shared(TestEnvironment::with_files().await);
    let jobs = (0..6).map(|_| {
        let env = Arc::clone(&env);
        tokio::spawn(async move { read_all(env.fetch(&main()).await.unwrap()).await.unwrap() })
    });
    for job in jobs.collect::<Vec<_>>() {
        assert!(bounded(job).await.unwrap() > 0);
    }
    assert_eq!(env.server.count(Step::Fetch), 1);
}

#[tokio::test]
async fn two_branches_are_fetched_into_one_mirror_at_the_same_time() {
    let env = TestEnvironment::with_files().await;
    env.repository.branch("other").unwrap();
    env.repository.commit_files(&[("b", "1")], "two").unwrap();
    let other = Reference::Branch("other".into());
    let main = main();
    let (one, two) = tokio::join!(env.fetch(&main), env.fetch(&other));
    assert_eq!(files(&one.unwrap()), ls_tree(&env.repository, "main"));
    assert_eq!(files(&two.unwrap()), ls_tree(&env.repository, "other"));
    assert_eq!(fsck(&generation(&env)), "");
}

#[tokio::test]
async fn a_broken_connection_is_replaced() {
    let env = TestEnvironment::new().await;
    env.repository.commit_files(&[("a", "1")], "one").unwrap();
    env.head(&main()).await.unwrap();
    env.server.fault(Scope::LS_REFS, Fault::Truncated(10));
    let error = env.head(&main()).await.unwrap_err();
    assert!(
        matches!(error, FetchError::Connection { .. } | FetchError::Protocol { .. }),
        "{error}"
    );
    env.server.clear_faults();
    env.fetch(&main()).await.unwrap();
}
