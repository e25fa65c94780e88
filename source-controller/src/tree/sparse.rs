//! `spec.sparseCheckout`: a selection of paths in a repository. Pure.

use crate::git::Selection;

/// The selected paths. A file is selected if its path begins with one of them. The comparison is plain text, so `dir`
/// also selects `dir-old/a` and `dirfoo.txt`. The rule is Flux's; users' artifacts depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sparse {
    prefixes: Vec<Vec<u8>>,
}

impl Selection for Sparse {
    fn selects(&self, path: &[u8]) -> bool {
        Self::selects(self, path)
    }

    fn may_contain(&self, directory: &[u8]) -> bool {
        self.coverage(directory) != Coverage::None
    }
}

/// Which part of a directory is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coverage {
    /// All of it.
    Complete,
    /// Possibly a part of it.
    Partial,
    /// Nothing.
    None,
}

impl Sparse {
    /// Reads the field; `None` if it does not restrict anything.
    #[must_use]
    pub fn new(paths: &[String]) -> Option<Self> {
        let prefixes: Vec<Vec<u8>> = paths
            .iter()
            .map(|path| path.strip_prefix("./").unwrap_or(path).as_bytes().to_vec())
            .collect();
        let restricts = !prefixes.is_empty() && prefixes.iter().all(|prefix| !prefix.is_empty());
        restricts.then_some(Self { prefixes })
    }

    /// Whether a file, a symlink or a submodule with this path is selected.
    #[must_use]
    pub fn selects(&self, path: &[u8]) -> bool {
        self.prefixes.iter().any(|prefix| path.starts_with(prefix))
    }

    /// Returns which part of the directory is selected.
    pub(super) fn coverage(&self, directory: &[u8]) -> Coverage {
        let inside = [directory, b"/"].concat();
        if self.selects(&inside) {
            Coverage::Complete
        } else if self.prefixes.iter().any(|prefix| prefix.starts_with(&inside)) {
            Coverage::Partial
        } else {
            Coverage::None
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sparse(paths: &[&str]) -> Option<Sparse> {
        Sparse::new(&paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn paths_select_by_their_text() {
        for (paths, path, selected) in [
            (&["dir"][..], "dir/a", true),
            (&["dir"], "dir-old/a", true),
            (&["dir"], "dirfoo.txt", true),
            (&["dir/"], "dir-old/a", false),
            (&["./dir"], "dir/a", true),
            (&["././dir"], "dir/a", false),
            (&["/dir"], "dir/a", false),
            (&["."], ".github/a", true),
            (&["."], "a", false),
            (&["a", "b/c"], "b/c/d", true),
            (&["a", "b/c"], "b/d", false),
            (&["Dir"], "dir/a", false),
        ] {
            assert_eq!(
                sparse(paths).unwrap().selects(path.as_bytes()),
                selected,
                "{paths:?} {path}"
            );
        }
    }

    #[test]
    fn an_empty_path_selects_everything() {
        for paths in [&[][..], &[""], &["./"], &["a", ""]] {
            assert_eq!(sparse(paths), None, "{paths:?}");
        }
    }

    proptest! {
        /// A skipped directory contains no selected path, and everything in a complete one is selected.
        #[test]
        fn a_directory_is_entered_only_if_it_may_contain_a_selected_path(
            paths in proptest::collection::vec("[ab/.]{1,4}", 1..4),
            directory in "[ab]{1,2}(/[ab]{1,2}){0,2}",
            below in "[ab]{1,2}(/[ab]{1,2}){0,2}",
        ) {
            let Some(sparse) = Sparse::new(&paths) else { return Ok(()) };
            let selected = sparse.selects(format!("{directory}/{below}").as_bytes());
            match sparse.coverage(directory.as_bytes()) {
                Coverage::Complete => prop_assert!(selected),
                Coverage::None => prop_assert!(!selected),
                Coverage::Partial => {}
            }
        }
    }
}
