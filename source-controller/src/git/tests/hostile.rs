//! Trees that are small to send and endless to walk.

use std::sync::atomic::{AtomicBool, Ordering};

use sluice_harness::git::pack::{PackWriter, fetch_response, object_name, packet};
use sluice_harness::git::{Fault, Injection, Scope};

use super::*;

/// Selects no file, but enters every directory.
#[derive(Debug)]
struct SelectsNothing;

impl Selection for SelectsNothing {
    fn selects(&self, _: &[u8]) -> bool {
        false
    }

    fn may_contain(&self, _: &[u8]) -> bool {
        true
    }
}

/// Serves a commit of this tree, in a pack, as `main`.
fn serve_commit(env: &TestEnvironment, mut pack: PackWriter, tree: [u8; 20]) -> String {
    let commit = format!(
        "tree {}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nhostile\n",
        hex::encode(tree)
    );
    let commit = hex::encode(pack.object("commit", commit.as_bytes()));
    let line = packet(format!("{commit} refs/heads/main\n").as_bytes());
    let list = [&line[..], b"0000"].concat();
    env.server.fault(Scope::LS_REFS, Fault::Reply(list.into()));
    let answer = fetch_response(&[], &pack.finish());
    env.server.fault(Scope::FETCH, Fault::Reply(answer.into()));
    commit
}

fn tree_entry(mode: &str, name: &str, id: [u8; 20]) -> Vec<u8> {
    [format!("{mode} {name}\0").as_bytes(), &id].concat()
}

/// Nested trees with ten names each: 10^10 paths.
fn tree_bomb(pack: &mut PackWriter) -> [u8; 20] {
    let blob = pack.object("blob", b"bang");
    let leaves: Vec<_> = (0..10)
        .map(|n| tree_entry("100644", &n.to_string(), blob))
        .collect();
    let mut tree = pack.object("tree", &leaves.concat());
    for _ in 0..9 {
        let names: Vec<_> = (0..10)
            .map(|n| tree_entry("40000", &n.to_string(), tree))
            .collect();
        tree = pack.object("tree", &names.concat());
    }
    tree
}

#[tokio::test]
async fn a_walk_over_a_tree_bomb_ends_at_the_entry_limit() {
    let env = TestEnvironment::with_files().await;
    let mut pack = PackWriter::default();
    let tree = tree_bomb(&mut pack);
    serve_commit(&env, pack, tree);
    // The commit is complete: eleven objects.
    let checkout = env.fetch(&main()).await.unwrap();
    let walk = move || {
        let selection_error = checkout.missing_blobs(&SelectsNothing, &CancellationToken::new());
        let all = crate::tree::Tree::new(checkout, None)
            .nodes()
            .find_map(Result::err);
        (selection_error.unwrap_err().to_string(), all.unwrap().to_string())
    };
    let words = "the tree of the commit has more than 1000000 entries; raise --git-max-entries";
    let found = bounded(tokio::task::spawn_blocking(walk)).await.unwrap();
    assert_eq!(found, (words.to_owned(), words.to_owned()));
}

#[tokio::test]
async fn a_walk_over_a_tree_bomb_can_be_cancelled() {
    let env = TestEnvironment::with_files().await;
    let mut pack = PackWriter::default();
    let tree = tree_bomb(&mut pack);
    serve_commit(&env, pack, tree);
    let mut remote = env.remote();
    remote.limits.entries = u64::MAX;
    let checkout = env.fetch_from(&remote, &main()).await.unwrap();
    let (stop, started) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
    let (token, flag) = (stop.clone(), Arc::clone(&started));
    let walk = tokio::task::spawn_blocking(move || {
        flag.store(true, Ordering::Relaxed);
        checkout.missing_blobs(&SelectsNothing, &token)
    });
    while !started.load(Ordering::Relaxed) {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    assert!(matches!(bounded(walk).await.unwrap(), Err(FetchError::Stopped)));
}

#[tokio::test]
async fn an_oversized_directory_is_refused_before_it_is_listed() {
    let env = TestEnvironment::with_files().await;
    let mut pack = PackWriter::default();
    let id = object_name("blob", b"bang");
    pack.object("blob", b"bang");
    let names: Vec<u8> = (0..40_000)
        .flat_map(|n| tree_entry("100644", &format!("{n:08}"), id))
        .collect();
    let tree = pack.object("tree", &names);
    serve_commit(&env, pack, tree);
    let mut remote = env.remote();
    remote.limits.entries = 39_999;
    let error = env.fetch_from(&remote, &main()).await.unwrap_err();
    let (tree, size) = (hex::encode(tree), names.len());
    assert_eq!(
        error.to_string(),
        format!(
            "directory {tree} has {size} bytes of names, more than 1048576, 16 for each entry that --git-max-entries allows"
        )
    );
    assert_eq!(env.files(|name| name.starts_with("pack-")), Vec::<PathBuf>::new());
    remote.limits.entries = 100_000;
    env.fetch_from(&remote, &main()).await.unwrap();
}

#[tokio::test]
async fn many_directories_with_long_paths_are_refused() {
    let env = TestEnvironment::with_files().await;
    let mut pack = PackWriter::default();
    let blob = pack.object("blob", b"");
    let empty = pack.object("tree", &tree_entry("100644", "f", blob));
    let names: Vec<u8> = (0..20_000)
        .flat_map(|n| tree_entry("40000", &format!("{n:08}"), empty))
        .collect();
    let mut tree = pack.object("tree", &names);
    for _ in 0..9 {
        tree = pack.object("tree", &tree_entry("40000", &"d".repeat(200), tree));
    }
    serve_commit(&env, pack, tree);
    let checkout = env.fetch(&main()).await.unwrap();
    let walk = move || {
        let selection_error = checkout.missing_blobs(&SelectsNothing, &CancellationToken::new());
        let all = crate::tree::Tree::new(checkout, None)
            .nodes()
            .find_map(Result::err);
        (selection_error.unwrap_err().to_string(), all.unwrap().to_string())
    };
    let words = "the paths of the directories of the commit have more than 33554432 bytes together";
    let found = bounded(tokio::task::spawn_blocking(walk)).await.unwrap();
    assert_eq!(found, (words.to_owned(), words.to_owned()));
}

#[tokio::test]
async fn many_shallow_lines_are_processed_quickly() {
    let env = TestEnvironment::with_files().await;
    let mut pack = PackWriter::default();
    let blob = pack.object("blob", b"");
    let tree = pack.object("tree", &tree_entry("100644", "f", blob));
    serve_commit(&env, pack.clone(), tree);
    let lines: Vec<u8> = (0..250_000)
        .flat_map(|n| {
            [
                packet(format!("shallow {n:040x}").as_bytes()),
                packet(format!("unshallow {n:040x}").as_bytes()),
            ]
        })
        .flatten()
        .collect();
    let commit = format!(
        "tree {}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nhostile\n",
        hex::encode(tree)
    );
    pack.object("commit", commit.as_bytes());
    let answer = fetch_response(&lines, &pack.finish());
    let head = env.head(&main()).await.unwrap();
    env.server.clear_faults();
    env.server.fault(Scope::FETCH, Fault::Reply(answer.into()));
    let remote = env.remote();
    let mirror = env.mirrors.open(&remote);
    let stop = CancellationToken::new();
    let fetched = fetch(&mirror, &remote, &head, &stop);
    // A quadratic algorithm would take minutes.
    tokio::time::timeout(Duration::from_secs(30), fetched)
        .await
        .expect("in time")
        .unwrap();
    let shallow_files = env.files(|name| name == "shallow");
    assert_eq!(
        std::fs::read(&shallow_files[0]).unwrap(),
        b"",
        "missing commits are not recorded as shallow"
    );
}

#[tokio::test]
async fn refused_haves_lead_to_a_full_fetch() {
    let env = TestEnvironment::with_files().await;
    env.fetch(&main()).await.unwrap();
    env.repository.commit_files(&[("a", "a")], "two").unwrap();
    let refusal = packet(b"ERR upload-pack: the shallow boundary is gone");
    let fault = Fault::Reply(refusal.into());
    env.server
        .inject(Injection::new(Scope::FETCH, fault).when_body_contains("have "));
    env.steps();
    let checkout = env.fetch(&main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, "main"));
    assert_eq!(env.steps(), [Step::LsRefs, Step::Fetch, Step::Fetch]);
    assert_eq!(fsck(&generation(&env)), "");
}
