//! Joins segments into the gzip member: writes them, copied or compressed, in order.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::mem;
use std::sync::OnceLock;

use sluice_api::digest::Digest;
use sluice_runtime::shutdown::Token;

use super::cut::Unchanged;
use super::earlier::Earlier;
use super::header::BLOCK;
use super::index::{Index, Record};
use super::listing::Listing;
use super::member::{Checksum, HEADER, compress_last};
use super::piece::{Buffers, Piece, compress_segment};
use super::segment::{Key, Segment};
use super::{Content, Stopped, Totals};

/// Bytes of a write: shorter pieces are collected, longer ones divided.
const WRITE_BYTES: usize = 128 << 10;
/// The end of a tar.
const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// A stored file that is open for reading.
pub trait StoredFile: Read + Seek + Send {}

impl<T: Read + Seek + Send> StoredFile for T {}

/// A complete archive.
pub struct Written<W> {
    /// The output, flushed.
    pub out: W,
    /// Its summary.
    pub totals: Totals,
    /// Its index; none for an archive of a single segment, where it would save nothing.
    pub index: Option<Index>,
}

/// A member that is being written.
pub(super) struct Member<'a, W, H> {
    parts: Parts<W>,
    /// Gets all bytes that are written.
    hash: H,
    /// The previous artifact, until a part of it turns out to be damaged.
    file: Option<Box<dyn StoredFile>>,
    checksum: Checksum,
    /// Bytes to write next.
    pending: Vec<u8>,
    buffers: Buffers,
    stop: &'a Token,
}

/// The results of a member without its digest.
pub(super) struct Parts<W> {
    out: W,
    size: u64,
    files: u64,
    unpacked: u64,
    copied: u64,
    listed: u64,
    notable: u64,
    first_notable: Option<Vec<u8>>,
    records: Vec<Record>,
    /// Number of records and of entries of each segment.
    segments: Vec<(u32, u32)>,
    listing: Listing,
}

impl<W> Parts<W> {
    fn record_segment(&mut self, pieces: u64, entries: u64) {
        let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        self.segments.push((number(pieces), number(entries)));
    }

    /// Returns the result with the digest of all written bytes.
    pub(super) fn into_written(self, digest: Digest) -> Written<W> {
        let totals = Totals {
            digest: digest.clone(),
            size: self.size,
            files: self.files,
            unpacked: self.unpacked,
            segments: self.records.len() as u64,
            copied: self.copied,
            listed: self.listed,
            notable: self.notable,
            first_notable: self.first_notable,
        };
        let index =
            (self.records.len() > 1).then(|| Index::new(digest, self.records, self.segments, self.listing));
        Written {
            out: self.out,
            totals,
            index,
        }
    }
}

impl<'a, W: Write, H: FnMut(Vec<u8>)> Member<'a, W, H> {
    /// Starts a member.
    pub(super) fn new(out: W, hash: H, file: Option<Box<dyn StoredFile>>, stop: &'a Token) -> Self {
        Self {
            parts: Parts {
                out,
                size: 0,
                files: 0,
                unpacked: 0,
                copied: 0,
                listed: 0,
                notable: 0,
                first_notable: None,
                records: Vec::new(),
                segments: Vec::new(),
                listing: Listing::default(),
            },
            hash,
            file,
            checksum: Checksum::default(),
            pending: HEADER.to_vec(),
            buffers: Buffers::default(),
            stop,
        }
    }

    /// Counts the files of a segment and records its entries; once for each.
    pub(super) fn count<C: Content>(&mut self, segment: &Segment<C>) {
        let parts = &mut self.parts;
        parts.files += segment.files();
        for entry in segment.entries() {
            parts.listing.push(entry);
        }
        let entries = segment.entries().len() as u64;
        parts.listed += entries;
        parts.record_segment(segment.pieces(), entries);
    }

    /// Appends a piece of a segment.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(super) fn append<C: Content>(
        &mut self,
        segment: &Segment<C>,
        record: Record,
        bytes: Vec<u8>,
    ) -> io::Result<()> {
        self.append_record(record, bytes, |position| segment.path(position))
    }

    /// Appends a piece; `path` returns the path of the entry of its segment at a position.
    fn append_record<'p>(
        &mut self,
        record: Record,
        bytes: Vec<u8>,
        path: impl FnOnce(u32) -> Option<&'p [u8]>,
    ) -> io::Result<()> {
        self.put(bytes)?;
        self.checksum.append(record.crc, u64::from(record.unpacked));
        if record.notable.count > 0 {
            if self.parts.notable == 0 {
                self.parts.first_notable = path(record.notable.first).map(<[u8]>::to_vec);
            }
            self.parts.notable += u64::from(record.notable.count);
        }
        self.parts.records.push(record);
        Ok(())
    }

    /// Copies a piece from the previous artifact. If the file no longer has these bytes, compresses the piece again, and all later ones.
    ///
    /// # Errors
    /// The content cannot be read, or the output cannot be written.
    pub(super) fn copy<C: Content>(
        &mut self,
        segment: &Segment<C>,
        piece: u64,
        (offset, record): (u64, Record),
    ) -> Result<(), C::Error> {
        let Some(bytes) = self.read_previous(offset, &record) else {
            return self.compress(segment, Some(piece), &[record.key]);
        };
        self.append(segment, record, bytes)?;
        self.parts.copied += 1;
        Ok(())
    }

    /// As [`Member::copy`], for all pieces of segments whose entries were not listed.
    ///
    /// # Errors
    /// As [`Member::copy`], or the build is cancelled.
    pub(super) fn copy_unchanged<C: Content>(
        &mut self,
        unchanged: &Unchanged<C>,
        earlier: &Earlier,
    ) -> Result<(), C::Error> {
        for number in unchanged.numbers.clone() {
            if self.stop.is_cancelled() {
                return Err(Stopped.into());
            }
            self.copy_segment(number, unchanged, earlier)?;
        }
        Ok(())
    }

    /// Copies one segment of them.
    fn copy_segment<C: Content>(
        &mut self,
        number: usize,
        unchanged: &Unchanged<C>,
        earlier: &Earlier,
    ) -> Result<(), C::Error> {
        let positions = earlier.entries(number);
        let pieces = earlier.pieces(number);
        self.parts.files += self.parts.listing.extend(&earlier.listing, positions.clone());
        self.parts
            .record_segment(pieces.len() as u64, positions.len() as u64);
        for (piece, (offset, record)) in (0..).zip(pieces) {
            let Some(bytes) = self.read_previous(*offset, record) else {
                let segment = unchanged.segment(number, earlier);
                self.compress(&segment, Some(piece), &[record.key])?;
                continue;
            };
            let path = |position: u32| earlier.listing.path(positions.start.checked_add(position)?);
            self.append_record(*record, bytes, path)?;
            self.parts.copied += 1;
        }
        Ok(())
    }

    /// Reads a piece of the previous artifact; `None` if it has been damaged, and from then on.
    fn read_previous(&mut self, offset: u64, record: &Record) -> Option<Vec<u8>> {
        let read = read_stored(self.file.as_mut()?, offset, record);
        let read = read.inspect_err(|error| {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "the previous artifact is damaged: compressing its content again"
            );
        });
        if read.is_err() {
            self.file = None;
        }
        read.ok()
    }

    /// Compresses a segment on this thread; if one piece is `wanted`, only this one. `keys` are those of the pieces.
    ///
    /// # Errors
    /// The content cannot be read, or the output cannot be written.
    pub(super) fn compress<C: Content>(
        &mut self,
        segment: &Segment<C>,
        wanted: Option<u64>,
        keys: &[Key],
    ) -> Result<(), C::Error> {
        let (mut buffers, stop) = (mem::take(&mut self.buffers), self.stop);
        let mut keys = keys.iter();
        let mut emit = |piece: Piece| -> Result<(), C::Error> {
            let key = keys.next().ok_or_else(wrong_number)?;
            self.append(segment, piece.record(*key)?, piece.bytes)?;
            Ok(())
        };
        let compressed = compress_segment(segment, wanted, &mut buffers, stop, &mut emit);
        self.buffers = buffers;
        compressed
    }

    fn put(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        if self.pending.is_empty() {
            self.pending = bytes;
        } else {
            self.pending.extend_from_slice(&bytes);
        }
        if self.pending.len() < WRITE_BYTES {
            return Ok(());
        }
        self.write_pending()
    }

    fn write_pending(&mut self) -> io::Result<()> {
        let bytes = mem::take(&mut self.pending);
        for part in bytes.chunks(WRITE_BYTES) {
            self.parts.out.write_all(part)?;
        }
        self.parts.size += bytes.len() as u64;
        (self.hash)(bytes);
        Ok(())
    }

    /// Ends the tar and the member.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(super) fn finish(mut self) -> io::Result<Parts<W>> {
        let mut bytes = compressed_end()?.to_vec();
        self.checksum.append(crc32fast::hash(&END), END.len() as u64);
        bytes.extend_from_slice(&self.checksum.trailer());
        self.put(bytes)?;
        self.write_pending()?;
        self.parts.out.flush()?;
        self.parts.unpacked = self.checksum.length();
        Ok(self.parts)
    }
}

/// Returns the compressed end of a tar, which every archive has. A compressor takes and clears a quarter of a MiB, as much as for the
/// content of a small repository.
fn compressed_end() -> io::Result<&'static [u8]> {
    static COMPRESSED: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(end) = COMPRESSED.get() {
        return Ok(end);
    }
    let mut end = Vec::new();
    compress_last(&END, &mut end)?;
    Ok(COMPRESSED.get_or_init(|| end))
}

/// Returns the error of a segment that has another number of pieces than keys.
pub(super) fn wrong_number() -> io::Error {
    io::Error::other("a segment has another number of pieces than was listed")
}

/// Reads a piece of a stored file, and checks that it has not changed.
fn read_stored(file: &mut Box<dyn StoredFile>, offset: u64, record: &Record) -> io::Result<Vec<u8>> {
    // At most 3 MiB, as the index was checked.
    let mut bytes = Vec::with_capacity(usize::try_from(record.length).unwrap_or_default());
    file.seek(SeekFrom::Start(offset))?;
    file.take(u64::from(record.length)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == u64::from(record.length) && crc32fast::hash(&bytes) == record.stored_crc {
        Ok(bytes)
    } else {
        Err(io::Error::from(io::ErrorKind::InvalidData))
    }
}
