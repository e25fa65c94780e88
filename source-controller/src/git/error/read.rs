//! Errors of reading a commit that is on disk.

use git2::Oid;
use sluice_runtime::failure::{Class, Failure};

use super::super::object::ObjectError;
use super::super::remote::{ENTRIES_FLAG, Limits};

/// Why a fetched commit cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The object database cannot read an object that must exist. The next fetch creates a new generation.
    #[error("object {id} cannot be read: {why}")]
    Object {
        /// The object.
        id: Oid,
        /// libgit2's message.
        why: String,
    },
    /// An object that does not match its type's format.
    #[error(transparent)]
    Malformed(#[from] ObjectError),
    /// A file larger than allowed.
    #[error(
        "object {id} has {size} bytes, more than the {limit} that a file may have; raise {flag} or exclude it"
    )]
    BlobTooLarge {
        /// The object.
        id: Oid,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
        /// The flag that sets it.
        flag: &'static str,
    },
    /// More files and directories than allowed.
    #[error("the tree of the commit has more than {limit} entries; raise {flag}")]
    TooManyEntries {
        /// The limit.
        limit: u64,
        /// The flag that sets it.
        flag: &'static str,
    },
    /// A directory with more names than allowed.
    #[error(
        "directory {id} has {size} bytes of names, more than {limit}, 16 for each entry that {flag} allows"
    )]
    TreeTooLarge {
        /// The object.
        id: Oid,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
        /// The flag that sets it.
        flag: &'static str,
    },
    /// A path longer than any file system allows.
    #[error("the tree of the commit has a path of more than {0} bytes")]
    PathTooLong(usize),
    /// Many directories with long paths.
    #[error("the paths of the directories of the commit have more than {0} bytes together")]
    PathsTooLong(usize),
}

impl ReadError {
    pub(crate) const fn too_many_entries(limits: &Limits) -> Self {
        Self::TooManyEntries {
            limit: limits.entries,
            flag: ENTRIES_FLAG,
        }
    }
}

impl Failure for ReadError {
    fn class(&self) -> Class {
        match self {
            Self::Object { .. }
            | Self::Malformed(_)
            | Self::BlobTooLarge { .. }
            | Self::TooManyEntries { .. }
            | Self::TreeTooLarge { .. }
            | Self::PathTooLong(_)
            | Self::PathsTooLong(_) => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        "GitOperationFailed"
    }
}
