//! Segments of an archive: their sizes, the names of their content, and the bytes of the tar. Pure except for the content that it reads.
//! `cut` cuts the entries by these rules.
//!
//! Where a segment ends depends only on the path and the size of the entries near it, so that a change moves no cut far from it. Where
//! the same segment appears again, its compressed bytes can be copied. The rules, with the bytes that an entry has in the tar:
//!
//! 1. An entry that would take a segment above [`MAX`] begins a new one.
//! 2. An entry of `n` bytes ends the segment with the probability `n / TARGET`, as the digest of its path decides, unless the segment
//!    would have less than [`MIN`] bytes.
//! 3. An entry of more than [`MAX`] bytes is a segment of its own, in pieces of [`MAX`] bytes.
//!
//! The target does not depend on the size of the tree: otherwise one more file could move every cut.

use std::io;

use sha2::{Digest as _, Sha256};
use sluice_runtime::shutdown::Token;

use super::header::{BLOCK, Kind, header, header_length};
use super::member::COMPRESSOR;
use super::{Body, Content, Entry, Sink, Stopped};

/// Average bytes of a segment. Segments of this size cost about a percent of compression, and one changed file about 5 ms.
const TARGET: u64 = 1 << TARGET_BITS;
const TARGET_BITS: u32 = 19;
/// Minimum bytes of a segment that an entry may end.
pub(super) const MIN: u64 = TARGET / 4;
/// Maximum bytes of a segment, and of a piece of a larger entry. A builder holds this many bytes for each thread.
pub(super) const MAX_BYTES: usize = 4 << TARGET_BITS;
pub(super) const MAX: u64 = MAX_BYTES as u64;

/// Identifies rules and encoding of the keys.
const KEY_VERSION: &[u8] = b"sluice segment 1";

/// Digest of everything that decides the compressed bytes of a piece.
pub(super) type Key = [u8; 32];

/// Returns the digest of everything beside its entries that decides the compressed bytes of a segment.
pub(super) fn format() -> [u8; 32] {
    let hash = Sha256::new_with_prefix(KEY_VERSION);
    hash.chain_update(COMPRESSOR).finalize().into()
}

/// Consecutive entries. At most [`MAX`] bytes of the tar, or one larger entry.
#[derive(Debug)]
pub(super) struct Segment<C> {
    entries: Vec<Entry<C>>,
    length: u64,
}

/// The notable files of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Notable {
    /// Their number.
    pub(super) count: u32,
    /// The position of the first of them among the entries.
    pub(super) first: u32,
}

impl<C: Content> Segment<C> {
    /// Returns the segment of these entries, which were cut by the rules.
    pub(super) fn new(entries: Vec<Entry<C>>) -> Self {
        Self {
            length: entries.iter().map(Entry::length).sum(),
            entries,
        }
    }

    /// Returns the number of its bytes in the tar.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Returns the number of pieces: one, unless it is a larger entry.
    pub(super) const fn pieces(&self) -> u64 {
        self.length.div_ceil(MAX)
    }

    /// Returns the number of files.
    pub(super) fn files(&self) -> u64 {
        let files = self.entries.iter();
        files
            .filter(|entry| matches!(entry.body, Body::File { .. }))
            .count() as u64
    }

    /// Returns how many bytes of memory its content takes beside its pieces.
    pub(super) fn held_bytes(&self) -> u64 {
        // A smaller content takes little more than a piece.
        let larger = self.entries.iter().filter(|entry| entry.size() > MAX);
        let held = larger.map(|entry| match &entry.body {
            Body::Directory => 0,
            Body::File { content, .. } => content.held_bytes(),
        });
        held.max().unwrap_or_default()
    }

    /// Returns the entries.
    pub(super) fn entries(&self) -> &[Entry<C>] {
        &self.entries
    }

    /// Returns the path of an entry by its position.
    pub(super) fn path(&self, position: u32) -> Option<&[u8]> {
        let entry = self.entries.get(usize::try_from(position).ok()?)?;
        Some(&entry.path)
    }

    /// Returns the key of each piece.
    pub(super) fn keys(&self) -> Vec<Key> {
        let mut hash = Sha256::new_with_prefix(KEY_VERSION);
        hash.update((COMPRESSOR.len() as u64).to_be_bytes());
        hash.update(COMPRESSOR);
        hash.update((self.entries.len() as u64).to_be_bytes());
        for entry in &self.entries {
            entry.hash_into(&mut hash);
        }
        let key = |piece: u64| -> Key { hash.clone().chain_update(piece.to_be_bytes()).finalize().into() };
        (0..self.pieces()).map(key).collect()
    }

    /// Passes the bytes of the tar to `sink`, in parts. Returns which files are notable.
    pub(super) fn read(&self, stop: &Token, sink: Sink<'_, C::Error>) -> Result<Notable, C::Error> {
        let mut notable = Notable::default();
        for (position, entry) in (0..).zip(&self.entries) {
            if stop.is_cancelled() {
                return Err(Stopped.into());
            }
            if entry.read(sink)? {
                if notable.count == 0 {
                    notable.first = position;
                }
                notable.count += 1;
            }
        }
        Ok(notable)
    }
}

impl<C: Content> Entry<C> {
    fn kind(&self) -> Kind {
        match self.body {
            Body::Directory => Kind::Directory,
            Body::File { executable, .. } => Kind::File { executable },
        }
    }

    fn size(&self) -> u64 {
        match self.body {
            Body::Directory => 0,
            Body::File { size, .. } => size,
        }
    }

    /// Returns the number of bytes in the tar.
    pub(super) fn length(&self) -> u64 {
        let size = self.size();
        header_length(&self.path, size)
            .saturating_add(size)
            .saturating_add(padding(size))
    }

    /// Hashes everything that decides the bytes in the tar. The lengths keep two sequences of entries apart.
    fn hash_into(&self, hash: &mut Sha256) {
        let mut put = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        put(&self.path);
        match &self.body {
            Body::Directory => put(b"directory"),
            Body::File {
                executable, size, id, ..
            } => {
                put(if *executable { &b"executable"[..] } else { b"file" });
                put(&size.to_be_bytes());
                put(id);
            }
        }
    }

    /// Whether the segment may end after an entry of `length` bytes in the tar.
    pub(super) fn is_boundary(&self, length: u64) -> bool {
        let digest: [u8; 32] = Sha256::digest(&self.path).into();
        let number = u64::from_be_bytes(digest.first_chunk().copied().unwrap_or_default());
        (number >> (u64::BITS - TARGET_BITS)) < length
    }

    /// Passes header, content and padding to `sink`. Returns whether the file is notable.
    fn read(&self, sink: Sink<'_, C::Error>) -> Result<bool, C::Error> {
        sink(&header(&self.path, self.kind(), self.size()))?;
        let Body::File { size, content, .. } = &self.body else {
            return Ok(false);
        };
        let mut read = 0;
        let is_notable = content.read(&mut |bytes: &[u8]| {
            read += bytes.len() as u64;
            // Not more than the header says.
            if read <= *size { sink(bytes) } else { Ok(()) }
        })?;
        if read != *size {
            let path = self.path.escape_ascii();
            let text = format!("'{path}' has {read} bytes, but was listed with {size}");
            return Err(io::Error::other(text).into());
        }
        sink(&[0; BLOCK][..usize::try_from(padding(*size)).unwrap_or_default()])?;
        Ok(is_notable)
    }
}

/// Returns the number of zeros that fill the last block of a content.
const fn padding(size: u64) -> u64 {
    (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64
}
