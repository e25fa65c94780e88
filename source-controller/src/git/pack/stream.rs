//! The bytes of a pack on their way from the network to a temporary file: read ahead freely, hashed and written once.

use std::fs::File;
use std::io::Write as _;

use bytes::Bytes;
use flate2::Crc;
use tokio_util::sync::CancellationToken;

use super::error::{Flaw, PackError};
use super::hash::FileHash;
use super::inflate::Input;
use super::{Pieces, check};

/// The bytes as they come.
pub(super) struct Stream<'a> {
    pieces: &'a mut dyn Pieces,
    file: &'a File,
    stop: &'a CancellationToken,
    /// What came last.
    piece: Bytes,
    /// How much of it was taken.
    taken: usize,
    /// How much of it was hashed and written.
    kept: usize,
    /// Bytes taken in all.
    position: u64,
    hash: FileHash,
    entry: Crc,
}

impl<'a> Stream<'a> {
    pub(super) fn new(pieces: &'a mut dyn Pieces, file: &'a File, stop: &'a CancellationToken) -> Self {
        Self {
            pieces,
            file,
            stop,
            piece: Bytes::new(),
            taken: 0,
            kept: 0,
            position: 0,
            hash: FileHash::new(),
            entry: Crc::new(),
        }
    }

    /// How many bytes were taken.
    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    /// One byte.
    pub(super) fn byte(&mut self) -> Result<u8, PackError> {
        let byte = self.peek()?.first().copied().ok_or(Flaw::Short)?;
        self.take(1)?;
        Ok(byte)
    }

    /// Begins the checksum of an entry.
    pub(super) fn begin_entry(&mut self) {
        self.entry.reset();
    }

    /// The checksum of everything since the entry began.
    pub(super) fn entry_sum(&self) -> u32 {
        self.entry.sum()
    }

    /// Takes the checksum of the whole, which is the end: exactly that must follow. Gives it.
    pub(super) fn finish(mut self, objects: u32) -> Result<[u8; 20], PackError> {
        self.keep()?;
        let hash = std::mem::replace(&mut self.hash, FileHash::new()).finish();
        let mut sum = [0; 20];
        for place in &mut sum {
            *place = self.byte()?;
        }
        // More of it may be on the way.
        while self.taken == self.piece.len() {
            self.keep()?;
            match self.pieces.next()? {
                Some(piece) => (self.piece, self.taken, self.kept) = (piece, 0, 0),
                None if sum == hash => return Ok(sum),
                None => return Err(Flaw::Checksum.into()),
            }
        }
        Err(Flaw::Long(objects).into())
    }

    /// Hashes and writes what was taken.
    fn keep(&mut self) -> Result<(), PackError> {
        let taken = self.piece.get(self.kept..self.taken).unwrap_or_default();
        self.hash.update(taken);
        self.file.write_all(taken)?;
        self.kept = self.taken;
        Ok(())
    }
}

impl Input for Stream<'_> {
    fn peek(&mut self) -> Result<&[u8], PackError> {
        while self.taken == self.piece.len() {
            check(self.stop)?;
            self.keep()?;
            self.piece = self.pieces.next()?.ok_or(Flaw::Short)?;
            (self.taken, self.kept) = (0, 0);
        }
        Ok(self.piece.get(self.taken..).unwrap_or_default())
    }

    fn take(&mut self, bytes: usize) -> Result<(), PackError> {
        let end = self.taken.saturating_add(bytes).min(self.piece.len());
        self.entry
            .update(self.piece.get(self.taken..end).unwrap_or_default());
        self.position += (end - self.taken) as u64;
        self.taken = end;
        Ok(())
    }
}
