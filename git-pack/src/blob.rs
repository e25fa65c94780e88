//! Reads one blob of the packs in a directory as a stream, if it is stored undeltified. Large files usually are: Git deltifies nothing
//! above 512 MiB, and media and archives have no similar version. libgit2 would hold the whole blob in memory.
//!
//! `lookup` finds it. Damage gives an error or other bytes of a wrong length, never a panic.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use flate2::bufread::ZlibDecoder;
use git2::{ObjectType, Oid};

use crate::entry::{EntryType, Header};
use crate::error::PackError;
use crate::lookup::{Index, indexes};

/// Bytes that are read from the pack at once.
const BUFFER: usize = 64 << 10;

/// A blob that is being read.
pub struct BlobStream {
    inflated: ZlibDecoder<BufReader<File>>,
    size: u64,
    /// Bytes that are still expected.
    remaining: u64,
}

impl BlobStream {
    /// Returns the size of the blob in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }
}

impl Read for BlobStream {
    /// Fails if the blob ends too early or too late.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inflated.read(buffer)?;
        let is_end = read == 0 && !buffer.is_empty();
        match self.remaining.checked_sub(read as u64) {
            Some(remaining) if !is_end || remaining == 0 => self.remaining = remaining,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(read)
    }
}

/// Opens a blob in the packs of a directory; `None` if none of them has it undeltified. Its hash is not checked again.
///
/// # Errors
/// The directory, an index or the pack cannot be read.
pub fn open_blob(packs: &Path, id: Oid) -> io::Result<Option<BlobStream>> {
    for path in indexes(packs)? {
        if let Some(index) = Index::open(&path)?
            && let Some(offset) = index.find(id)?
        {
            return open_at(&path.with_extension("pack"), offset);
        }
    }
    Ok(None)
}

/// Opens the entry at an offset of a pack.
fn open_at(pack: &Path, offset: u64) -> io::Result<Option<BlobStream>> {
    let mut file = File::open(pack)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut input = BufReader::with_capacity(BUFFER, file);
    let header = Header::read(offset, || {
        let mut byte = [0];
        input.read_exact(&mut byte)?;
        Ok::<_, PackError>(byte[0])
    });
    let Header { entry_type, size } = header.map_err(io::Error::other)?;
    if entry_type != EntryType::Whole(ObjectType::Blob) {
        return Ok(None);
    }
    Ok(Some(BlobStream {
        inflated: ZlibDecoder::new(input),
        size,
        remaining: size,
    }))
}
