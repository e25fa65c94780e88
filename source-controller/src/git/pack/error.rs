//! Why a pack is not taken.

use std::io;

use git2::Oid;

use super::super::remote::{DELTA_BYTES_FLAG, UNPACKED_BYTES_FLAG};

/// Why a pack is not taken.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// It does not have the form of a pack.
    #[error(transparent)]
    Malformed(#[from] Flaw),
    /// It has more than is allowed.
    #[error("more than {limit} {unit}; raise {flag}")]
    TooLarge {
        /// The limit.
        limit: u64,
        /// Of what.
        unit: &'static str,
        /// The flag that sets it.
        flag: &'static str,
    },
    /// An object that is held and that the pack builds on cannot be read.
    #[error("object {id}, which it builds on, cannot be read: {why}")]
    Base {
        /// The object.
        id: Oid,
        /// What libgit2 says.
        why: String,
    },
    /// The disk cannot be written.
    #[error(transparent)]
    Storage(#[from] io::Error),
    /// The sender is gone, or the work is unwanted.
    #[error("stopped")]
    Stopped,
}

/// What is wrong with the form of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// The first twelve bytes are no header.
    #[error("it does not begin as a pack of version 2 or 3 does")]
    Header,
    /// The bytes ended before the pack did.
    #[error("it ends early")]
    Short,
    /// Bytes follow the checksum.
    #[error("it has more bytes than its header announces with {0} objects")]
    Long(u32),
    /// The checksum at its end is another.
    #[error("its checksum is wrong")]
    Checksum,
    /// An entry has a type that there is not, or a number that is too large.
    #[error("the entry at byte {0} has no valid header")]
    Entry(u64),
    /// A difference names a base that is not the beginning of an earlier entry.
    #[error("the entry at byte {0} is a difference to something that is no earlier entry")]
    Offset(u64),
    /// Compressed data is broken.
    #[error("the entry at byte {0} has broken compressed data")]
    Compression(u64),
    /// An object is longer or shorter than its header says.
    #[error("the entry at byte {0} does not have the size that it announces")]
    Size(u64),
    /// A difference has an instruction that cannot be followed.
    #[error("the entry at byte {0} is a difference with an invalid instruction")]
    Delta(u64),
    /// A chain of differences is longer than Git makes them.
    #[error("it has a chain of more than {0} differences")]
    Depth(usize),
    /// The same object twice.
    #[error("object {0} is in it twice")]
    Duplicate(Oid),
    /// An object that was made to have the hash of another.
    #[error("the entry at byte {0} is part of a SHA-1 collision attack")]
    Collision(u64),
    /// Differences whose bases are nowhere, or lead to each other.
    #[error("{0} differences in it have no base")]
    Unresolved(usize),
}

/// The bytes that objects have unpacked are too many.
pub(super) const fn unpacked_too_large(limit: u64) -> PackError {
    PackError::TooLarge {
        limit,
        unit: "unpacked bytes",
        flag: UNPACKED_BYTES_FLAG,
    }
}

/// An object of a difference is too large.
pub(super) const fn delta_too_large(limit: u64) -> PackError {
    PackError::TooLarge {
        limit,
        unit: "bytes of one object that is stored as a difference",
        flag: DELTA_BYTES_FLAG,
    }
}

/// The objects of a chain are too large together.
pub(super) const fn chain_too_large(limit: u64) -> PackError {
    PackError::TooLarge {
        limit,
        unit: "bytes of one chain of differences",
        flag: DELTA_BYTES_FLAG,
    }
}
