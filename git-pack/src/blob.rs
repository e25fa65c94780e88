//! Reads one blob of the packs in a directory as a stream, if it is stored undeltified. Large files usually are: Git deltifies nothing
//! above 512 MiB, and media and archives have no similar version. libgit2 would hold the whole blob in memory.
//!
//! The index is read at the few places that the search needs. Damage gives an error or other bytes of a wrong length, never a panic.

use std::cmp::Ordering;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use flate2::bufread::ZlibDecoder;
use git2::{ObjectType, Oid};

use crate::entry::{EntryType, Header};
use crate::error::PackError;

/// Signature and version of an index.
const INDEX_MAGIC: [u8; 8] = *b"\xfftOc\0\0\0\x02";
/// Offset of the names: behind the signature and 256 counts.
const NAMES: u64 = 8 + 256 * 4;
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
    for entry in fs::read_dir(packs)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "idx") {
            continue;
        }
        if let Some(offset) = find(&File::open(&path)?, id.as_bytes())? {
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

/// Returns the offset of an object in the pack of this index.
fn find(index: &File, id: &[u8]) -> io::Result<Option<u64>> {
    if read_at::<8>(index, 0)? != INDEX_MAGIC {
        return Ok(None);
    }
    let count = |first: u64| read_number(index, 8 + 4 * first);
    let first = u64::from(id.first().copied().unwrap_or_default());
    let total = count(255)?;
    let mut low = match first {
        0 => 0,
        first => count(first - 1)?,
    };
    let mut high = count(first)?;
    while low < high {
        let middle = low + (high - low) / 2;
        match read_at::<20>(index, NAMES + 20 * middle)?.as_slice().cmp(id) {
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
            Ordering::Equal => return offset(index, total, middle).map(Some),
        }
    }
    Ok(None)
}

/// Returns the offset of the object at this position of an index of `total` objects.
fn offset(index: &File, total: u64, position: u64) -> io::Result<u64> {
    // Names of 20 bytes and checksums of four bytes precede the offsets.
    let offsets = NAMES + 24 * total;
    let offset = read_number(index, offsets + 4 * position)?;
    let is_large = offset >= 1 << 31;
    if !is_large {
        return Ok(offset);
    }
    let large = read_at(index, offsets + 4 * total + 8 * (offset - (1 << 31)))?;
    Ok(u64::from_be_bytes(large))
}

fn read_number(file: &File, at: u64) -> io::Result<u64> {
    read_at(file, at).map(|number| u64::from(u32::from_be_bytes(number)))
}

fn read_at<const N: usize>(file: &File, at: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}
