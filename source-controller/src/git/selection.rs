//! Which files of a commit are wanted.

use std::fmt::Debug;

/// A choice of files by their paths from the root of a commit, without a slash at either end.
pub trait Selection: Debug + Send + Sync {
    /// Whether the file or link is wanted.
    fn selects(&self, path: &[u8]) -> bool;

    /// Whether anything in the directory may be wanted.
    fn enters(&self, directory: &[u8]) -> bool;
}
