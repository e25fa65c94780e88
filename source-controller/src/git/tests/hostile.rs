//! Trees that are small to send and endless to walk.

use std::sync::atomic::{AtomicBool, Ordering};

use sluice_harness::git::pack::{PackWriter, fetch_answer, object_name, packet};
use sluice_harness::git::{Fault, Injection, Scope};

use super::*;

/// Selects nothing, everywhere.
#[derive(Debug)]
struct Nowhere;

impl Selection for Nowhere {
    fn selects(&self, _: &[u8]) -> bool {
        false
    }

    fn enters(&self, _: &[u8]) -> bool {
        true
    }
}

/// A commit of this tree, in a pack, served as `main`.
fn serves(world: &World, mut pack: PackWriter, tree: [u8; 20]) -> String {
    let commit = format!(
        "tree {}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nhostile\n",
        hex::encode(tree)
    );
    let commit = hex::encode(pack.object("commit", commit.as_bytes()));
    let line = packet(format!("{commit} refs/heads/main\n").as_bytes());
    let list = [&line[..], b"0000"].concat();
    world.server.fault(Scope::LS_REFS, Fault::Reply(list.into()));
    let answer = fetch_answer(&[], &pack.finish());
    world.server.fault(Scope::FETCH, Fault::Reply(answer.into()));
    commit
}

fn tree_entry(mode: &str, name: &str, id: [u8; 20]) -> Vec<u8> {
    [format!("{mode} {name}\0").as_bytes(), &id].concat()
}

/// Trees within trees, ten names of each: 10^10 paths.
fn bomb(pack: &mut PackWriter) -> [u8; 20] {
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
async fn a_walk_over_a_tree_bomb_ends_at_the_limit_of_entries() {
    let world = World::with_files().await;
    let mut pack = PackWriter::default();
    let tree = bomb(&mut pack);
    serves(&world, pack, tree);
    // All that is in it is there: eleven objects.
    let checkout = world.fetch(&main()).await.unwrap();
    let walk = move || {
        let nowhere = checkout.missing(&Nowhere, &CancellationToken::new());
        let all = crate::tree::Tree::new(checkout, None)
            .nodes()
            .find_map(Result::err);
        (nowhere.unwrap_err().to_string(), all.unwrap().to_string())
    };
    let words = "the tree of the commit has more than 1000000 entries; raise --git-max-entries";
    let found = bounded(tokio::task::spawn_blocking(walk)).await.unwrap();
    assert_eq!(found, (words.to_owned(), words.to_owned()));
}

#[tokio::test]
async fn a_walk_over_a_tree_bomb_ends_when_it_is_unwanted() {
    let world = World::with_files().await;
    let mut pack = PackWriter::default();
    let tree = bomb(&mut pack);
    serves(&world, pack, tree);
    let mut remote = world.remote();
    remote.limits.entries = u64::MAX;
    let checkout = world.fetch_from(&remote, &main()).await.unwrap();
    let (stop, begun) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
    let (token, flag) = (stop.clone(), Arc::clone(&begun));
    let walk = tokio::task::spawn_blocking(move || {
        flag.store(true, Ordering::Relaxed);
        checkout.missing(&Nowhere, &token)
    });
    while !begun.load(Ordering::Relaxed) {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    assert!(matches!(bounded(walk).await.unwrap(), Err(FetchError::Stopped)));
}

#[tokio::test]
async fn a_directory_of_too_many_names_is_refused_before_it_is_listed() {
    let world = World::with_files().await;
    let mut pack = PackWriter::default();
    let id = object_name("blob", b"bang");
    pack.object("blob", b"bang");
    let names: Vec<u8> = (0..40_000)
        .flat_map(|n| tree_entry("100644", &format!("{n:08}"), id))
        .collect();
    let tree = pack.object("tree", &names);
    serves(&world, pack, tree);
    let mut remote = world.remote();
    remote.limits.entries = 39_999;
    let error = world.fetch_from(&remote, &main()).await.unwrap_err();
    let (tree, size) = (hex::encode(tree), names.len());
    assert_eq!(
        error.to_string(),
        format!(
            "directory {tree} has {size} bytes of names, more than 1048576, 16 for each entry that --git-max-entries allows"
        )
    );
    assert_eq!(
        world.files(|name| name.starts_with("pack-")),
        Vec::<PathBuf>::new()
    );
    remote.limits.entries = 100_000;
    world.fetch_from(&remote, &main()).await.unwrap();
}

#[tokio::test]
async fn many_directories_with_long_paths_are_refused() {
    let world = World::with_files().await;
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
    serves(&world, pack, tree);
    let checkout = world.fetch(&main()).await.unwrap();
    let walk = move || {
        let nowhere = checkout.missing(&Nowhere, &CancellationToken::new());
        let all = crate::tree::Tree::new(checkout, None)
            .nodes()
            .find_map(Result::err);
        (nowhere.unwrap_err().to_string(), all.unwrap().to_string())
    };
    let words = "directories of the commit have paths of more than 33554432 bytes together";
    let found = bounded(tokio::task::spawn_blocking(walk)).await.unwrap();
    assert_eq!(found, (words.to_owned(), words.to_owned()));
}

#[tokio::test]
async fn many_lines_of_where_history_is_cut_off_take_no_time() {
    let world = World::with_files().await;
    let mut pack = PackWriter::default();
    let blob = pack.object("blob", b"");
    let tree = pack.object("tree", &tree_entry("100644", "f", blob));
    serves(&world, pack.clone(), tree);
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
    let answer = fetch_answer(&lines, &pack.finish());
    let head = world.head(&main()).await.unwrap();
    world.server.clear_faults();
    world.server.fault(Scope::FETCH, Fault::Reply(answer.into()));
    let remote = world.remote();
    let mirror = world.mirrors.open(&remote);
    let stop = CancellationToken::new();
    let fetched = fetch(&mirror, &remote, &head, &stop);
    // Each line against each would take minutes.
    tokio::time::timeout(Duration::from_secs(30), fetched)
        .await
        .expect("in time")
        .unwrap();
    let kept = world.files(|name| name == "shallow");
    assert_eq!(
        std::fs::read(&kept[0]).unwrap(),
        b"",
        "of commits that are not here nothing is kept"
    );
}

#[tokio::test]
async fn a_server_that_refuses_what_is_held_is_asked_for_everything() {
    let world = World::with_files().await;
    world.fetch(&main()).await.unwrap();
    world.repository.commit_files(&[("a", "a")], "two").unwrap();
    let refusal = packet(b"ERR upload-pack: the shallow boundary is gone");
    let fault = Fault::Reply(refusal.into());
    world
        .server
        .inject(Injection::new(Scope::FETCH, fault).holding("have "));
    world.steps();
    let checkout = world.fetch(&main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, "main"));
    assert_eq!(world.steps(), [Step::LsRefs, Step::Fetch, Step::Fetch]);
    assert_eq!(fsck(&generation(&world)), "");
}
