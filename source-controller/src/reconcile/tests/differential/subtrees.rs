//! Archives that are built from the previous one of a tree equal those from scratch, and list only directories that have changed.

use std::collections::BTreeMap;
use std::io::{Cursor, Write as _};

use sluice_harness::git::{GitServer, Repository};
use sluice_runtime::shutdown::Token;

use super::trees::{Dice, import};
use super::{fetched, remote};
use crate::archive::{Algorithm, Capacity, Index, Previous, Settings, Written};
use crate::git::{Checkout, Mirrors};
use crate::reconcile::pack::pack;
use crate::reconcile::warnings::ContentWarnings;
use crate::tree::{Module, Sparse, Tree};

/// Number of commits with random edits.
const STEPS: u64 = 16;
const DIRECTORIES: &[&str] = &["a", "b", "c", "d-e"];
const NAMES: &[&str] = &["f", "g", "x.txt", "y.yaml", "b\\c"];
const PATTERNS: &[&str] = &["*.txt\n", "a/\n", "!x.txt\n", "/b\n", "**/c/*\n"];

const FILE: &str = "100644";
const EXECUTABLE: &str = "100755";
const SYMLINK: &str = "120000";

/// Mode and content by path.
type Files = BTreeMap<String, (&'static str, String)>;

type Built = (Written<Vec<u8>>, ContentWarnings);

fn build(tree: &Tree, ignore: Option<&str>, before: Option<&Written<Vec<u8>>>) -> Built {
    let settings = Settings {
        algorithm: Algorithm::Sha256,
        capacity: &Capacity::new(2, 4),
        stop: &Token::new(),
    };
    pack(tree, ignore, before.and_then(previous), &settings, Vec::new()).unwrap()
}

fn previous(written: &Written<Vec<u8>>) -> Option<Previous> {
    let index = Index::parse(&written.index.as_ref()?.encode()).unwrap();
    let file = Box::new(Cursor::new(written.out.clone()));
    Some(Previous { index, file })
}

/// Writes a commit of a new branch.
fn commit(stream: &mut Vec<u8>, name: &str, files: &Files) {
    write!(
        stream,
        "commit refs/heads/{name}\ncommitter T <t@t> 1 +0000\ndata 0\ndeleteall\n"
    )
    .unwrap();
    for (path, (mode, content)) in files {
        let (path, length) = (path.replace('\\', "\\\\"), content.len());
        write!(stream, "M {mode} inline \"{path}\"\ndata {length}\n{content}\n").unwrap();
    }
}

/// Adds a file, in place of files and directories that prevent it.
fn put(files: &mut Files, path: &str, mode: &'static str, content: String) {
    let inside = format!("{path}/");
    files.retain(|other, _| !other.starts_with(&inside) && !path.starts_with(&format!("{other}/")));
    files.insert(path.to_owned(), (mode, content));
}

fn random_directory(dice: &mut Dice) -> String {
    let depth = 1 + dice.below(4);
    let names: Vec<_> = (0..depth).map(|_| dice.of(DIRECTORIES)).collect();
    names.join("/")
}

fn random_content(dice: &mut Dice) -> String {
    let number = dice.below(1_000_000);
    format!("{number} ").repeat(400 + dice.below(6000))
}

fn random_path(dice: &mut Dice, files: &Files) -> String {
    let position = dice.below(files.len().max(1));
    let path = files.keys().nth(position);
    path.cloned().unwrap_or_else(|| "a/b".to_owned())
}

/// Moves or copies a directory.
fn move_directory(files: &mut Files, from: &str, to: &str, keeps: bool) {
    let inside = format!("{from}/");
    let moved: Vec<_> = files
        .iter()
        .filter(|(path, _)| path.starts_with(&inside))
        .map(|(path, file)| (path.clone(), file.clone()))
        .collect();
    if !keeps {
        files.retain(|path, _| !path.starts_with(&inside));
    }
    for (path, (mode, content)) in moved {
        let path = format!("{to}/{}", &path[inside.len()..]);
        put(files, &path, mode, content);
    }
}

fn edit(dice: &mut Dice, files: &mut Files) {
    let (path, directory) = (random_path(dice, files), random_directory(dice));
    match dice.below(9) {
        0 => put(files, &path, FILE, random_content(dice)),
        1 => move_directory(files, &directory, &random_directory(dice), false),
        2 => move_directory(files, &directory, &random_directory(dice), true),
        3 => {
            if let Some((mode, _)) = files.get_mut(&path) {
                *mode = if *mode == FILE { EXECUTABLE } else { FILE };
            }
        }
        // A file becomes a directory, and a directory a file.
        4 => put(files, &format!("{path}/a"), FILE, random_content(dice)),
        5 => put(files, &directory, FILE, random_content(dice)),
        6 => put(files, &path, SYMLINK, "a/x.txt".to_owned()),
        7 => {
            let content = dice.of(PATTERNS).to_owned();
            put(files, &format!("{directory}/.sourceignore"), FILE, content);
        }
        _ => drop(files.remove(&path)),
    }
}

fn random_files(dice: &mut Dice) -> Files {
    let mut files = Files::new();
    for _ in 0..150 {
        let path = format!("{}/{}", random_directory(dice), dice.of(NAMES));
        put(&mut files, &path, FILE, random_content(dice));
    }
    files
}

/// Fetches the branches of a repository, in the order of their names.
async fn checkouts(stream: &[u8], names: &[String]) -> (Vec<Checkout>, tempfile::TempDir) {
    let repository = Repository::create().unwrap();
    import(&repository, stream);
    let server = GitServer::start().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mirrors = Mirrors::new(directory.path()).unwrap();
    let remote = remote(&server.serve("subtrees", &repository));
    let mut checkouts = Vec::new();
    for name in names {
        let commit = repository.resolve(&format!("refs/heads/{name}")).unwrap();
        checkouts.push(fetched(&remote, &mirrors, name, &commit).await);
    }
    (checkouts, directory)
}

#[tokio::test]
async fn random_edits_of_deep_trees_are_packed_as_from_scratch() {
    let mut dice = Dice(16);
    let (mut files, mut stream, mut names) = (random_files(&mut dice), Vec::new(), Vec::new());
    for step in 0..STEPS {
        let name = format!("s{step}");
        commit(&mut stream, &name, &files);
        names.push(name);
        for _ in 0..=dice.below(3) {
            edit(&mut dice, &mut files);
        }
    }
    let (checkouts, _directory) = checkouts(&stream, &names).await;
    let work = move || {
        let (mut before, mut saved): (Option<Written<Vec<u8>>>, u64) = (None, 0);
        for (step, checkout) in checkouts.into_iter().enumerate() {
            // Settings change between some of the steps.
            let sparse = ["a".to_owned(), "b/c".to_owned()];
            let sparse = Sparse::new(&sparse).filter(|_| step % 8 >= 6);
            let ignore = (step % 6 >= 4).then_some("b/\n!b/a\n");
            let tree = Tree::new(checkout, sparse);
            let (expected, warnings) = build(&tree, ignore, None);
            let (found, found_warnings) = build(&tree, ignore, before.as_ref());
            assert!(found.out == expected.out, "step {step}: {:?}", found.totals);
            assert!(found.index == expected.index, "index of step {step}");
            assert_eq!(found.totals.files, expected.totals.files, "step {step}");
            assert_eq!(found_warnings, warnings, "step {step}");
            saved += expected.totals.listed - found.totals.listed;
            before = Some(found);
        }
        saved
    };
    let saved = tokio::task::spawn_blocking(work).await.unwrap();
    assert!(saved > 0, "no directory was taken from a previous archive");
}

/// The work is that of the changed directories: it does not depend on the number of the others.
#[tokio::test]
async fn one_changed_file_lists_the_directories_above_it() {
    let path = |number: u32| format!("d{:02}/s{:02}/f", number / 50, number % 50);
    let mut files: Files = (0..2000)
        .map(|number| (path(number), (FILE, format!("{number:04} ").repeat(800))))
        .collect();
    let (mut stream, names) = (Vec::new(), ["a".to_owned(), "b".to_owned()]);
    commit(&mut stream, "a", &files);
    put(&mut files, &path(1013), FILE, "x".repeat(4000));
    commit(&mut stream, "b", &files);
    let (checkouts, _directory) = checkouts(&stream, &names).await;
    let work = move || {
        let mut trees = checkouts.into_iter().map(|checkout| Tree::new(checkout, None));
        let (first, second) = (trees.next().unwrap(), trees.next().unwrap());
        let (before, _) = build(&first, None, None);
        // The root, 40 directories and 2,000 in them, once for ignore files and once for entries.
        assert_eq!(first.trees_listed(), 2 * 2041);
        assert_eq!(before.totals.listed, 4041);
        let (after, _) = build(&second, None, Some(&before));
        assert_eq!(second.trees_listed(), 2 * 3, "the root and two directories");
        assert!(
            after.totals.listed * 2 < before.totals.listed,
            "{:?}",
            after.totals
        );
        assert_eq!(after.totals.segments - after.totals.copied, 1);
        assert!(after.out == build(&second, None, None).0.out);
    };
    tokio::task::spawn_blocking(work).await.unwrap();
}

/// A submodule has objects of its own, and its directories have the paths of another commit.
#[tokio::test]
async fn a_tree_with_a_submodule_is_packed_as_from_scratch() {
    let files = |seed: u32| -> Files {
        (0..60)
            .map(|number| {
                let content = format!("{seed} {number:02} ").repeat(16_000);
                (format!("d{number:02}/f"), (FILE, content))
            })
            .collect()
    };
    let (mut base, mut stream) = (files(1), Vec::new());
    for name in ["a", "b"] {
        commit(&mut stream, name, &base);
        writeln!(stream, "M 160000 {} \"d30s\"", "1".repeat(40)).unwrap();
        put(&mut base, "d07/f", FILE, "changed".to_owned());
    }
    commit(&mut stream, "c", &files(2));
    let names = ["a", "b", "c"].map(str::to_owned);
    let (checkouts, _directory) = checkouts(&stream, &names).await;
    let work = move || {
        let [first, second, submodule] = <[Checkout; 3]>::try_from(checkouts).unwrap();
        let tree = |checkout: Checkout| {
            let submodules = BTreeMap::from([(b"d30s".to_vec(), Module::from(submodule.clone()))]);
            Tree::new(Module::new(checkout, submodules), None)
        };
        let (before, _) = build(&tree(first), None, None);
        assert_eq!(before.totals.files, 120);
        let second = tree(second);
        let (expected, _) = build(&second, None, None);
        let (found, _) = build(&second, None, Some(&before));
        assert!(found.out == expected.out && found.index == expected.index);
        assert!(found.totals.listed < expected.totals.listed, "{:?}", found.totals);
        // What cannot be copied is read from the right commit.
        let damaged = Written {
            out: before.out.iter().map(|byte| byte ^ 1).collect(),
            ..before
        };
        assert!(build(&second, None, Some(&damaged)).0.out == expected.out);
    };
    tokio::task::spawn_blocking(work).await.unwrap();
}
