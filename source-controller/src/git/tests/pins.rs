//! Commits by hash, from servers that serve hashes and from others.

use sluice_harness::git::{Fault, Injection, Scope};

use super::*;

/// Message of servers other than Git's own about a hash that is not a ref.
const NOT_VALID: &str = "0016ERR want not valid";

/// Creates a server that serves only objects of refs, with a history of 60 commits on `main`, whose first commit is the
/// pin, and a separate branch `side`. (Over http, Git's own server serves every object reachable from a ref.)
async fn strict_server(version: u8) -> (TestEnvironment, String) {
    let env = TestEnvironment::new().await;
    env.server.limit_protocol_version(version);
    let first = env
        .repository
        .commit_files(&[("a", noise(1, 4000))], "first")
        .unwrap();
    for number in 0..60_u32 {
        env.repository.write("b", number.to_string()).unwrap();
        env.repository.commit("more").unwrap();
    }
    env.repository
        .git(["checkout", "--quiet", "--orphan", "side"])
        .unwrap();
    env.repository.commit_files(&[("side", "1")], "side").unwrap();
    env.repository.checkout("main").unwrap();
    refuse_once(&env);
    (env, first)
}

/// Refuses the next fetch request: the one by hash.
fn refuse_once(env: &TestEnvironment) {
    let page = Fault::Page("application/x-git-upload-pack-result", NOT_VALID.into());
    env.server.inject(Injection::new(Scope::FETCH, page).times(1));
}

fn on_branch(commit: &str, branch: &str) -> Reference {
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
async fn a_commit_not_served_by_hash_is_found_by_deepening() {
    for version in [0, 1, 2] {
        found_by_deepening(version).await;
    }
}

async fn found_by_deepening(version: u8) {
    let (env, first) = strict_server(version).await;
    let checkout = env.fetch(&pinned(&first)).await.unwrap();
    assert_eq!(checkout.commit().id.to_string(), first);
    assert_eq!(files(&checkout), ls_tree(&env.repository, &first));
    let requests = env.server.requests();
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
    assert_eq!(fsck(&generation(&env)), "");
    // The commit stays in the mirror: no further request.
    env.steps();
    env.fetch(&pinned(&first)).await.unwrap();
    assert_eq!(env.steps(), []);
    // Later commits are fetched incrementally.
    let checkout = env.fetch(&main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, "main"));
    assert_eq!(fsck(&generation(&env)), "");
}

#[tokio::test]
async fn only_the_named_branch_is_searched() {
    let (env, first) = strict_server(2).await;
    let checkout = env.fetch(&on_branch(&first, "main")).await.unwrap();
    assert_eq!(checkout.commit().id.to_string(), first);
    let (other, first) = strict_server(2).await;
    let error = other.fetch(&on_branch(&first, "side")).await.unwrap_err();
    assert_eq!(error.to_string(), not_found(&first));
    refuse_once(&other);
    let error = other.fetch(&on_branch(&first, "nowhere")).await.unwrap_err();
    let expected = format!(
        "unable to clone '{}': couldn't find remote ref \"refs/heads/nowhere\"",
        other.url
    );
    assert_eq!(error.to_string(), expected);
    assert_eq!(
        other.files(|name| name.starts_with("generation-")).len(),
        1,
        "failed searches leave nothing behind"
    );
}

#[tokio::test]
async fn an_unreachable_commit_is_not_found() {
    let (env, _) = strict_server(2).await;
    let missing = "0123456789abcdef0123456789abcdef01234567";
    assert_eq!(
        env.fetch(&pinned(missing)).await.unwrap_err().to_string(),
        not_found(missing)
    );
    let checkout = env.fetch(&main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, "main"));
}

#[tokio::test]
async fn a_commit_below_a_tag_or_a_named_ref_is_found() {
    let (env, _) = strict_server(2).await;
    env.repository.git(["checkout", "--quiet", "--detach"]).unwrap();
    let below = env.repository.commit_files(&[("below", "1")], "below").unwrap();
    env.repository.commit_files(&[("below", "2")], "above").unwrap();
    env.repository
        .git(["update-ref", "refs/pull/1/head", "HEAD"])
        .unwrap();
    assert_eq!(
        env.fetch(&pinned(&below)).await.unwrap_err().to_string(),
        not_found(&below)
    );
    refuse_once(&env);
    let named = Reference::Commit {
        commit: below.clone(),
        branch: None,
        name: Some("refs/pull/1/head".into()),
    };
    let checkout = env.fetch(&named).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, &below));
    assert_eq!(
        env.head(&named).await.unwrap().revision(),
        format!("refs/pull/1/head@sha1:{below}")
    );

    let (env, _) = strict_server(2).await;
    env.repository.git(["checkout", "--quiet", "--detach"]).unwrap();
    let below = env.repository.commit_files(&[("below", "1")], "below").unwrap();
    env.repository.commit_files(&[("below", "2")], "above").unwrap();
    env.repository.annotated_tag("v1", "release").unwrap();
    let checkout = env.fetch(&pinned(&below)).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, &below));
}

#[tokio::test]
async fn a_commit_served_by_hash_needs_one_request() {
    for setting in [
        "uploadpack.allowReachableSHA1InWant",
        "uploadpack.allowAnySHA1InWant",
    ] {
        let (env, first) = strict_server(0).await;
        env.server.clear_faults();
        env.repository.git(["config", setting, "true"]).unwrap();
        env.fetch(&pinned(&first)).await.unwrap();
        assert_eq!(env.steps(), [Step::InfoRefs, Step::Fetch], "{setting}");
        let missing = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(
            env.fetch(&pinned(missing)).await.unwrap_err().to_string(),
            not_found(missing)
        );
        assert_eq!(env.server.count(Step::Fetch), 1, "{setting}");
    }
}

#[tokio::test]
async fn version_2_serves_every_commit_regardless_of_settings() {
    let env = TestEnvironment::new().await;
    let first = env.repository.commit_files(&[("a", "1")], "one").unwrap();
    env.repository.commit_files(&[("a", "2")], "two").unwrap();
    env.repository
        .git(["config", "uploadpack.allowAnySHA1InWant", "false"])
        .unwrap();
    env.fetch(&pinned(&first)).await.unwrap();
    assert_eq!(env.steps(), [Step::InfoRefs, Step::Fetch]);
}

#[tokio::test]
async fn all_steps_of_a_search_share_one_limit_and_one_timeout() {
    let (env, first) = strict_server(2).await;
    let mut remote = env.remote();
    remote.limits.pack_bytes = 5_000;
    let error = env.fetch_from(&remote, &pinned(&first)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the repository is too large: more than 5000 bytes in one fetch; raise --git-max-pack-bytes or make it smaller"
    );
    let mut remote = env.remote();
    remote.timeout = Duration::from_millis(300);
    env.server.fault(Scope::FETCH, Fault::Hung);
    let error = env.fetch_from(&remote, &pinned(&first)).await.unwrap_err();
    assert!(matches!(error, FetchError::TimedOut { .. }), "{error}");
}
