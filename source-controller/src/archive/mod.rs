//! The archive format: a deterministic tar in one gzip member.
//!
//! Equal entries in equal order yield equal bytes, with any number of threads and whatever was stored before. Everything that could
//! differ between two builds of one tree is fixed: owners, times, the file name and the operating system in the gzip header.
//!
//! An archive is a sequence of segments, each of which is compressed for itself. `header` writes the headers of the tar, `cut` cuts the
//! entries by the rules of `segment`, which names the content of each segment, `piece` and `member` compress it, and `index` records the
//! segments beside the file, with the `listing` of the entries and the `directory` of each. `build` copies the segments that the previous
//! artifact (`earlier`) has and compresses the others on several threads, within a [`Capacity`], and `join` writes all of them as one
//! member, from the memory of `buffer`. `checkpoints` computes its digest, from where the previous one differs, on a `digest_thread`.
//! `reconcile::pack` lists a checkout and calls [`write()`]; `storage` provides the files. Only `member` knows the compressor.

mod buffer;
mod build;
mod capacity;
mod checkpoints;
mod cut;
mod digest;
mod digest_thread;
mod directory;
mod earlier;
mod header;
mod index;
mod join;
mod listing;
mod member;
mod piece;
mod segment;

use std::io;

pub use build::{Previous, Settings, write};
pub use capacity::Capacity;
pub use digest::Hasher;
pub use directory::{Directories, Directory};
pub use index::{Index, IndexError, MAX_INDEX_BYTES};
pub use join::{StoredFile, Written};
pub use listing::{Listed, Listing, Open, Run};
pub use sluice_api::digest::Algorithm;
use sluice_api::digest::Digest;

/// An entry of an archive. Parents must precede their children.
#[derive(Clone, Debug)]
pub struct Entry<C> {
    /// Path from the root; `.` is the root itself.
    pub path: Vec<u8>,
    /// The rest of the entry.
    pub body: Body<C>,
}

impl<C> Entry<C> {
    /// Returns the entry of a directory.
    #[must_use]
    pub fn directory(path: &[u8]) -> Self {
        Self {
            path: path.to_vec(),
            body: Body::Directory,
        }
    }
}

/// Type and content of an entry. Links, devices and sockets are never archived.
#[derive(Clone, Debug)]
pub enum Body<C> {
    /// A directory, mode 0750.
    Directory,
    /// A regular file, mode 0700 or 0600.
    File {
        /// Whether any execute bit is set.
        executable: bool,
        /// Length of the content in bytes.
        size: u64,
        /// Names the content: equal names mean equal content. 20 bytes are the name of a Git object; other names have another length.
        id: Box<[u8]>,
        /// Reads the content.
        content: C,
    },
}

/// The content of a file. It is read on the thread that compresses it, and not at all if its segment is copied.
pub trait Content: Send + Sync {
    /// Why a build fails.
    type Error: From<io::Error> + From<Stopped> + Send;

    /// Passes the content to `sink`, in one part or in several. Returns whether the file is notable, which [`Totals`] reports.
    ///
    /// # Errors
    /// The content cannot be read, or an error of `sink`.
    fn read(&self, sink: Sink<'_, Self::Error>) -> Result<bool, Self::Error>;

    /// Returns how many bytes of memory a large content takes while it is read; 0 if it is read in parts.
    fn held_bytes(&self) -> u64 {
        0
    }
}

/// Receives the parts of a content in their order.
pub type Sink<'a, E> = &'a mut dyn FnMut(&[u8]) -> Result<(), E>;

/// The build was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped")]
pub struct Stopped;

/// Summary of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Digest of the compressed bytes.
    pub digest: Digest,
    /// Number of compressed bytes.
    pub size: u64,
    /// Number of files, without directories.
    pub files: u64,
    /// Number of bytes of the tar before compression.
    pub unpacked: u64,
    /// Number of segments, without the end of the tar.
    pub segments: u64,
    /// Number of segments that were copied from the previous artifact.
    pub copied: u64,
    /// Number of entries that were listed; those of other segments are taken from the previous artifact.
    pub listed: u64,
    /// Number of notable files.
    pub notable: u64,
    /// Path of the first notable file.
    pub first_notable: Option<Vec<u8>>,
}

#[cfg(test)]
mod tests;
