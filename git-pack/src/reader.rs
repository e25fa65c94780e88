//! Reads small blobs of the packs in a directory, if they are stored undeltified. libgit2 reads the same ones with a decompressor of half
//! the speed, and searches for an object again to learn its size.
//!
//! `lookup` finds them. Damage gives nothing, never a panic: libgit2, which the caller asks then, reports it.

use std::cmp::Reverse;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flate2::{Decompress, FlushDecompress, Status};
use git2::{ObjectType, Oid};

use crate::entry::{EntryType, Header};
use crate::error::FormatError;
use crate::lookup::{Index, indexes};

/// Packs that are searched. A clone is one large pack; with each of the small ones that fetches add, a search would take longer.
const MAX_PACKS: usize = 4;
/// Bytes that are read from a pack at once: most source files, compressed.
const INPUT: usize = 8 << 10;

/// The largest packs of a directory. Any number of threads may read at once.
pub struct BlobReader {
    /// The packs, that with the most objects first.
    packs: Vec<Pack>,
    /// The decoders that no thread uses.
    idle: Mutex<Vec<Decoder>>,
}

impl BlobReader {
    /// Opens the largest packs of a directory. One that cannot be read or is added later is left out.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn open(packs: &Path) -> io::Result<Self> {
        let mut paths = indexes(packs)?;
        // The size of an index follows from the number of objects.
        paths.sort_by_cached_key(|path| Reverse(fs::metadata(path).map_or(0, |file| file.len())));
        let opened = paths
            .iter()
            .take(MAX_PACKS)
            .filter_map(|index| Pack::open(index).ok().flatten());
        Ok(Self {
            packs: opened.collect(),
            idle: Mutex::default(),
        })
    }

    /// Returns the content of a blob that is stored undeltified and has at most `limit` bytes; `None` for any other object, and for one
    /// that is missing or damaged. Its length is that of its header. Its hash is not checked again.
    #[must_use]
    pub fn read(&self, id: Oid, limit: u64) -> Option<Vec<u8>> {
        let (pack, offset) = self.find(id)?;
        let idle = self.idle().pop();
        let mut decoder = idle.unwrap_or_else(Decoder::new);
        let content = decoder.read(pack, offset, limit);
        self.idle().push(decoder);
        content
    }

    /// Returns the pack that has an object, and the offset of the object in it.
    fn find(&self, id: Oid) -> Option<(&File, u64)> {
        self.packs.iter().find_map(|pack| {
            let offset = pack.index.find(id).ok().flatten()?;
            Some((&pack.file, offset))
        })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Decoder>> {
        // A panic leaves the list consistent.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pack and its index.
struct Pack {
    index: Index,
    file: File,
}

impl Pack {
    /// Opens the pack of an index; `None` if the index does not have version 2.
    fn open(index: &Path) -> io::Result<Option<Self>> {
        let file = File::open(index.with_extension("pack"))?;
        Ok(Index::open(index)?.map(|index| Self { index, file }))
    }
}

/// A decompressor with its input, for one blob after the other.
struct Decoder {
    state: Decompress,
    input: Vec<u8>,
}

impl Decoder {
    fn new() -> Self {
        Self {
            state: Decompress::new(true),
            input: vec![0; INPUT],
        }
    }

    /// Reads the blob at an offset of a pack.
    fn read(&mut self, pack: &File, offset: u64, limit: u64) -> Option<Vec<u8>> {
        let mut length = pack.read_at(&mut self.input, offset).ok()?;
        let mut bytes = self.input.get(..length)?.iter();
        let header = Header::read(offset, || {
            let byte = bytes.next().copied();
            byte.ok_or_else(|| FormatError::Truncated.into())
        });
        let Header { entry_type, size } = header.ok()?;
        if entry_type != EntryType::Whole(ObjectType::Blob) || size > limit {
            return None;
        }
        let size = usize::try_from(size).ok()?;
        let mut content = Vec::with_capacity(size);
        let mut compressed = bytes.as_slice();
        let mut at = offset;
        self.state.reset(true);
        loop {
            let before = self.state.total_in();
            let status = self
                .state
                .decompress_vec(compressed, &mut content, FlushDecompress::None)
                .ok()?;
            if status == Status::StreamEnd {
                return (content.len() == size).then_some(content);
            }
            // Bytes are left only if the content does not end at its size.
            if self.state.total_in() - before != compressed.len() as u64 {
                return None;
            }
            at += length as u64;
            length = pack.read_at(&mut self.input, at).ok()?;
            if length == 0 {
                return None;
            }
            compressed = self.input.get(..length)?;
        }
    }
}
