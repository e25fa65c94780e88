//! Reading commits.

use super::*;

#[tokio::test]
async fn every_entry_of_a_commit_is_read() {
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
    let link = entries(&checkout)
        .unwrap()
        .into_iter()
        .find(|(_, entry)| entry.kind == Kind::Symlink)
        .unwrap();
    assert_eq!(&*checkout.read(link.1.id).unwrap(), b"a/z");
}

#[tokio::test]
async fn a_commit_without_files_is_a_commit() {
    let world = World::new().await;
    world.repository.commit("nothing").unwrap();
    let checkout = world.fetch(&main()).await.unwrap();
    assert_eq!(entries(&checkout).unwrap(), []);
}

#[tokio::test]
async fn no_file_is_read_that_is_larger_than_allowed() {
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
