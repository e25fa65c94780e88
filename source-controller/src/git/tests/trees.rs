//! Reading commits.

use super::*;

#[tokio::test]
async fn entries_come_in_the_order_of_the_archive() {
    let world = World::new().await;
    for path in ["a/z", "a-b", "a.b", "a/b/c", "a0", "b", "\u{e9}t\u{e9}", "a/B"] {
        world.repository.write(path, path).unwrap();
    }
    world
        .repository
        .write_executable("run.sh", "#!/bin/sh\n")
        .unwrap();
    world.repository.symlink("link", "a/z").unwrap();
    world.repository.commit("one").unwrap();
    let module = world.repository.head().unwrap();
    let cacheinfo = format!("160000,{module},vendor/module");
    world
        .repository
        .git(["update-index", "--add", "--cacheinfo", &cacheinfo])
        .unwrap();
    world
        .repository
        .git(["commit", "--quiet", "--message", "two"])
        .unwrap();
    let checkout = world.fetch(&main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"));
    let listed: Vec<_> = checkout
        .entries()
        .map(|entry| {
            entry
                .map(|entry| (String::from_utf8(entry.path).unwrap(), entry.kind, entry.size))
                .unwrap()
        })
        .collect();
    let wanted = [
        ("a", Kind::Directory, 0),
        ("a/B", Kind::File, 3),
        ("a/b", Kind::Directory, 0),
        ("a/b/c", Kind::File, 5),
        ("a/z", Kind::File, 3),
        ("a-b", Kind::File, 3),
        ("a.b", Kind::File, 3),
        ("a0", Kind::File, 2),
        ("b", Kind::File, 1),
        ("link", Kind::Symlink, 3),
        ("run.sh", Kind::Executable, 10),
        ("vendor", Kind::Directory, 0),
        ("vendor/module", Kind::Gitlink, 0),
        ("\u{e9}t\u{e9}", Kind::File, 5),
    ];
    assert_eq!(
        listed,
        wanted.map(|(path, kind, size)| (path.to_owned(), kind, size))
    );
    let link = checkout
        .entries()
        .map(Result::unwrap)
        .find(|entry| entry.kind == Kind::Symlink)
        .unwrap();
    assert_eq!(&*checkout.read(link.id).unwrap(), b"a/z");
}

#[tokio::test]
async fn a_commit_without_files_is_a_commit() {
    let world = World::new().await;
    world.repository.commit("nothing").unwrap();
    let checkout = world.fetch(&main()).await.unwrap();
    assert_eq!(checkout.entries().count(), 0);
}

#[tokio::test]
async fn limits_are_kept_while_reading() {
    let world = World::with_files().await;
    let mut remote = world.remote();
    remote.limits.blob_bytes = 100;
    let error = read_all(world.fetch_from(&remote, &main()).await.unwrap())
        .await
        .unwrap_err();
    assert!(
        matches!(error, ReadError::BlobTooLarge { limit: 100, .. }),
        "{error}"
    );
    remote.limits.entries = 50;
    let checkout = world.fetch_from(&remote, &main()).await.unwrap();
    let listed: Vec<_> = checkout.entries().collect();
    assert!(matches!(
        listed.last(),
        Some(Err(ReadError::TooManyEntries { limit: 50, .. }))
    ));
    assert_eq!(listed.len(), 51);
}

/// Writes a tree object that the real `git` would refuse to make, and a commit of it.
fn commit_tree(world: &World, raw: &[u8]) {
    let file = world.root.path().join("tree");
    std::fs::write(&file, raw).unwrap();
    let file = file.to_string_lossy().into_owned();
    let tree = world
        .repository
        .git(["hash-object", "-t", "tree", "-w", "--literally", &file])
        .unwrap();
    let commit = world.repository.git(["commit-tree", "-m", "odd", &tree]).unwrap();
    world
        .repository
        .git(["update-ref", "refs/heads/main", &commit])
        .unwrap();
}

#[tokio::test]
async fn names_that_leave_the_tree_are_refused() {
    let world = World::new().await;
    world.repository.commit_files(&[("a", "1")], "one").unwrap();
    let blob = Oid::from_str(&world.repository.resolve("HEAD:a").unwrap()).unwrap();
    for name in ["..", ".git", "a/b"] {
        commit_tree(
            &world,
            &[b"100644 ", name.as_bytes(), b"\0", blob.as_bytes()].concat(),
        );
        let error = world.fetch(&main()).await.unwrap_err();
        assert!(
            matches!(error, FetchError::Read(ReadError::Form(_))),
            "{name}: {error}"
        );
    }
}

#[tokio::test]
async fn a_tree_that_holds_itself_many_times_is_bounded() {
    let world = World::new().await;
    world.repository.commit_files(&[("a", "1")], "one").unwrap();
    let mut tree = Oid::from_str(&world.repository.resolve("HEAD^{tree}").unwrap()).unwrap();
    for _ in 0..12 {
        let raw: Vec<u8> = (0..10_u8)
            .flat_map(|n| [b"40000 d", &[b'0' + n][..], b"\0", tree.as_bytes()].concat())
            .collect();
        commit_tree(&world, &raw);
        tree = Oid::from_str(&world.repository.resolve("main^{tree}").unwrap()).unwrap();
    }
    let mut remote = world.remote();
    remote.limits.entries = 10_000;
    let checkout = world.fetch_from(&remote, &main()).await.unwrap();
    let last = tokio::task::spawn_blocking(move || checkout.entries().last())
        .await
        .unwrap();
    assert!(matches!(last, Some(Err(ReadError::TooManyEntries { .. }))));
}
