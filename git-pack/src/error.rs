//! Why a pack is refused.

use std::io;

use git2::Oid;

/// Why a pack is refused.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// It is malformed.
    #[error(transparent)]
    Malformed(#[from] FormatError),
    /// It exceeds a limit.
    #[error("more than {value} {}", .limit.unit())]
    TooLarge {
        /// The limit.
        limit: Limit,
        /// Its value.
        value: u64,
    },
    /// An omitted base of a delta cannot be read.
    #[error("base object {id} cannot be read: {why}")]
    Base {
        /// The object.
        id: Oid,
        /// libgit2's message.
        why: String,
    },
    /// The disk cannot be written, or the chunks of the caller cannot be read.
    #[error(transparent)]
    Storage(#[from] io::Error),
    /// The sender is gone, or the work was cancelled.
    #[error("stopped")]
    Stopped,
}

/// A limit on a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`Limits::objects`](crate::Limits::objects).
    Objects,
    /// [`Limits::unpacked_bytes`](crate::Limits::unpacked_bytes).
    UnpackedBytes,
    /// [`Limits::delta_bytes`](crate::Limits::delta_bytes).
    DeltaBytes,
    /// The bytes of one delta chain, which follow from [`Limits::delta_bytes`](crate::Limits::delta_bytes).
    ChainBytes,
}

impl Limit {
    /// Returns what is counted.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Objects => "objects",
            Self::UnpackedBytes => "unpacked bytes",
            Self::DeltaBytes => "bytes of one deltified object",
            Self::ChainBytes => "bytes of one delta chain",
        }
    }

    pub(crate) const fn exceeded(self, value: u64) -> PackError {
        PackError::TooLarge { limit: self, value }
    }
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
