//! Commits by their hash, from servers that give them out and from others.

use sluice_harness::git::{Fault, Injection, Scope};

use super::*;

/// What other servers than Git's own say of a hash that none of their refs holds.
const NOT_VALID: &str = "0016ERR want not valid";

/// A server that gives out what its refs hold, and nothing else, with a history of 60 commits on `main`; the pin is the
/// first of them. And `side`, a branch of its own. (Git's own server gives out over http whatever a ref leads to.)
async fn strict(version: u8) -> (World, String) {
    let world = World::new().await;
    world.server.speak_at_most(version);
    let first = world
        .repository
        .commit_files(&[("a", noise(1, 4000))], "first")
        .unwrap();
    for number in 0..60_u32 {
        world.repository.write("b", number.to_string()).unwrap();
        world.repository.commit("more").unwrap();
    }
    world
        .repository
        .git(["checkout", "--quiet", "--orphan", "side"])
        .unwrap();
    world.repository.commit_files(&[("side", "1")], "side").unwrap();
    world.repository.checkout("main").unwrap();
    refuse_once(&world);
    (world, first)
}

/// The next request for objects is refused: the one by hash.
fn refuse_once(world: &World) {
    let page = Fault::Page("application/x-git-upload-pack-result", NOT_VALID.into());
    world.server.inject(Injection::new(Scope::FETCH, page).times(1));
}

fn on(commit: &str, branch: &str) -> Reference {
    Reference::Commit {
        commit: commit.into(),
        branch: Some(branch.into()),
        name: None,
    }
}

fn not_found(commit: &str) -> String {
    format!("unable to resolve commit object for '{commit}': object not found")
}

#[tokio::test]
async fn a_commit_that_is_not_given_by_hash_is_found_by_deepening() {
    for version in [0, 1, 2] {
        found_by_deepening(version).await;
    }
}

async fn found_by_deepening(version: u8) {
    let (world, first) = strict(version).await;
    let checkout = world.fetch(&pinned(&first)).await.unwrap();
    assert_eq!(checkout.commit().id.to_string(), first);
    assert_eq!(files(&checkout), ls_tree(&world.repository, &first));
    let requests = world.server.requests();
    let depths: Vec<_> = requests
        .iter()
        .filter_map(|request| {
            request
                .body_text()
                .lines()
                .find_map(|line| line.get(4..)?.strip_prefix("deepen ").map(str::to_owned))
        })
        .collect();
    assert_eq!(depths, ["1", "50", "500"]);
    assert_eq!(fsck(&generation(&world)), "");
    // It stays: nothing is asked for again.
    world.steps();
    world.fetch(&pinned(&first)).await.unwrap();
    assert_eq!(world.steps(), []);
    // And what comes after it builds on it.
    let checkout = world.fetch(&main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, "main"));
    assert_eq!(fsck(&generation(&world)), "");
}

#[tokio::test]
async fn only_the_branch_that_is_named_is_searched() {
    let (world, first) = strict(2).await;
    let checkout = world.fetch(&on(&first, "main")).await.unwrap();
    assert_eq!(checkout.commit().id.to_string(), first);
    let (other, first) = strict(2).await;
    let error = other.fetch(&on(&first, "side")).await.unwrap_err();
    assert_eq!(error.to_string(), not_found(&first));
    refuse_once(&other);
    let error = other.fetch(&on(&first, "nowhere")).await.unwrap_err();
    let wanted = format!(
        "unable to clone '{}': couldn't find remote ref \"refs/heads/nowhere\"",
        other.url
    );
    assert_eq!(error.to_string(), wanted);
    assert_eq!(
        other.files(|name| name.starts_with("generation-")).len(),
        1,
        "failed searches leave nothing behind"
    );
}

#[tokio::test]
async fn a_commit_that_no_branch_leads_to_is_not_found() {
    let (world, _) = strict(2).await;
    let missing = "0123456789abcdef0123456789abcdef01234567";
    assert_eq!(
        world.fetch(&pinned(missing)).await.unwrap_err().to_string(),
        not_found(missing)
    );
    let checkout = world.fetch(&main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, "main"));
}

#[tokio::test]
async fn a_commit_below_a_tag_or_a_named_ref_is_found() {
    let (world, _) = strict(2).await;
    world.repository.git(["checkout", "--quiet", "--detach"]).unwrap();
    let below = world.repository.commit_files(&[("below", "1")], "below").unwrap();
    world.repository.commit_files(&[("below", "2")], "above").unwrap();
    world
        .repository
        .git(["update-ref", "refs/pull/1/head", "HEAD"])
        .unwrap();
    assert_eq!(
        world.fetch(&pinned(&below)).await.unwrap_err().to_string(),
        not_found(&below)
    );
    refuse_once(&world);
    let named = Reference::Commit {
        commit: below.clone(),
        branch: None,
        name: Some("refs/pull/1/head".into()),
    };
    let checkout = world.fetch(&named).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, &below));
    assert_eq!(
        world.head(&named).await.unwrap().revision(),
        format!("refs/pull/1/head@sha1:{below}")
    );

    let (world, _) = strict(2).await;
    world.repository.git(["checkout", "--quiet", "--detach"]).unwrap();
    let below = world.repository.commit_files(&[("below", "1")], "below").unwrap();
    world.repository.commit_files(&[("below", "2")], "above").unwrap();
    world.repository.annotated_tag("v1", "release").unwrap();
    let checkout = world.fetch(&pinned(&below)).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, &below));
}

#[tokio::test]
async fn a_server_that_gives_commits_by_hash_is_asked_once() {
    for setting in [
        "uploadpack.allowReachableSHA1InWant",
        "uploadpack.allowAnySHA1InWant",
    ] {
        let (world, first) = strict(0).await;
        world.server.clear_faults();
        world.repository.git(["config", setting, "true"]).unwrap();
        world.fetch(&pinned(&first)).await.unwrap();
        assert_eq!(world.steps(), [Step::InfoRefs, Step::Fetch], "{setting}");
        let missing = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(
            world.fetch(&pinned(missing)).await.unwrap_err().to_string(),
            not_found(missing)
        );
        assert_eq!(world.server.count(Step::Fetch), 1, "{setting}");
    }
}

#[tokio::test]
async fn version_2_gives_every_commit_whatever_the_settings_say() {
    let world = World::new().await;
    let first = world.repository.commit_files(&[("a", "1")], "one").unwrap();
    world.repository.commit_files(&[("a", "2")], "two").unwrap();
    world
        .repository
        .git(["config", "uploadpack.allowAnySHA1InWant", "false"])
        .unwrap();
    world.fetch(&pinned(&first)).await.unwrap();
    assert_eq!(world.steps(), [Step::InfoRefs, Step::Fetch]);
}

#[tokio::test]
async fn all_steps_of_a_search_share_one_limit_and_one_time() {
    let (world, first) = strict(2).await;
    let mut remote = world.remote();
    remote.limits.pack_bytes = 5_000;
    let error = world.fetch_from(&remote, &pinned(&first)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the repository is too large: more than 5000 bytes in one fetch; raise --git-max-pack-bytes or make it smaller"
    );
    let mut remote = world.remote();
    remote.timeout = Duration::from_millis(300);
    world.server.fault(Scope::FETCH, Fault::Hung);
    let error = world.fetch_from(&remote, &pinned(&first)).await.unwrap_err();
    assert!(matches!(error, FetchError::TimedOut { .. }), "{error}");
}
