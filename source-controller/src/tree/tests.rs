//! Tests with trees of real commits and overlays of real files.

mod overlays;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_harness::git::{GitServer, Repository};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::git::{
    Access, Address, Credentials, Limits, Mirrors, Oid, Owner, ReadError, Reference, Remote, Transport,
    fetch, head,
};

/// Timeout of every wait in a test.
const DEADLINE: Duration = Duration::from_mins(1);

/// A repository, and a directory for mirrors and overlays.
struct TestEnvironment {
    repository: Repository,
    mirrors: Mirrors,
    root: TempDir,
}

impl TestEnvironment {
    fn new() -> Self {
        let root = TempDir::new().unwrap();
        Self {
            repository: Repository::create().unwrap(),
            mirrors: Mirrors::new(&root.path().join("mirrors")).unwrap(),
            root,
        }
    }

    /// Creates one commit with these files; the content of each is its path.
    fn with(paths: &[&str]) -> Self {
        let env = Self::new();
        for path in paths {
            env.repository.write(path, path).unwrap();
        }
        env.repository.commit("one").unwrap();
        env
    }

    async fn checkout(&self) -> Checkout {
        self.checkout_within(Limits::default()).await
    }

    async fn checkout_within(&self, limits: Limits) -> Checkout {
        let server = GitServer::start().await.unwrap();
        let access = Access {
            address: Address::parse(&server.serve("tree", &self.repository)).unwrap(),
            credentials: Credentials::Anonymous,
            tls: Arc::default(),
            proxy: None,
            owner: Owner::default(),
        };
        let remote = Remote {
            transport: Transport::new().unwrap(),
            access: access.into(),
            timeout: DEADLINE,
            limits,
        };
        let head = head(&remote, &Reference::Branch("main".into())).await.unwrap();
        let (mirror, stop) = (self.mirrors.open(&remote), CancellationToken::new());
        fetch(&mirror, &remote, &head, &stop).await.unwrap()
    }

    async fn tree(&self, sparse: &[&str]) -> Tree {
        let sparse: Vec<_> = sparse.iter().map(|path| (*path).to_owned()).collect();
        Tree::new(self.checkout().await, Sparse::new(&sparse))
    }

    /// Creates a directory on disk with these files; the content of each is its path, and a name that ends in `/` is a
    /// directory.
    fn disk(&self, name: &str, paths: &[&str]) -> PathBuf {
        let directory = self.root.path().join(name);
        fs::create_dir_all(&directory).unwrap();
        for path in paths {
            let full = directory.join(path);
            if path.ends_with('/') {
                fs::create_dir_all(&full).unwrap();
            } else {
                fs::create_dir_all(full.parent().unwrap()).unwrap();
                fs::write(full, path).unwrap();
            }
        }
        directory
    }

    /// Adds a gitlink to the index.
    fn gitlink(&self, path: &str) {
        let id = self.repository.head().unwrap();
        let cacheinfo = format!("160000,{id},{path}");
        let arguments = ["update-index", "--add", "--cacheinfo", &cacheinfo];
        self.repository.git(arguments).unwrap();
    }

    fn commit_index(&self) {
        self.repository
            .git(["commit", "--quiet", "--message", "two"])
            .unwrap();
    }

    /// Writes a tree object that the real `git` would refuse, and commits it.
    fn commit_tree(&self, raw: &[u8]) {
        let file = self.root.path().join("object");
        fs::write(&file, raw).unwrap();
        let file = file.to_string_lossy().into_owned();
        let arguments = ["hash-object", "-t", "tree", "-w", "--literally", &file];
        let tree = self.repository.git(arguments).unwrap();
        let commit = self.repository.git(["commit-tree", "-m", "odd", &tree]).unwrap();
        let arguments = ["update-ref", "refs/heads/main", &commit];
        self.repository.git(arguments).unwrap();
    }

    fn object(&self, name: &str) -> Oid {
        Oid::from_str(&self.repository.resolve(name).unwrap()).unwrap()
    }
}

/// Returns one line for each node: a directory ends in `/`, an executable in `*`, a symlink shows its target, a file
/// shows its content if it differs from its path.
fn listing(tree: &Tree) -> Vec<String> {
    let line = |node: Result<Node, TreeError>| {
        let node = node.unwrap();
        let path = String::from_utf8_lossy(&node.path).into_owned();
        let content = node.read().unwrap();
        assert_eq!(node.size().unwrap(), content.len() as u64);
        let content = String::from_utf8_lossy(&content).into_owned();
        match node.kind {
            Kind::Directory => path + "/",
            Kind::Symlink => format!("{path} -> {content}"),
            Kind::Executable => path + "*",
            Kind::File if content == path => path,
            Kind::File => format!("{path} = {content}"),
        }
    };
    tree.nodes().map(line).collect()
}

#[tokio::test]
async fn nodes_are_in_archive_order() {
    let env = TestEnvironment::with(&["a/z", "a-b", "a.b", "a/b/c", "a0", "b", "\u{e9}t\u{e9}", "a/B"]);
    env.repository.write_executable("run.sh", "#!/bin/sh\n").unwrap();
    env.repository.symlink("link", "a/z").unwrap();
    env.repository.commit("more").unwrap();
    env.gitlink("vendor/module");
    env.commit_index();
    assert_eq!(
        listing(&env.tree(&[]).await),
        [
            "a/",
            "a/B",
            "a/b/",
            "a/b/c",
            "a/z",
            "a-b",
            "a.b",
            "a0",
            "b",
            "link -> a/z",
            "run.sh*",
            "vendor/",
            "vendor/module/",
            "\u{e9}t\u{e9}"
        ]
    );
}

#[tokio::test]
async fn a_commit_without_files_is_an_empty_tree() {
    let env = TestEnvironment::with(&[]);
    let tree = env.tree(&[]).await;
    assert_eq!(tree.nodes().count(), 0);
    assert!(tree.has(b".").unwrap() && !tree.has(b"a").unwrap());
}

#[tokio::test]
async fn a_directory_of_a_commit_exists_only_if_it_is_not_empty() {
    let env = TestEnvironment::with(&["a"]);
    let blob = env.object("HEAD:a");
    env.commit_tree(b"");
    let empty = env.object("main^{tree}");
    env.commit_tree(&[b"40000 in\0", empty.as_bytes()].concat());
    let hollow = env.object("main^{tree}");
    env.commit_tree(
        &[
            b"40000 empty\0",
            empty.as_bytes(),
            b"100644 file\0",
            blob.as_bytes(),
            b"40000 hollow\0",
            hollow.as_bytes(),
        ]
        .concat(),
    );
    let tree = env.tree(&[]).await;
    assert_eq!(listing(&tree), ["file = a"]);
    for path in ["empty", "hollow", "hollow/in"] {
        assert!(tree.find(path.as_bytes()).unwrap().is_none(), "{path}");
    }
}

#[tokio::test]
async fn a_duplicate_name_in_a_tree_counts_once() {
    let env = TestEnvironment::with(&["a"]);
    let blob = env.object("HEAD:a");
    let entry = [b"100644 a\0", blob.as_bytes()].concat();
    env.commit_tree(&[entry.clone(), entry].concat());
    assert_eq!(listing(&env.tree(&[]).await), ["a"]);
}

#[tokio::test]
async fn sparse_paths_select_by_their_text() {
    let env = TestEnvironment::with(&[
        ".a",
        "dir/a",
        "dir-old/b",
        "dirfoo.txt",
        "else/dir/a",
        "in/deep/c",
        "in/d",
    ]);
    env.gitlink("in/module");
    env.gitlink("dirmodule");
    env.commit_index();
    for (sparse, expected) in [
        (
            &["dir"][..],
            &[
                "dir/",
                "dir/a",
                "dir-old/",
                "dir-old/b",
                "dirfoo.txt",
                "dirmodule/",
            ][..],
        ),
        (&["dir/"], &["dir/", "dir/a"]),
        (&["in/d"], &["in/", "in/d", "in/deep/", "in/deep/c"]),
        (
            &["in/deep/c", "in/m"],
            &["in/", "in/deep/", "in/deep/c", "in/module/"],
        ),
        (&["in/deep/x", "/dir"], &[]),
        (&["."], &[".a"]),
    ] {
        assert_eq!(listing(&env.tree(sparse).await), expected, "{sparse:?}");
    }
}

#[tokio::test]
async fn submodules_replace_their_gitlinks() {
    let inner = TestEnvironment::with(&["x", "sub/y"]);
    let outer = TestEnvironment::with(&["a", "lib/b"]);
    outer.gitlink("lib/inner");
    outer.gitlink("lib/other");
    outer.commit_index();
    inner.gitlink("deep");
    inner.commit_index();
    let none = || BTreeMap::new();
    let nested = BTreeMap::from([(b"deep".to_vec(), Module::new(outer.checkout().await, none()))]);
    let module = Module::new(inner.checkout().await, nested);
    let all = BTreeMap::from([(b"lib/inner".to_vec(), module)]);
    let tree = Tree::new(Module::new(outer.checkout().await, all), None);
    assert_eq!(
        listing(&tree),
        [
            "a",
            "lib/",
            "lib/b",
            "lib/inner/",
            "lib/inner/deep/",
            "lib/inner/deep/a = a",
            "lib/inner/deep/lib/",
            "lib/inner/deep/lib/b = lib/b",
            "lib/inner/deep/lib/inner/",
            "lib/inner/deep/lib/other/",
            "lib/inner/sub/",
            "lib/inner/sub/y = sub/y",
            "lib/inner/x = x",
            "lib/other/",
        ]
    );
    let found = tree.find(b"lib/inner/deep/a").unwrap().unwrap();
    assert_eq!(&*found.read().unwrap(), b"a");
}

#[tokio::test]
async fn limits_apply_to_all_layers_together() {
    let env = TestEnvironment::with(&["a/1", "b"]);
    let limits = Limits {
        entries: 6,
        blob_bytes: 10,
        ..Limits::default()
    };
    let mut tree = Tree::new(env.checkout_within(limits).await, None);
    let disk = env.disk("disk", &["x"]);
    tree.overlay(b"c", Overlay::at(&disk)).unwrap();
    assert_eq!(listing(&tree).len(), 5);
    fs::write(disk.join("x"), "12345678901").unwrap();
    let error = tree
        .find(b"c/x")
        .unwrap()
        .unwrap()
        .read()
        .err()
        .unwrap()
        .to_string();
    assert_eq!(
        error,
        "'c/x' has 11 bytes, more than the 10 that a file may have; raise --git-max-blob-bytes or exclude it"
    );
    let more = env.disk("more", &["y/", "z"]);
    tree.overlay(b"d", Overlay::at(more)).unwrap();
    let listed: Vec<_> = tree.nodes().collect();
    assert_eq!(listed.len(), 7);
    let last = listed.last().unwrap();
    assert!(
        matches!(
            last,
            Err(TreeError::Read(ReadError::TooManyEntries { limit: 6, .. }))
        ),
        "{last:?}"
    );
}

#[tokio::test]
async fn a_recursive_tree_is_bounded() {
    let env = TestEnvironment::with(&["a"]);
    let mut tree = env.object("HEAD^{tree}");
    for _ in 0..12 {
        let raw: Vec<u8> = (0..10_u8)
            .flat_map(|n| [b"40000 d", &[b'0' + n][..], b"\0", tree.as_bytes()].concat())
            .collect();
        env.commit_tree(&raw);
        tree = env.object("main^{tree}");
    }
    let limits = Limits {
        entries: 10_000,
        ..Limits::default()
    };
    let tree = Tree::new(env.checkout_within(limits).await, None);
    let last = tokio::task::spawn_blocking(move || tree.nodes().last())
        .await
        .unwrap();
    assert!(matches!(
        last,
        Some(Err(TreeError::Read(ReadError::TooManyEntries { .. })))
    ));
}

#[tokio::test]
async fn files_of_one_name_are_found_in_all_layers() {
    let env = TestEnvironment::with(&["a/.x", "a/y", "b/c/.x", ".x", "d/e"]);
    let mut tree = env.tree(&[]).await;
    let overlay = Overlay::at(env.disk("o", &["p/.x", "q"]));
    tree.overlay(b"o", overlay).unwrap();
    let nodes: Vec<Node> = tree.files_named(b".x").map(Result::unwrap).collect();
    let names = |directories: bool| -> Vec<String> {
        let chosen = nodes
            .iter()
            .filter(|node| (node.kind == Kind::Directory) == directories);
        chosen.map(|node| lossy_path(&node.path)).collect()
    };
    assert_eq!(names(false), [".x", "a/.x", "b/c/.x", "o/p/.x"]);
    assert_eq!(names(true), ["a", "b", "b/c", "o", "o/p"]);
}
