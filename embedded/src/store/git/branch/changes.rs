//! The files that differ between two commits.
//!
//! Only directories that differ are read. The comparison of libgit2 reads all of both commits, so that each commit costs as much as the
//! repository has files.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;

use git2::{Error, ErrorCode, ObjectType, Oid, Tree, TreeEntry};

use super::Branch;

/// Most files of one commit: a few trees that contain each other can have any number of files.
const MAX_FILES: usize = 1 << 20;
/// Longest path in bytes, as in a working tree on Linux (`PATH_MAX`). Longer ones are ignored.
const MAX_PATH: usize = 4096;

/// The files that a commit changes, by path, with the hash of their new content; `None` without one.
pub(in crate::store::git) type ChangedFiles = BTreeMap<String, Option<Oid>>;

/// A directory that differs; `None` where it does not exist.
struct Directory {
    /// Its path below the directory of the objects, with a trailing slash, or empty.
    path: String,
    old: Option<Oid>,
    new: Option<Oid>,
}

impl Branch {
    /// Returns the YAML files below the directory of the objects that differ between two commits.
    pub(in crate::store::git) fn changed_files(
        &self,
        old: Option<Oid>,
        new: Oid,
    ) -> Result<ChangedFiles, Error> {
        self.changed_up_to(old, new, MAX_FILES)
    }

    /// As [`Branch::changed_files`], with a limit of the number of files and of directories to read.
    fn changed_up_to(&self, old: Option<Oid>, new: Oid, limit: usize) -> Result<ChangedFiles, Error> {
        let mut files = ChangedFiles::new();
        if old == Some(new) {
            return Ok(files);
        }
        let old = old.map(|old| self.root(old)).transpose()?.flatten();
        let mut directories = vec![Directory {
            path: String::new(),
            old,
            new: self.root(new)?,
        }];
        while let Some(directory) = directories.pop() {
            self.compare(&directory, &mut directories, &mut files)?;
            if files.len() + directories.len() > limit {
                return Err(Error::from_str(&format!(
                    "the commit {new} changes more than {limit} files and directories: divide it"
                )));
            }
        }
        Ok(files)
    }

    /// Returns the directory of the objects in a commit.
    fn root(&self, commit: Oid) -> Result<Option<Oid>, Error> {
        let tree = self.repository.find_commit(commit)?.tree()?;
        if self.prefix.is_empty() {
            return Ok(Some(tree.id()));
        }
        match tree.get_path(Path::new(self.prefix.trim_end_matches('/'))) {
            Ok(entry) => Ok(directory_id(&entry)),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds the files and directories in a directory that differ.
    fn compare(
        &self,
        directory: &Directory,
        directories: &mut Vec<Directory>,
        files: &mut ChangedFiles,
    ) -> Result<(), Error> {
        let find = |id: Option<Oid>| id.map(|id| self.repository.find_tree(id)).transpose();
        let (old, new) = (find(directory.old)?, find(directory.new)?);
        let mut add = |old: Option<&TreeEntry<'_>>, new: Option<&TreeEntry<'_>>| {
            let Some(name) = old.or(new).and_then(|entry| entry.name().ok()) else {
                return;
            };
            let path = format!("{}{name}", directory.path);
            if path.len() >= MAX_PATH {
                return;
            }
            let is_file = |entry: &TreeEntry<'_>| directory_id(entry).is_none();
            if is_yaml(&path) && (old.is_some_and(is_file) || new.is_some_and(is_file)) {
                // A file in place of a directory comes twice, once without content.
                let content = files.entry(path.clone()).or_default();
                *content = new.and_then(file_id).or(*content);
            }
            let (old, new) = (old.and_then(directory_id), new.and_then(directory_id));
            if old.is_some() || new.is_some() {
                let path = path + "/";
                directories.push(Directory { path, old, new });
            }
        };
        let mut old = old.iter().flat_map(Tree::iter).peekable();
        let mut new = new.iter().flat_map(Tree::iter).peekable();
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => compare_names(old, new),
            };
            let before = if order.is_le() { old.next() } else { None };
            let after = if order.is_ge() { new.next() } else { None };
            if before.as_ref().map(TreeEntry::id) != after.as_ref().map(TreeEntry::id) {
                add(before.as_ref(), after.as_ref());
            }
        }
    }
}

/// Returns the tree of an entry that is a directory.
fn directory_id(entry: &TreeEntry<'_>) -> Option<Oid> {
    (entry.kind() == Some(ObjectType::Tree)).then(|| entry.id())
}

/// Returns the blob of an entry that is a file.
fn file_id(entry: &TreeEntry<'_>) -> Option<Oid> {
    (entry.kind() == Some(ObjectType::Blob)).then(|| entry.id())
}

/// Compares two entries in the order of a tree: the name of a directory counts as if it ended with a slash (`base_name_compare` in
/// `read-cache.c` of Git).
fn compare_names(one: &TreeEntry<'_>, other: &TreeEntry<'_>) -> Ordering {
    let (first, second) = (directory_id(one).is_some(), directory_id(other).is_some());
    if first == second && one.name_bytes() == other.name_bytes() {
        return Ordering::Equal;
    }
    let slash = |is_directory: bool| is_directory.then_some(&b'/');
    let first = one.name_bytes().iter().chain(slash(first));
    first.cmp(other.name_bytes().iter().chain(slash(second)))
}

fn is_yaml(path: &str) -> bool {
    let extension = Path::new(path).extension();
    extension.is_some_and(|extension| extension == "yaml" || extension == "yml")
}

#[cfg(test)]
mod tests {
    use git2::Repository;

    use super::super::Edits;
    use super::*;

    fn branch(folder: &Path, subdir: &str) -> Branch {
        Repository::init_bare(folder).unwrap();
        Branch::open(folder, "main", subdir).unwrap()
    }

    fn write(branch: &Branch, parent: Option<Oid>, edits: &[(&str, Option<&str>)]) -> Oid {
        let edits: Edits = edits
            .iter()
            .map(|(path, text)| ((*path).to_owned(), text.map(str::to_owned)))
            .collect();
        branch.write(parent, &edits, "test", 0).unwrap()
    }

    fn changed(branch: &Branch, old: Option<Oid>, new: Oid) -> Vec<String> {
        branch.changed_files(old, new).unwrap().into_keys().collect()
    }

    #[test]
    fn added_changed_and_removed_files_differ() {
        let folder = tempfile::tempdir().unwrap();
        let branch = branch(folder.path(), "");
        let all = [
            ("a/b/one.yaml", Some("1")),
            ("a/b/two.yml", Some("2")),
            ("a/three.yaml", Some("3")),
            ("README.md", Some("4")),
        ];
        let first = write(&branch, None, &all);
        let expected = ["a/b/one.yaml", "a/b/two.yml", "a/three.yaml"];
        assert_eq!(changed(&branch, None, first), expected);
        assert_eq!(changed(&branch, Some(first), first), Vec::<String>::new());
        let edits = [
            ("a/b/one.yaml", Some("other")),
            ("a/three.yaml", None),
            ("c/four.yaml", Some("4")),
        ];
        let second = write(&branch, Some(first), &edits);
        let expected = ["a/b/one.yaml", "a/three.yaml", "c/four.yaml"];
        assert_eq!(changed(&branch, Some(first), second), expected);
        assert_eq!(changed(&branch, Some(second), first), expected);
        let files = branch.changed_files(Some(first), second).unwrap();
        let texts = files.into_values().map(|id| {
            let text = id.map(|id| branch.read_blob(id).unwrap().unwrap());
            text.unwrap_or_default()
        });
        assert_eq!(texts.collect::<Vec<_>>(), ["other", "", "4"]);
    }

    #[test]
    fn names_are_compared_in_the_order_of_git() {
        let folder = tempfile::tempdir().unwrap();
        let branch = branch(folder.path(), "");
        let all = [
            ("a-b.yaml", Some("1")),
            ("a.yaml", Some("2")),
            ("a/b.yaml", Some("3")),
            ("a0.yaml", Some("4")),
        ];
        let first = write(&branch, None, &all);
        // Git sorts the directory `a` as `a/`, behind `a.yaml`.
        let second = write(&branch, Some(first), &[("a/b.yaml", Some("5"))]);
        assert_eq!(changed(&branch, Some(first), second), ["a/b.yaml"]);
        let third = write(&branch, Some(second), &[("a.yaml", None), ("a-b.yaml", None)]);
        assert_eq!(changed(&branch, Some(second), third), ["a-b.yaml", "a.yaml"]);
        assert_eq!(changed(&branch, Some(third), second), ["a-b.yaml", "a.yaml"]);
    }

    #[test]
    fn a_file_in_place_of_a_directory_differs_with_all_files_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let branch = branch(folder.path(), "");
        let first = write(&branch, None, &[("a.yaml/b.yaml", Some("1"))]);
        let second = write(&branch, None, &[("a.yaml", Some("2"))]);
        let expected = ["a.yaml", "a.yaml/b.yaml"];
        for (old, new) in [(first, second), (second, first)] {
            let files = branch.changed_files(Some(old), new).unwrap();
            assert!(files.keys().eq(&expected), "{files:?}");
            let is_file = new == second;
            assert_eq!(files["a.yaml"].is_some(), is_file);
            assert_eq!(files["a.yaml/b.yaml"].is_some(), !is_file);
        }
    }

    #[test]
    fn paths_are_below_the_directory_of_the_objects() {
        let folder = tempfile::tempdir().unwrap();
        let (whole, below) = (branch(folder.path(), ""), branch(folder.path(), "x/y"));
        let edits = [("x/y/a.yaml", Some("1")), ("x/z/b.yaml", Some("2"))];
        let first = write(&whole, None, &edits);
        assert_eq!(changed(&below, None, first), ["a.yaml"]);
        let second = write(&whole, Some(first), &[("x/y/a.yaml", None)]);
        assert_eq!(changed(&below, Some(first), second), ["a.yaml"]);
    }

    #[test]
    fn directories_that_are_equal_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let branch = branch(folder.path(), "");
        let edits = [("equal/a.yaml", Some("1")), ("b.yaml", Some("2"))];
        let first = write(&branch, None, &edits);
        let second = write(&branch, Some(first), &[("b.yaml", Some("3"))]);
        let tree = branch.repository.find_commit(first).unwrap().tree().unwrap();
        let equal = tree.get_name("equal").unwrap().id().to_string();
        std::fs::remove_file(folder.path().join("objects").join(&equal[..2]).join(&equal[2..])).unwrap();
        let reopened = Branch::open(folder.path(), "main", "").unwrap();
        assert_eq!(changed(&reopened, Some(first), second), ["b.yaml"]);
        assert!(reopened.changed_files(None, second).is_err());
    }

    #[test]
    fn trees_that_contain_each_other_end_at_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let branch = branch(folder.path(), "");
        let repository = &branch.repository;
        let mut tree = repository.treebuilder(None).unwrap();
        tree.insert("a.yaml", repository.blob(b"1").unwrap(), 0o100_644)
            .unwrap();
        let mut id = tree.write().unwrap();
        // Ten trees, and ten to the tenth power files.
        for _ in 0..10 {
            let mut tree = repository.treebuilder(None).unwrap();
            for name in 0..10 {
                tree.insert(name.to_string(), id, 0o040_000).unwrap();
            }
            id = tree.write().unwrap();
        }
        let author = git2::Signature::now("a", "a@example.com").unwrap();
        let tree = repository.find_tree(id).unwrap();
        let commit = repository.commit(None, &author, &author, "test", &tree, &[]);
        let error = branch.changed_up_to(None, commit.unwrap(), 1000).unwrap_err();
        assert!(
            error.message().contains("changes more than 1000 files"),
            "{error}"
        );
    }

    #[test]
    fn paths_that_no_working_tree_can_have_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let branch = branch(folder.path(), "");
        let deep = "directory/".repeat(MAX_PATH / 10) + "a.yaml";
        let first = write(&branch, None, &[("b.yaml", Some("1")), (&deep, Some("2"))]);
        assert_eq!(changed(&branch, None, first), ["b.yaml"]);
    }
}
