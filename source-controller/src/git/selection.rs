//! Selection of files of a commit.

use std::fmt::Debug;

/// A selection of files by their paths from the root of a commit, without a slash at either end.
pub trait Selection: Debug + Send + Sync {
    /// Whether the file or symlink is selected.
    fn selects(&self, path: &[u8]) -> bool;

    /// Whether anything in the directory may be selected.
    fn may_contain(&self, directory: &[u8]) -> bool;
}
