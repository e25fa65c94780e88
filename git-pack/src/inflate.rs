//! Decompresses zlib streams from the network or from the pack on disk.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use flate2::{Decompress, FlushDecompress, Status};

use crate::check_cancelled;
use crate::error::{FormatError, Limit, PackError};

/// Bytes that are decompressed at once.
const CHUNK: usize = 64 << 10;

/// Compressed bytes.
pub(crate) trait Input {
    /// Returns the available bytes: at least one.
    fn peek(&mut self) -> Result<&[u8], PackError>;
    /// Consumes that many bytes.
    fn consume(&mut self, bytes: usize) -> Result<(), PackError>;
}

/// Decompressor with a reusable buffer.
pub(crate) struct Inflater<'a> {
    state: Decompress,
    chunk: Vec<u8>,
    is_cancelled: &'a dyn Fn() -> bool,
    /// Remaining bytes that may be unpacked.
    budget: u64,
    limit: u64,
}

impl<'a> Inflater<'a> {
    /// Creates an inflater that may unpack `budget` bytes; `limit` is the configured limit, for errors.
    pub(crate) fn new(budget: u64, limit: u64, is_cancelled: &'a dyn Fn() -> bool) -> Self {
        Self {
            state: Decompress::new(true),
            chunk: vec![0; CHUNK],
            is_cancelled,
            budget,
            limit,
        }
    }

    /// Returns the remaining budget in bytes.
    pub(crate) const fn budget(&self) -> u64 {
        self.budget
    }

    /// Charges bytes that are unpacked elsewhere.
    pub(crate) fn charge(&mut self, bytes: u64) -> Result<(), PackError> {
        let remaining = self.budget.checked_sub(bytes);
        self.budget = remaining.ok_or_else(|| Limit::UnpackedBytes.exceeded(self.limit))?;
        Ok(())
    }

    /// Decompresses one stream, which must have exactly `size` bytes. `at` is the offset of its entry, for errors.
    pub(crate) fn inflate(
        &mut self,
        input: &mut impl Input,
        at: u64,
        size: u64,
        mut each: impl FnMut(&[u8]) -> Result<(), PackError>,
    ) -> Result<(), PackError> {
        self.charge(size)?;
        self.state.reset(true);
        let mut remaining = size;
        loop {
            check_cancelled(self.is_cancelled)?;
            let buffer = input.peek()?;
            let (consumed, produced) = (self.state.total_in(), self.state.total_out());
            let status = self
                .state
                .decompress(buffer, &mut self.chunk, FlushDecompress::None)
                .map_err(|_| FormatError::Compression(at))?;
            let consumed = usize::try_from(self.state.total_in() - consumed).unwrap_or(usize::MAX);
            let produced = usize::try_from(self.state.total_out() - produced).unwrap_or(usize::MAX);
            input.consume(consumed)?;
            remaining = remaining
                .checked_sub(produced as u64)
                .ok_or(FormatError::Size(at))?;
            each(self.chunk.get(..produced).unwrap_or_default())?;
            if status == Status::StreamEnd {
                break;
            }
            if consumed == 0 && produced == 0 {
                return Err(FormatError::Compression(at).into());
            }
        }
        if remaining == 0 {
            Ok(())
        } else {
            Err(FormatError::Size(at).into())
        }
    }
}

/// Compressed bytes of the pack on disk.
pub(crate) struct FileInput<'a> {
    file: &'a File,
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    consumed: usize,
}

impl<'a> FileInput<'a> {
    /// Reads from byte `at` to byte `end`.
    pub(crate) const fn new(file: &'a File, at: u64, end: u64) -> Self {
        Self {
            file,
            at,
            end,
            buffer: Vec::new(),
            consumed: 0,
        }
    }

    /// Reads one byte.
    pub(crate) fn byte(&mut self) -> Result<u8, PackError> {
        let byte = self.peek()?.first().copied().ok_or(FormatError::Truncated)?;
        self.consume(1)?;
        Ok(byte)
    }
}

impl Input for FileInput<'_> {
    fn peek(&mut self) -> Result<&[u8], PackError> {
        if self.consumed == self.buffer.len() {
            let length = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(CHUNK);
            if length == 0 {
                return Err(FormatError::Truncated.into());
            }
            self.buffer.resize(length.min(CHUNK), 0);
            self.file.read_exact_at(&mut self.buffer, self.at)?;
            self.at += self.buffer.len() as u64;
            self.consumed = 0;
        }
        Ok(self.buffer.get(self.consumed..).unwrap_or_default())
    }

    fn consume(&mut self, bytes: usize) -> Result<(), PackError> {
        self.consumed = self.consumed.saturating_add(bytes).min(self.buffer.len());
        Ok(())
    }
}
