//! A large file of a commit, read in parts. libgit2 holds each object in memory as a whole, and so is used for deltified ones only.

use std::io::Read as _;

use git2::Oid;
use sluice_git_pack::BlobStream;

use super::checkout::Checkout;
use super::error::ReadError;

/// Bytes from which on a file is read in parts, where that is possible.
pub(super) const LARGE_BLOB_BYTES: u64 = 4 << 20;

/// A file that is not held in memory as a whole.
pub(crate) struct LargeBlob<'a> {
    stream: BlobStream,
    id: Oid,
    checkout: &'a Checkout,
}

impl Checkout {
    /// Opens a file for reading in parts, if it is large and stored undeltified; others are read with [`Checkout::read`].
    ///
    /// # Errors
    /// As [`Checkout::read`].
    pub(crate) fn open_large(&self, id: Oid) -> Result<Option<LargeBlob<'_>>, ReadError> {
        if self.allowed_size(id)? < LARGE_BLOB_BYTES {
            return Ok(None);
        }
        // What cannot be opened here is left to libgit2 and its errors.
        let opened = sluice_git_pack::open_blob(&self.generation().packs(), id).ok();
        Ok(opened.flatten().map(|stream| LargeBlob {
            stream,
            id,
            checkout: self,
        }))
    }

    /// Returns how many bytes of memory [`Checkout::read`] takes for a large file that is not read in parts: those of its base and its
    /// own. 0 for other files.
    pub(crate) fn held_bytes(&self, id: Oid) -> u64 {
        match (self.size(id), self.open_large(id)) {
            (Ok(size), Ok(None)) if size >= LARGE_BLOB_BYTES => size.saturating_mul(2),
            // An error is that of the read.
            _ => 0,
        }
    }
}

impl LargeBlob<'_> {
    /// Reads the next part into `buffer`; returns its length, 0 at the end.
    ///
    /// # Errors
    /// The object is damaged.
    pub(crate) fn read_part(&mut self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let id = self.id;
        let read = self.stream.read(buffer).map_err(|error| ReadError::Object {
            id,
            why: error.to_string(),
        });
        self.checkout.mark_if_unreadable(read)
    }
}
