//! Joins segments into the gzip member: writes them, copied or compressed, in order.

use std::io::{self, Read, Seek, SeekFrom};
use std::mem;
use std::sync::OnceLock;

use sluice_api::digest::Digest;
use sluice_runtime::shutdown::Token;

use super::buffer::Buffer;
use super::cut::Unchanged;
use super::digest::Checkpoint;
use super::earlier::Earlier;
use super::header::BLOCK;
use super::index::{Index, Record};
use super::listing::Listing;
use super::member::{Checksum, HEADER, compress_last};
use super::piece::{Buffers, Piece, compress_segment};
use super::segment::{Key, Segment};
use super::{Content, Stopped, Totals};

/// Bytes of a write: shorter pieces are collected, longer ones divided.
pub(super) const WRITE_BYTES: usize = 128 << 10;
/// The end of a tar.
const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// A stored file that is open for reading.
pub trait StoredFile: Read + Seek + Send {}

impl<T: Read + Seek + Send> StoredFile for T {}

/// The previous artifact, open for reading.
struct PreviousFile {
    file: Box<dyn StoredFile>,
    /// Where the last piece ended. Most pieces begin there, and need no seek.
    position: Option<u64>,
}

impl PreviousFile {
    const fn new(file: Box<dyn StoredFile>) -> Self {
        Self { file, position: None }
    }

    /// Reads a piece, and checks that it has not changed. After an error no piece can be read.
    fn read_piece(&mut self, offset: u64, record: &Record, piece: &mut [u8]) -> io::Result<()> {
        if self.position != Some(offset) {
            self.file.seek(SeekFrom::Start(offset))?;
        }
        self.file.read_exact(piece)?;
        self.position = Some(offset + piece.len() as u64);
        if crc32fast::hash(piece) == record.stored_crc {
            Ok(())
        } else {
            Err(io::Error::from(io::ErrorKind::InvalidData))
        }
    }
}

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
pub(super) struct Member<'a, S> {
    parts: Parts,
    /// Writes and hashes a buffer. Returns an empty one for the next bytes.
    sink: S,
    /// The previous artifact, until a part of it turns out to be damaged.
    file: Option<PreviousFile>,
    /// Whether the previous artifact begins with all bytes so far.
    is_unchanged: bool,
    checksum: Checksum,
    /// Bytes to write next.
    pending: Buffer,
    buffers: Buffers,
    stop: &'a Token,
}

/// The results of a member without its output and digest.
pub(super) struct Parts {
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

impl Parts {
    fn record_segment(&mut self, pieces: u64, entries: u64) {
        let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        self.segments.push((number(pieces), number(entries)));
    }

    /// Returns the result with the output, the digest of all its bytes, and the checkpoints of the digest.
    pub(super) fn into_written<W>(
        self,
        out: W,
        (digest, checkpoints): (Digest, Vec<Checkpoint>),
    ) -> Written<W> {
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
        let index = (self.records.len() > 1).then(|| {
            let index = Index::new(digest, self.records, self.segments, self.listing);
            index.with_checkpoints(checkpoints)
        });
        Written { out, totals, index }
    }
}

impl<'a, S: FnMut(Buffer) -> io::Result<Buffer>> Member<'a, S> {
    /// Starts a member.
    pub(super) fn new(sink: S, file: Option<Box<dyn StoredFile>>, stop: &'a Token) -> Self {
        let mut pending = Buffer::default();
        pending.append(&HEADER);
        Self {
            parts: Parts {
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
            sink,
            is_unchanged: file.is_some(),
            file: file.map(PreviousFile::new),
            checksum: Checksum::default(),
            pending,
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
        bytes: &[u8],
    ) -> io::Result<()> {
        self.make_room(bytes.len())?;
        self.is_unchanged = false;
        self.pending.append(bytes);
        self.record_piece(record, |position| segment.path(position))
    }

    /// Records a piece that is pending; `path` returns the path of the entry of its segment at a position.
    fn record_piece<'p>(
        &mut self,
        record: Record,
        path: impl FnOnce(u32) -> Option<&'p [u8]>,
    ) -> io::Result<()> {
        self.checksum.append(record.crc, u64::from(record.unpacked));
        if record.notable.count > 0 {
            if self.parts.notable == 0 {
                self.parts.first_notable = path(record.notable.first).map(<[u8]>::to_vec);
            }
            self.parts.notable += u64::from(record.notable.count);
        }
        self.parts.records.push(record);
        if self.pending.len() < WRITE_BYTES {
            return Ok(());
        }
        self.write_pending()
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
        if !self.read_previous(offset, &record)? {
            return self.compress(segment, Some(piece), &[record.key]);
        }
        self.record_piece(record, |position| segment.path(position))?;
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
            if !self.read_previous(*offset, record)? {
                let segment = unchanged.segment(number, earlier);
                self.compress(&segment, Some(piece), &[record.key])?;
                continue;
            }
            let path = |position: u32| earlier.listing.path(positions.start.checked_add(position)?);
            self.record_piece(*record, path)?;
            self.parts.copied += 1;
        }
        Ok(())
    }

    /// Reads a piece of the previous artifact behind what is pending. Returns `false` if it has been damaged, and from then on.
    ///
    /// # Errors
    /// The output cannot be written.
    fn read_previous(&mut self, offset: u64, record: &Record) -> io::Result<bool> {
        // At most 3 MiB, as the index was checked.
        let length = usize::try_from(record.length).unwrap_or_default();
        self.make_room(length)?;
        let Some(file) = &mut self.file else {
            return Ok(false);
        };
        let read = |piece: &mut [u8]| file.read_piece(offset, record, piece);
        let position = self.parts.size + self.pending.len() as u64;
        let Err(error) = self.pending.append_with(length, read) else {
            self.is_unchanged &= offset == position;
            return Ok(true);
        };
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the previous artifact is damaged: compressing its content again"
        );
        self.file = None;
        Ok(false)
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
            self.append(segment, piece.record(*key)?, &piece.bytes)?;
            Ok(())
        };
        let compressed = compress_segment(segment, wanted, &mut buffers, stop, &mut emit);
        self.buffers = buffers;
        compressed
    }

    /// Writes what is pending, unless there is room for so many bytes behind it.
    fn make_room(&mut self, length: usize) -> io::Result<()> {
        if self.pending.is_empty() || self.pending.has_room(length) {
            return Ok(());
        }
        self.write_pending()
    }

    fn write_pending(&mut self) -> io::Result<()> {
        self.parts.size += self.pending.len() as u64;
        self.pending.is_unchanged = self.is_unchanged;
        self.pending = (self.sink)(mem::take(&mut self.pending))?;
        Ok(())
    }

    /// Ends the tar and the member.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(super) fn finish(mut self) -> io::Result<Parts> {
        self.is_unchanged = false;
        self.pending.append(compressed_end()?);
        self.checksum.append(crc32fast::hash(&END), END.len() as u64);
        self.pending.append(&self.checksum.trailer());
        self.write_pending()?;
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
