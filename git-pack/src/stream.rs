//! Copies the bytes of a pack from the network to a temporary file. Each consumed byte is hashed and written once.

use std::fs::File;
use std::io::Write as _;

use bytes::Bytes;
use flate2::Crc;

use crate::check_cancelled;
use crate::error::{FormatError, PackError};
use crate::hash::FileHash;
use crate::inflate::Input;

/// The bytes of a pack as they arrive.
pub(crate) type Chunks<'a> = dyn Iterator<Item = Result<Bytes, PackError>> + 'a;

/// The incoming bytes.
pub(crate) struct PackStream<'a> {
    chunks: &'a mut Chunks<'a>,
    file: &'a File,
    is_cancelled: &'a dyn Fn() -> bool,
    /// The last chunk.
    chunk: Bytes,
    /// Consumed bytes of the chunk.
    consumed: usize,
    /// Hashed and written bytes of the chunk.
    written: usize,
    /// Total number of consumed bytes.
    position: u64,
    hash: FileHash,
    crc: Crc,
}

impl<'a> PackStream<'a> {
    pub(crate) fn new(
        chunks: &'a mut Chunks<'a>,
        file: &'a File,
        is_cancelled: &'a dyn Fn() -> bool,
    ) -> Self {
        Self {
            chunks,
            file,
            is_cancelled,
            chunk: Bytes::new(),
            consumed: 0,
            written: 0,
            position: 0,
            hash: FileHash::new(),
            crc: Crc::new(),
        }
    }

    /// Returns the number of consumed bytes.
    pub(crate) const fn position(&self) -> u64 {
        self.position
    }

    /// Reads one byte.
    pub(crate) fn byte(&mut self) -> Result<u8, PackError> {
        let byte = self.peek()?.first().copied().ok_or(FormatError::Truncated)?;
        self.consume(1)?;
        Ok(byte)
    }

    /// Starts the checksum of an entry.
    pub(crate) fn begin_entry(&mut self) {
        self.crc.reset();
    }

    /// Returns the checksum of the bytes since the start of the entry.
    pub(crate) fn entry_crc(&self) -> u32 {
        self.crc.sum()
    }

    /// Reads and verifies the checksum at the end of the pack, after which no byte may follow. Returns it.
    pub(crate) fn finish(mut self, objects: u32) -> Result<[u8; 20], PackError> {
        self.flush()?;
        let hash = std::mem::replace(&mut self.hash, FileHash::new()).finish();
        let mut checksum = [0; 20];
        for byte_slot in &mut checksum {
            *byte_slot = self.byte()?;
        }
        // More bytes may be in flight.
        while self.consumed == self.chunk.len() {
            self.flush()?;
            match self.chunks.next().transpose()? {
                Some(chunk) => (self.chunk, self.consumed, self.written) = (chunk, 0, 0),
                None if checksum == hash => return Ok(checksum),
                None => return Err(FormatError::Checksum.into()),
            }
        }
        Err(FormatError::TrailingBytes(objects).into())
    }

    /// Hashes and writes the consumed bytes.
    fn flush(&mut self) -> Result<(), PackError> {
        let consumed = self.chunk.get(self.written..self.consumed).unwrap_or_default();
        self.hash.update(consumed);
        self.file.write_all(consumed)?;
        self.written = self.consumed;
        Ok(())
    }
}

impl Input for PackStream<'_> {
    fn peek(&mut self) -> Result<&[u8], PackError> {
        while self.consumed == self.chunk.len() {
            check_cancelled(self.is_cancelled)?;
            self.flush()?;
            self.chunk = self.chunks.next().ok_or(FormatError::Truncated)??;
            (self.consumed, self.written) = (0, 0);
        }
        Ok(self.chunk.get(self.consumed..).unwrap_or_default())
    }

    fn consume(&mut self, bytes: usize) -> Result<(), PackError> {
        let end = self.consumed.saturating_add(bytes).min(self.chunk.len());
        self.crc
            .update(self.chunk.get(self.consumed..end).unwrap_or_default());
        self.position += (end - self.consumed) as u64;
        self.consumed = end;
        Ok(())
    }
}
