//! Why a pack is refused.

use std::io;

use git2::Oid;

use super::super::remote::{DELTA_BYTES_FLAG, UNPACKED_BYTES_FLAG};

/// Why a pack is refused.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// It is malformed.
    #[error(transparent)]
    Malformed(#[from] FormatError),
    /// It exceeds a limit.
    #[error("more than {limit} {unit}; raise {flag}")]
    TooLarge {
        /// The limit.
        limit: u64,
        /// The unit of the limit.
        unit: &'static str,
        /// The flag that sets it.
        flag: &'static str,
    },
    /// The base of a delta in the mirror cannot be read.
    #[error("base object {id} cannot be read: {why}")]
    Base {
        /// The object.
        id: Oid,
        /// libgit2's message.
        why: String,
    },
    /// The disk cannot be written.
    #[error(transparent)]
    Storage(#[from] io::Error),
    /// The sender is gone, or the work was cancelled.
    #[error("stopped")]
    Stopped,
}

/// What is malformed in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The first twelve bytes are not a header.
    #[error("it does not begin with the header of a pack of version 2 or 3")]
    Header,
    /// The bytes ended before the pack.
    #[error("it ends early")]
    Truncated,
    /// Bytes follow the checksum.
    #[error("it continues after the {0} objects of its header")]
    TrailingBytes(u32),
    /// The checksum at the end does not match.
    #[error("its checksum is wrong")]
    Checksum,
    /// An entry with an unknown type or an oversized number.
    #[error("the entry at byte {0} has no valid header")]
    EntryHeader(u64),
    /// A delta whose base offset is not the start of an earlier entry.
    #[error("the entry at byte {0} is a delta whose base is not an earlier entry")]
    BaseOffset(u64),
    /// Compressed data is broken.
    #[error("the entry at byte {0} has broken compressed data")]
    Compression(u64),
    /// The size of an object differs from its header.
    #[error("the entry at byte {0} does not have the size in its header")]
    Size(u64),
    /// A delta with an invalid instruction.
    #[error("the entry at byte {0} is a delta with an invalid instruction")]
    Delta(u64),
    /// A delta chain longer than Git's maximum.
    #[error("it has a delta chain longer than {0}")]
    ChainDepth(usize),
    /// The same object twice.
    #[error("it contains object {0} twice")]
    Duplicate(Oid),
    /// An object that was constructed to have the hash of another one.
    #[error("the entry at byte {0} is part of a SHA-1 collision attack")]
    Collision(u64),
    /// Deltas whose bases are missing or form a cycle.
    #[error("{0} deltas have no base")]
    Unresolved(usize),
}

/// The unpacked objects exceed the limit.
pub(super) const fn unpacked_too_large(limit: u64) -> PackError {
    PackError::TooLarge {
        limit,
        unit: "unpacked bytes",
        flag: UNPACKED_BYTES_FLAG,
    }
}

/// An object of a delta exceeds the limit.
pub(super) const fn delta_too_large(limit: u64) -> PackError {
    PackError::TooLarge {
        limit,
        unit: "bytes of one deltified object",
        flag: DELTA_BYTES_FLAG,
    }
}

/// The objects of a delta chain exceed the limit.
pub(super) const fn chain_too_large(limit: u64) -> PackError {
    PackError::TooLarge {
        limit,
        unit: "bytes of one delta chain",
        flag: DELTA_BYTES_FLAG,
    }
}
