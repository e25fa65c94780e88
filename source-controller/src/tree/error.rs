//! Errors of selecting and reading the composed tree.

use std::io;

use sluice_runtime::failure::{Class, Failure};

use crate::git::ReadError;

/// Why the composed tree cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// A commit cannot be read, or the tree exceeds a limit.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file of an overlay cannot be read.
    #[error("'{path}' cannot be read: {source}")]
    Disk {
        /// Its path in the tree.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file of an overlay is larger than allowed.
    #[error(
        "'{path}' has {size} bytes, more than the {limit} that a file may have; raise {flag} or exclude it"
    )]
    TooLarge {
        /// Its path in the tree.
        path: String,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
        /// The flag that sets it.
        flag: &'static str,
    },
    /// Symlinks that form a cycle.
    #[error("'{path}' leads through too many symlinks")]
    TooManyLinks {
        /// The path that was resolved.
        path: String,
    },
}

impl TreeError {
    /// Returns the conversion of an error of reading `path` of the tree from disk.
    pub(super) fn disk(path: &[u8]) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Disk {
            path: lossy_path(path),
            source,
        }
    }
}

impl Failure for TreeError {
    fn class(&self) -> Class {
        match self {
            Self::Read(error) => error.class(),
            // A new commit or artifact fixes it; the next reconciliation checks again.
            Self::Disk { .. } | Self::TooLarge { .. } | Self::TooManyLinks { .. } => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Read(error) => error.reason(),
            Self::TooManyLinks { .. } => "GitOperationFailed",
            Self::Disk { .. } | Self::TooLarge { .. } => "ArchiveOperationFailed",
        }
    }
}

/// An error while selecting the sparse paths of a commit.
#[derive(Debug, thiserror::Error)]
pub enum SparseError {
    /// A path does not exist in the commit.
    #[error(
        "failed to sparse checkout directories : sparse checkout dir '{path}' does not exist in repository: no such file or directory"
    )]
    Missing {
        /// The path as written in the spec.
        path: String,
    },
    /// The tree cannot be read.
    #[error("failed to sparse checkout directories : {0}")]
    Tree(#[from] TreeError),
}

impl Failure for SparseError {
    fn class(&self) -> Class {
        match self {
            // Another commit may contain the path.
            Self::Missing { .. } => Class::Transient,
            Self::Tree(error) => error.class(),
        }
    }

    fn reason(&self) -> &'static str {
        "GitOperationFailed"
    }
}

/// Converts a path for a message.
pub(crate) fn lossy_path(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
