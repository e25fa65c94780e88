//! Trees of real commits with real files laid over them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_harness::git::{GitServer, Repository};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::git::{
    Address, Credentials, Limits, Mirrors, Oid, Owner, ReadError, Reference, Remote, Transport, fetch, head,
};

/// No test waits longer than this for anything.
const DEADLINE: Duration = Duration::from_secs(60);

/// A repository, and a directory for what is fetched from it and for what is laid over it.
struct World {
    repository: Repository,
    mirrors: Mirrors,
    root: TempDir,
}

impl World {
    fn new() -> Self {
        let root = TempDir::new().unwrap();
        Self {
            repository: Repository::create().unwrap(),
            mirrors: Mirrors::new(&root.path().join("mirrors")).unwrap(),
            root,
        }
    }

    /// With these files, each holding its own path, in one commit.
    fn with(paths: &[&str]) -> Self {
        let world = Self::new();
        for path in paths {
            world.repository.write(path, path).unwrap();
        }
        world.repository.commit("one").unwrap();
        world
    }

    async fn checkout(&self) -> Checkout {
        self.checkout_within(Limits::default()).await
    }

    async fn checkout_within(&self, limits: Limits) -> Checkout {
        let server = GitServer::start().await.unwrap();
        let remote = Remote {
            transport: Transport::new().unwrap(),
            address: Address::parse(&server.serve("tree", &self.repository)).unwrap(),
            credentials: Credentials::Anonymous,
            tls: Arc::default(),
            proxy: None,
            timeout: DEADLINE,
            limits,
            owner: Owner::default(),
        };
        let head = head(&remote, &Reference::Branch("main".into())).await.unwrap();
        let (mirror, stop) = (self.mirrors.open(&remote), CancellationToken::new());
        fetch(&mirror, &remote, &head, &stop).await.unwrap()
    }

    async fn tree(&self, sparse: &[&str]) -> Tree {
        let sparse: Vec<_> = sparse.iter().map(|path| (*path).to_owned()).collect();
        Tree::new(self.checkout().await, Sparse::new(&sparse))
    }

    /// A directory on disk with these files, each holding its own path; a name that ends in `/` is a directory.
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

    /// Adds a gitlink without committing it.
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

    /// Writes a tree object that the real `git` would refuse to make, and a commit of it.
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

/// A line for each name: a directory's ends in `/`, a program's in `*`, a link's in its target; a file whose content is
/// not its path shows it.
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

fn taken(result: Result<(), OverlayError>) -> String {
    result.unwrap_err().to_string()
}

#[tokio::test]
async fn names_come_in_the_order_of_the_archive() {
    let world = World::with(&["a/z", "a-b", "a.b", "a/b/c", "a0", "b", "\u{e9}t\u{e9}", "a/B"]);
    world
        .repository
        .write_executable("run.sh", "#!/bin/sh\n")
        .unwrap();
    world.repository.symlink("link", "a/z").unwrap();
    world.repository.commit("more").unwrap();
    world.gitlink("vendor/module");
    world.commit_index();
    assert_eq!(
        listing(&world.tree(&[]).await),
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
    let world = World::with(&[]);
    let tree = world.tree(&[]).await;
    assert_eq!(tree.nodes().count(), 0);
    assert!(tree.has(b".").unwrap() && !tree.has(b"a").unwrap());
}

#[tokio::test]
async fn a_directory_of_a_commit_is_there_only_with_something_in_it() {
    let world = World::with(&["a"]);
    let blob = world.object("HEAD:a");
    world.commit_tree(b"");
    let empty = world.object("main^{tree}");
    world.commit_tree(&[b"40000 in\0", empty.as_bytes()].concat());
    let hollow = world.object("main^{tree}");
    world.commit_tree(
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
    let tree = world.tree(&[]).await;
    assert_eq!(listing(&tree), ["file = a"]);
    for path in ["empty", "hollow", "hollow/in"] {
        assert!(tree.find(path.as_bytes()).unwrap().is_none(), "{path}");
    }
}

#[tokio::test]
async fn a_name_that_a_tree_has_twice_counts_once() {
    let world = World::with(&["a"]);
    let blob = world.object("HEAD:a");
    let entry = [b"100644 a\0", blob.as_bytes()].concat();
    world.commit_tree(&[entry.clone(), entry].concat());
    assert_eq!(listing(&world.tree(&[]).await), ["a"]);
}

#[tokio::test]
async fn sparse_paths_select_by_their_text() {
    let world = World::with(&[
        ".a",
        "dir/a",
        "dir-old/b",
        "dirfoo.txt",
        "else/dir/a",
        "in/deep/c",
        "in/d",
    ]);
    world.gitlink("in/module");
    world.gitlink("dirmodule");
    world.commit_index();
    for (sparse, wanted) in [
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
        assert_eq!(listing(&world.tree(sparse).await), wanted, "{sparse:?}");
    }
}

#[tokio::test]
async fn submodules_stand_in_the_places_of_their_gitlinks() {
    let inner = World::with(&["x", "sub/y"]);
    let outer = World::with(&["a", "lib/b"]);
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
async fn overlays_are_merged_name_by_name() {
    let world = World::with(&["a/1", "b", "z/9"]);
    let mut tree = world.tree(&["a", "b"]).await;
    let disk = world.disk("disk", &["m/x", "m/run", "empty/", "c"]);
    fs::set_permissions(disk.join("m/run"), fs::Permissions::from_mode(0o700)).unwrap();
    tree.overlay(b"a/new", Overlay::at(&disk)).unwrap();
    tree.overlay(b"a/new/m/deeper", Overlay::at(disk.join("m")))
        .unwrap();
    tree.overlay(b"one/file", Overlay::at(disk.join("c"))).unwrap();
    assert_eq!(
        listing(&tree),
        [
            "a/",
            "a/1",
            "a/new/",
            "a/new/c = c",
            "a/new/empty/",
            "a/new/m/",
            "a/new/m/deeper/",
            "a/new/m/deeper/run*",
            "a/new/m/deeper/x = m/x",
            "a/new/m/run*",
            "a/new/m/x = m/x",
            "b",
            "one/",
            "one/file = c",
        ]
    );
}

#[tokio::test]
async fn an_overlay_replaces_what_a_rename_would() {
    let world = World::with(&["a/1", "b", "z/9"]);
    world.gitlink("link");
    world.commit_index();
    let mut tree = world.tree(&["a", "b", "link"]).await;
    let disk = world.disk("disk", &["f", "d/x"]);
    let (file, directory) = (Overlay::at(disk.join("f")), Overlay::at(disk.join("d")));
    for (target, overlay, why) in [
        ("a", &directory, "'a' exists already"),
        ("a", &file, "'a' exists already"),
        ("", &directory, "'' exists already"),
        ("b", &directory, "'b' exists already"),
        ("b/c", &directory, "'b' is not a directory"),
        ("link", &file, "'link' exists already"),
        ("a/../../a/./1/x/y", &file, "'a/1' is not a directory"),
    ] {
        let error = taken(tree.overlay(target.as_bytes(), overlay.clone()));
        assert_eq!(error, why, "{target}");
    }
    tree.overlay(b"b", file.clone()).unwrap();
    tree.overlay(b"link", directory).unwrap();
    // What the sparse paths leave out is not there.
    tree.overlay(b"z", file).unwrap();
    assert_eq!(
        listing(&tree),
        ["a/", "a/1", "b = f", "link/", "link/x = d/x", "z = f"]
    );
}

#[tokio::test]
async fn an_empty_tree_can_be_overlaid_as_a_whole() {
    let world = World::with(&[]);
    let mut tree = world.tree(&[]).await;
    let disk = Overlay::at(world.disk("disk", &["x", "d/y"]));
    tree.overlay(b"../.", disk.clone()).unwrap();
    assert_eq!(listing(&tree), ["d/", "d/y", "x"]);
    assert_eq!(taken(tree.overlay(b"", disk)), "'' exists already");
}

#[tokio::test]
async fn links_on_the_way_to_an_overlay_stay_in_the_tree() {
    let world = World::with(&["in/a"]);
    for (link, target) in [
        ("up", "../../in"),
        ("root", "/in"),
        ("loop", "loop"),
        ("gone", "new/place"),
    ] {
        world.repository.symlink(link, target).unwrap();
    }
    world.repository.commit("links").unwrap();
    let mut tree = world.tree(&[]).await;
    let disk = world.disk("disk", &["f"]);
    for target in ["up/1", "root/2", "gone/3"] {
        let overlay = Overlay::at(disk.join("f"));
        tree.overlay(target.as_bytes(), overlay).unwrap();
    }
    let shown: Vec<_> = listing(&tree)
        .into_iter()
        .filter(|line| line.ends_with("= f"))
        .collect();
    assert_eq!(shown, ["in/1 = f", "in/2 = f", "new/place/3 = f"]);
    assert!(tree.has(b"up/a").unwrap() && tree.has(b"/top/../in/a").unwrap());
    assert!(!tree.has(b"up/b").unwrap() && !tree.has(b"in/a/b").unwrap());
    assert_eq!(
        tree.has(b"loop").unwrap_err().to_string(),
        "'loop' leads through too many links"
    );
}

#[tokio::test]
async fn an_overlay_keeps_its_owner() {
    let world = World::with(&[]);
    let mut tree = world.tree(&[]).await;
    let owner = Arc::new(TempDir::new().unwrap());
    let path = owner.path().to_owned();
    fs::write(path.join("x"), "x").unwrap();
    tree.overlay(b"d", Overlay::kept_by(&path, owner)).unwrap();
    let last = tree.nodes().last().unwrap().unwrap();
    drop(tree);
    assert_eq!(&*last.read().unwrap(), b"x");
    drop(last);
    assert!(!path.exists());
}

#[tokio::test]
async fn what_is_no_file_is_no_overlay() {
    let world = World::with(&[]);
    let mut tree = world.tree(&[]).await;
    let disk = world.disk("disk", &["d/f"]);
    std::os::unix::fs::symlink("f", disk.join("d/link")).unwrap();
    assert!(matches!(
        tree.overlay(b"x", Overlay::at(disk.join("no"))),
        Err(OverlayError::Source(_))
    ));
    assert!(matches!(
        tree.overlay(b"x", Overlay::at(disk.join("d/link"))),
        Err(OverlayError::NoFile)
    ));
    tree.overlay(b"x", Overlay::at(disk.join("d"))).unwrap();
    assert_eq!(listing(&tree), ["x/", "x/f = d/f", "x/link -> f"]);
}

#[tokio::test]
async fn limits_hold_for_all_layers_together() {
    let world = World::with(&["a/1", "b"]);
    let limits = Limits {
        entries: 6,
        blob_bytes: 10,
        ..Limits::default()
    };
    let mut tree = Tree::new(world.checkout_within(limits).await, None);
    let disk = world.disk("disk", &["x"]);
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
        "'c/x' has 11 bytes, more than the 10 that a file may have; raise --git-max-blob-bytes or leave it out"
    );
    let more = world.disk("more", &["y/", "z"]);
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
async fn a_tree_that_holds_itself_many_times_is_bounded() {
    let world = World::with(&["a"]);
    let mut tree = world.object("HEAD^{tree}");
    for _ in 0..12 {
        let raw: Vec<u8> = (0..10_u8)
            .flat_map(|n| [b"40000 d", &[b'0' + n][..], b"\0", tree.as_bytes()].concat())
            .collect();
        world.commit_tree(&raw);
        tree = world.object("main^{tree}");
    }
    let limits = Limits {
        entries: 10_000,
        ..Limits::default()
    };
    let tree = Tree::new(world.checkout_within(limits).await, None);
    let last = tokio::task::spawn_blocking(move || tree.nodes().last())
        .await
        .unwrap();
    assert!(matches!(
        last,
        Some(Err(TreeError::Read(ReadError::TooManyEntries { .. })))
    ));
}
