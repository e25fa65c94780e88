//! Reads of commits.

use super::*;

#[tokio::test]
async fn every_entry_of_a_commit_is_listed() {
    let env = TestEnvironment::new().await;
    for path in ["a/z", "a-b", "a.b", "a/b/c", "a0", "b", "\u{e9}t\u{e9}", "a/B"] {
        env.repository.write(path, path).unwrap();
    }
    env.repository.write_executable("run.sh", "#!/bin/sh\n").unwrap();
    env.repository.symlink("link", "a/z").unwrap();
    env.repository.commit("one").unwrap();
    let module = env.repository.head().unwrap();
    let cacheinfo = format!("160000,{module},vendor/module");
    env.repository
        .git(["update-index", "--add", "--cacheinfo", &cacheinfo])
        .unwrap();
    env.repository
        .git(["commit", "--quiet", "--message", "two"])
        .unwrap();
    let checkout = env.fetch(&main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"));
    let link = entries(&checkout)
        .unwrap()
        .into_iter()
        .find(|(_, entry)| entry.kind == Kind::Symlink)
        .unwrap();
    assert_eq!(&*checkout.read(link.1.id).unwrap(), b"a/z");
}

#[tokio::test]
async fn a_commit_without_files_is_a_commit() {
    let env = TestEnvironment::new().await;
    env.repository.commit("nothing").unwrap();
    let checkout = env.fetch(&main()).await.unwrap();
    assert_eq!(entries(&checkout).unwrap(), []);
}

#[tokio::test]
async fn oversized_files_are_refused() {
    let env = TestEnvironment::with_files().await;
    let mut remote = env.remote();
    remote.limits.blob_bytes = 100;
    let error = read_all(env.fetch_from(&remote, &main()).await.unwrap())
        .await
        .unwrap_err();
    assert!(
        matches!(error, ReadError::BlobTooLarge { limit: 100, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_large_file_is_read_in_parts() {
    let env = TestEnvironment::new().await;
    let large = noise(5, 5 << 20);
    env.repository
        .commit_files(&[("large", large.as_str()), ("small", "x")], "one")
        .unwrap();
    let checkout = env.fetch(&main()).await.unwrap();
    let id = |name: &str| {
        let id = env.repository.resolve(&format!("HEAD:{name}")).unwrap();
        Oid::from_str(&id).unwrap()
    };
    assert!(checkout.open_large(id("small")).unwrap().is_none());
    let mut parts = checkout.open_large(id("large")).unwrap().unwrap();
    let (mut read, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match parts.read_part(&mut buffer).unwrap() {
            0 => break,
            length => read.extend_from_slice(&buffer[..length]),
        }
    }
    assert!(read == large.as_bytes());
    assert!(checkout.read_undeltified(id("large")).is_none());
    assert_eq!(
        checkout.held_bytes(id("large")) + checkout.held_bytes(id("small")),
        0
    );
}

#[tokio::test]
async fn a_small_undeltified_file_is_read_as_libgit2_reads_it() {
    let env = TestEnvironment::new().await;
    let one = noise(6, 20_000);
    let other = format!("{one}and more");
    let files = [
        ("one", one.as_str()),
        ("other", other.as_str()),
        ("third", "3"),
        ("empty", ""),
    ];
    env.repository.commit_files(&files, "one").unwrap();
    let id = |name: &str| {
        let id = env.repository.resolve(&format!("HEAD:{name}")).unwrap();
        Oid::from_str(&id).unwrap()
    };
    let checkout = env.fetch(&main()).await.unwrap();
    let mut deltas = 0;
    for (name, content) in files {
        assert_eq!(*checkout.read(id(name)).unwrap(), *content.as_bytes());
        match checkout.read_undeltified(id(name)) {
            Some(read) => assert_eq!(read, content.as_bytes()),
            None => deltas += 1,
        }
    }
    assert_eq!(deltas, 1, "one of the first two files");
    assert_eq!(checkout.read_undeltified(checkout.commit().tree), None);

    let mut remote = env.remote();
    remote.limits.blob_bytes = 100;
    let limited = env.fetch_from(&remote, &main()).await.unwrap();
    let read = ["one", "other", "third"].map(|name| limited.read_undeltified(id(name)));
    assert_eq!(read, [None, None, Some(b"3".to_vec())]);
}

/// The packs are opened at the first read.
#[tokio::test]
async fn a_file_of_a_later_pack_is_left_to_libgit2() {
    let env = TestEnvironment::new().await;
    let mut checkouts = Vec::new();
    let mut ids = Vec::new();
    for name in ["one", "two"] {
        env.repository.commit_files(&[(name, name)], name).unwrap();
        let id = env.repository.resolve(&format!("HEAD:{name}")).unwrap();
        ids.push(Oid::from_str(&id).unwrap());
        let checkout = env.fetch(&main()).await.unwrap();
        assert!(checkout.read_undeltified(ids[0]).is_some());
        checkouts.push(checkout);
    }
    assert_eq!(checkouts[0].read_undeltified(ids[1]), None);
    assert_eq!(*checkouts[0].read(ids[1]).unwrap(), *b"two");
    assert_eq!(checkouts[1].read_undeltified(ids[1]), Some(b"two".to_vec()));
}

/// A builder asks for this memory before it reads the file.
#[tokio::test]
async fn a_large_file_that_is_stored_as_a_delta_is_held_in_memory() {
    let env = TestEnvironment::new().await;
    let one = noise(6, 5 << 20);
    let other = format!("{one}and more");
    env.repository
        .commit_files(&[("large-1", one.as_str()), ("large-2", other.as_str())], "one")
        .unwrap();
    let checkout = env.fetch(&main()).await.unwrap();
    let held = |name: &str| {
        let id = env.repository.resolve(&format!("HEAD:{name}")).unwrap();
        checkout.held_bytes(Oid::from_str(&id).unwrap())
    };
    let mut held = [held("large-1"), held("large-2")];
    held.sort_unstable();
    assert_eq!(held[0], 0);
    assert!(
        held[1] >= 2 * (5 << 20),
        "{held:?}: neither is a delta of the other"
    );
}

/// Writes a tree object that the real `git` would refuse, and commits it.
fn commit_tree(env: &TestEnvironment, raw: &[u8]) {
    let file = env.root.path().join("tree");
    std::fs::write(&file, raw).unwrap();
    let file = file.to_string_lossy().into_owned();
    let tree = env
        .repository
        .git(["hash-object", "-t", "tree", "-w", "--literally", &file])
        .unwrap();
    let commit = env.repository.git(["commit-tree", "-m", "odd", &tree]).unwrap();
    env.repository
        .git(["update-ref", "refs/heads/main", &commit])
        .unwrap();
}

#[tokio::test]
async fn unsafe_names_are_refused() {
    let env = TestEnvironment::new().await;
    env.repository.commit_files(&[("a", "1")], "one").unwrap();
    let blob = Oid::from_str(&env.repository.resolve("HEAD:a").unwrap()).unwrap();
    for name in ["..", ".git", "a/b"] {
        commit_tree(
            &env,
            &[b"100644 ", name.as_bytes(), b"\0", blob.as_bytes()].concat(),
        );
        let error = env.fetch(&main()).await.unwrap_err();
        assert!(
            matches!(error, FetchError::Read(ReadError::Malformed(_))),
            "{name}: {error}"
        );
    }
}
