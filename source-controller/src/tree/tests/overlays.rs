//! Overlays: directories that are laid over the tree of a commit.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn overlay_error(result: Result<(), OverlayError>) -> String {
    result.unwrap_err().to_string()
}

#[tokio::test]
async fn overlays_are_merged_name_by_name() {
    let env = TestEnvironment::with(&["a/1", "b", "z/9"]);
    let mut tree = env.tree(&["a", "b"]).await;
    let disk = env.disk("disk", &["m/x", "m/run", "empty/", "c"]);
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
async fn an_overlay_replaces_like_a_rename() {
    let env = TestEnvironment::with(&["a/1", "b", "z/9"]);
    env.gitlink("link");
    env.commit_index();
    let mut tree = env.tree(&["a", "b", "link"]).await;
    let disk = env.disk("disk", &["f", "d/x"]);
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
        let error = overlay_error(tree.overlay(target.as_bytes(), overlay.clone()));
        assert_eq!(error, why, "{target}");
    }
    tree.overlay(b"b", file.clone()).unwrap();
    tree.overlay(b"link", directory).unwrap();
    // Files outside of the sparse paths do not exist.
    tree.overlay(b"z", file).unwrap();
    assert_eq!(
        listing(&tree),
        ["a/", "a/1", "b = f", "link/", "link/x = d/x", "z = f"]
    );
}

#[tokio::test]
async fn an_empty_tree_can_be_overlaid_as_a_whole() {
    let env = TestEnvironment::with(&[]);
    let mut tree = env.tree(&[]).await;
    let disk = Overlay::at(env.disk("disk", &["x", "d/y"]));
    tree.overlay(b"../.", disk.clone()).unwrap();
    assert_eq!(listing(&tree), ["d/", "d/y", "x"]);
    assert_eq!(overlay_error(tree.overlay(b"", disk)), "'' exists already");
}

#[tokio::test]
async fn symlinks_to_an_overlay_target_stay_in_the_tree() {
    let env = TestEnvironment::with(&["in/a"]);
    for (link, target) in [
        ("up", "../../in"),
        ("root", "/in"),
        ("loop", "loop"),
        ("gone", "new/place"),
    ] {
        env.repository.symlink(link, target).unwrap();
    }
    env.repository.commit("links").unwrap();
    let mut tree = env.tree(&[]).await;
    let disk = env.disk("disk", &["f"]);
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
        "'loop' leads through too many symlinks"
    );
}

#[tokio::test]
async fn an_overlay_keeps_its_owner() {
    let env = TestEnvironment::with(&[]);
    let mut tree = env.tree(&[]).await;
    let owner = Arc::new(TempDir::new().unwrap());
    let path = owner.path().to_owned();
    fs::write(path.join("x"), "x").unwrap();
    tree.overlay(b"d", Overlay::owned_by(&path, owner)).unwrap();
    let last = tree.nodes().last().unwrap().unwrap();
    drop(tree);
    assert_eq!(&*last.read().unwrap(), b"x");
    drop(last);
    assert!(!path.exists());
}

#[tokio::test]
async fn only_files_and_directories_can_be_overlays() {
    let env = TestEnvironment::with(&[]);
    let mut tree = env.tree(&[]).await;
    let disk = env.disk("disk", &["d/f"]);
    std::os::unix::fs::symlink("f", disk.join("d/link")).unwrap();
    assert!(matches!(
        tree.overlay(b"x", Overlay::at(disk.join("no"))),
        Err(OverlayError::Source(_))
    ));
    assert!(matches!(
        tree.overlay(b"x", Overlay::at(disk.join("d/link"))),
        Err(OverlayError::UnsupportedType)
    ));
    tree.overlay(b"x", Overlay::at(disk.join("d"))).unwrap();
    assert_eq!(listing(&tree), ["x/", "x/f = d/f", "x/link -> f"]);
}
