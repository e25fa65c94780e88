//! The index of an artifact: which segments its file contains, in their order. Pure.
//!
//! It stands beside the artifact and is read as foreign bytes, because a disk may damage it: a limit on its size, one encoding of each
//! index, and a digest over all of it. It names the digest of its artifact, so that it fits no other file. Without a valid index
//! everything is compressed again.
//!
//! ```text
//! "sluice segments 3\n" | length of the artifact's digest: u8 | digest as text
//!   | number of records: u32 | records | number of segments: u32 | segments | number of checkpoints: u32 | checkpoints: 104 bytes each
//!   | digest of compressor and rules of the segments: 32 bytes | digest of the rules of the directories: 32 bytes
//!   | number of entries: u32 | entries | number of directories: u32 | directories | SHA-256 of all this
//! record: key: 32 bytes | length, unpacked, crc, stored crc, notable files, first notable file: u32 each
//! segment: number of its records, number of its entries: u32 each
//! entry: 0 directory, 1 file, 2 executable: u8 | bytes of its path that the one before it has: u16 | length of the rest: u16 | rest
//!   | of a file: size: u64 | length of the name of its content: u8 | name
//! directory: SHA-256 of path and tree | first entry, entries, items, directories below it: u32 each | has an ignore file: u8
//! ```
//! Numbers are big-endian. The offset of a segment is the sum of the lengths before it. Segments, entries and directories may be
//! missing: then the next build lists the whole tree.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use sluice_api::digest::Digest;

use super::digest::Checkpoint;
use super::directory::{
    Directories, Directory, can_store, encode_directories, put_number, read_directories, take,
};
use super::listing::Listing;
use super::segment::{Key, MAX, Notable, format};

const MAGIC: &[u8] = b"sluice segments 3\n";
/// Length of a record.
const RECORD_BYTES: usize = 32 + 6 * 4;
/// Length of the numbers of a segment.
const SEGMENT_BYTES: usize = 2 * 4;
/// Length of the SHA-256 at the end.
const SUM_BYTES: usize = 32;
/// Maximum length of an index: besides entries and directories of maximum size 10,000 segments, which are about 5 GB of files.
pub const MAX_INDEX_BYTES: u64 = 16 << 20;

/// One segment of an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Names the content and the compressor.
    pub(super) key: Key,
    /// Number of compressed bytes.
    pub(super) length: u32,
    /// Number of bytes of the tar.
    pub(super) unpacked: u32,
    /// CRC-32 of the bytes of the tar.
    pub(super) crc: u32,
    /// CRC-32 of the compressed bytes, which tells whether the file still has them.
    pub(super) stored_crc: u32,
    /// The notable files.
    pub(super) notable: Notable,
}

/// Why bytes are not an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// More bytes than [`MAX_INDEX_BYTES`].
    #[error("it is too large")]
    TooLarge,
    /// Another format, or another version of it.
    #[error("it has another format")]
    Format,
    /// The digest at the end differs: the file is damaged.
    #[error("it is damaged")]
    Damaged,
}

/// The segments of an artifact, and its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    artifact: Digest,
    records: Vec<Record>,
    /// Number of records and of entries of each segment; empty without a listing.
    segments: Vec<(u32, u32)>,
    /// The states of the artifact's digest on the way.
    checkpoints: Vec<Checkpoint>,
    /// Digest of compressor and rules: with others, a segment of the same entries has other bytes.
    format: [u8; 32],
    /// Digest of what decided which entries of the directories were kept.
    rules: [u8; 32],
    listing: Arc<Listing>,
    directories: Arc<Vec<Directory>>,
}

impl Index {
    /// Creates an index; `segments` has the numbers of records and of entries of each segment.
    pub(super) fn new(
        artifact: Digest,
        records: Vec<Record>,
        segments: Vec<(u32, u32)>,
        listing: Listing,
    ) -> Self {
        let segments = if listing.is_partial() {
            Vec::new()
        } else {
            segments
        };
        let listing = if listing.is_partial() {
            Listing::default()
        } else {
            listing
        };
        Self {
            artifact,
            records,
            segments,
            checkpoints: Vec::new(),
            format: format(),
            rules: [0; 32],
            listing: Arc::new(listing),
            directories: Arc::default(),
        }
    }

    /// Adds the checkpoints of the digest of the artifact.
    #[must_use]
    pub(super) fn with_checkpoints(self, checkpoints: Vec<Checkpoint>) -> Self {
        Self { checkpoints, ..self }
    }

    /// Returns the bytes of an index without its checkpoints, for an index whose place others may write: who chooses a checkpoint chooses
    /// the digest of the next artifact. Bytes that are no index stay as they are.
    #[must_use]
    pub fn strip_checkpoints(bytes: Vec<u8>) -> Vec<u8> {
        Self::parse(&bytes).map_or(bytes, |index| index.with_checkpoints(Vec::new()).encode())
    }

    /// Returns the checkpoints of the digest of the artifact.
    pub(super) fn checkpoints(&self) -> &[Checkpoint] {
        &self.checkpoints
    }

    /// Adds the directories whose entries the listing has, and the digest of what decided about them.
    #[must_use]
    pub fn with_directories(mut self, rules: [u8; 32], directories: Vec<Directory>) -> Self {
        if !self.segments.is_empty() && can_store(&directories) {
            (self.rules, self.directories) = (rules, Arc::new(directories));
        }
        self
    }

    /// Returns the entries of the artifact; empty if there were too many.
    #[must_use]
    pub fn listing(&self) -> Arc<Listing> {
        Arc::clone(&self.listing)
    }

    /// Returns the directories whose entries the listing has.
    #[must_use]
    pub fn directories(&self) -> Directories {
        Directories::new(&self.directories)
    }

    /// Returns the digest of what decided about the entries of the directories.
    #[must_use]
    pub const fn rules(&self) -> &[u8; 32] {
        &self.rules
    }

    /// Returns the digest of the artifact that this index belongs to.
    #[must_use]
    pub const fn artifact(&self) -> &Digest {
        &self.artifact
    }

    /// Returns the bytes that [`Index::parse`] reads.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let digest = self.artifact.to_string();
        let mut bytes = MAGIC.to_vec();
        bytes.push(u8::try_from(digest.len()).unwrap_or_default());
        bytes.extend_from_slice(digest.as_bytes());
        put_number(&mut bytes, self.records.len());
        for record in &self.records {
            record.encode(&mut bytes);
        }
        put_number(&mut bytes, self.segments.len());
        for (records, entries) in &self.segments {
            bytes.extend_from_slice(&records.to_be_bytes());
            bytes.extend_from_slice(&entries.to_be_bytes());
        }
        put_number(&mut bytes, self.checkpoints.len());
        bytes.extend_from_slice(self.checkpoints.as_flattened());
        bytes.extend_from_slice(&self.format);
        bytes.extend_from_slice(&self.rules);
        self.listing.encode(&mut bytes);
        encode_directories(&self.directories, &mut bytes);
        let sum: [u8; SUM_BYTES] = Sha256::digest(&bytes).into();
        bytes.extend_from_slice(&sum);
        bytes
    }

    /// Parses an index.
    ///
    /// # Errors
    /// The bytes are none, or are damaged.
    pub fn parse(bytes: &[u8]) -> Result<Self, IndexError> {
        if bytes.len() as u64 > MAX_INDEX_BYTES {
            return Err(IndexError::TooLarge);
        }
        let (content, sum) = bytes.split_last_chunk::<SUM_BYTES>().ok_or(IndexError::Format)?;
        let rest = content.strip_prefix(MAGIC).ok_or(IndexError::Format)?;
        if <[u8; SUM_BYTES]>::from(Sha256::digest(content)) != *sum {
            return Err(IndexError::Damaged);
        }
        read(rest).ok_or(IndexError::Format)
    }

    /// Returns the records, the numbers of records and of entries of each segment, and the entries. There are no segments if another
    /// version compressed them: only their keys say then which of them are the same.
    pub(super) fn into_parts(self) -> (Vec<Record>, Vec<(u32, u32)>, Arc<Listing>) {
        let is_current = self.format == format();
        let segments = if is_current { self.segments } else { Vec::new() };
        (self.records, segments, self.listing)
    }
}

/// Reads everything between magic and digest.
fn read(rest: &[u8]) -> Option<Index> {
    let (length, rest) = rest.split_first()?;
    let (digest, rest) = rest.split_at_checked(usize::from(*length))?;
    let artifact = std::str::from_utf8(digest).ok()?.parse::<Digest>().ok()?;
    let (records, rest) = split_list(rest, RECORD_BYTES)?;
    let records = records.chunks_exact(RECORD_BYTES).map(Record::read);
    let records: Vec<_> = records.collect::<Option<_>>()?;
    let (segments, rest) = split_list(rest, SEGMENT_BYTES)?;
    let segments = segments.chunks_exact(SEGMENT_BYTES).map(read_segment);
    let segments: Vec<_> = segments.collect::<Option<_>>()?;
    let (checkpoints, mut rest) = split_list(rest, size_of::<Checkpoint>())?;
    let format = take(&mut rest)?;
    let rules = take(&mut rest)?;
    let listing = Listing::read(&mut rest)?;
    let directories = read_directories(&mut rest, listing.len())?;
    // Without a listing, there are neither segments nor directories.
    let is_listed = !segments.is_empty() || (listing.len() == 0 && directories.is_empty());
    let sum =
        |number: fn(&(u32, u32)) -> u32| segments.iter().map(|both| u64::from(number(both))).sum::<u64>();
    let is_covered = segments.is_empty()
        || (sum(|both| both.0) == records.len() as u64 && sum(|both| both.1) == listing.len() as u64);
    // The parser of digests may accept other spellings, which are other bytes.
    let is_whole = rest.is_empty() && artifact.to_string().as_bytes() == digest;
    let index = Index {
        artifact,
        records,
        segments,
        checkpoints: checkpoints.as_chunks().0.to_vec(),
        format,
        rules,
        listing: Arc::new(listing),
        directories: Arc::new(directories),
    };
    (is_whole && is_listed && is_covered).then_some(index)
}

/// Splits off a list: its number of items, and the items of this length.
fn split_list(bytes: &[u8], item: usize) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first_chunk()?;
    let count = usize::try_from(u32::from_be_bytes(*count)).ok()?;
    rest.split_at_checked(count.checked_mul(item)?)
}

/// Reads the numbers of a segment, which has at least one record and one entry.
fn read_segment(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut rest = bytes;
    let records = u32::from_be_bytes(take(&mut rest)?);
    let entries = u32::from_be_bytes(take(&mut rest)?);
    (records > 0 && entries > 0).then_some((records, entries))
}

impl Record {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.key);
        let Notable { count, first } = self.notable;
        for number in [
            self.length,
            self.unpacked,
            self.crc,
            self.stored_crc,
            count,
            first,
        ] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
    }

    /// Reads a record; `None` if no segment is like this.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (key, mut rest) = bytes.split_first_chunk()?;
        let mut number = || {
            let (number, later) = rest.split_first_chunk()?;
            rest = later;
            Some(u32::from_be_bytes(*number))
        };
        let record = Self {
            key: *key,
            length: number()?,
            unpacked: number()?,
            crc: number()?,
            stored_crc: number()?,
            notable: Notable {
                count: number()?,
                first: number()?,
            },
        };
        // A segment that does not compress grows by less than half.
        let is_plausible = (1..=MAX).contains(&u64::from(record.unpacked))
            && record.length > 0
            && u64::from(record.length) <= MAX + MAX / 2;
        is_plausible.then_some(record)
    }
}

#[cfg(test)]
mod tests;
