//! Why the composed tree cannot be read.

use std::io;

use sluice_runtime::failure::{Class, Failure};

use crate::git::ReadError;

/// Why the composed tree cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// A commit cannot be read, or the tree is larger than is allowed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file of an overlay cannot be read.
    #[error("'{path}' cannot be read: {source}")]
    Disk {
        /// Its path in the tree.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file of an overlay is larger than is allowed.
    #[error(
        "'{path}' has {size} bytes, more than the {limit} that a file may have; raise {flag} or leave it out"
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
    /// Links that lead to each other.
    #[error("'{path}' leads through too many links")]
    TooManyLinks {
        /// The path that was followed.
        path: String,
    },
}

impl Failure for TreeError {
    fn class(&self) -> Class {
        match self {
            Self::Read(error) => error.class(),
            // A new commit or artifact mends it, which is noticed by looking again.
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

/// A path for a message.
pub(super) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
