//! One compressed stream after the other, from the network or from the pack on disk.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use flate2::{Decompress, FlushDecompress, Status};
use tokio_util::sync::CancellationToken;

use super::check;
use super::error::{Flaw, PackError, unpacked_too_large};

/// Bytes that are unpacked at once.
const CHUNK: usize = 64 << 10;

/// Compressed bytes.
pub(super) trait Input {
    /// What lies ready: at least one byte.
    fn peek(&mut self) -> Result<&[u8], PackError>;
    /// Takes that much of it.
    fn take(&mut self, bytes: usize) -> Result<(), PackError>;
}

/// Inflates, in memory that is made once.
pub(super) struct Inflater<'a> {
    state: Decompress,
    chunk: Vec<u8>,
    stop: &'a CancellationToken,
    /// Bytes that may still be unpacked, of all that are.
    budget: u64,
    limit: u64,
}

impl<'a> Inflater<'a> {
    /// An inflater for `budget` bytes, what is left of `limit`.
    pub(super) fn new(budget: u64, limit: u64, stop: &'a CancellationToken) -> Self {
        Self {
            state: Decompress::new(true),
            chunk: vec![0; CHUNK],
            stop,
            budget,
            limit,
        }
    }

    /// Bytes that may still be unpacked.
    pub(super) const fn budget(&self) -> u64 {
        self.budget
    }

    /// Counts bytes that are made in another way.
    pub(super) fn spend(&mut self, bytes: u64) -> Result<(), PackError> {
        let left = self.budget.checked_sub(bytes);
        self.budget = left.ok_or_else(|| unpacked_too_large(self.limit))?;
        Ok(())
    }

    /// Unpacks one stream, which must have exactly `size` bytes. `at` is where its entry is, for errors.
    pub(super) fn inflate(
        &mut self,
        input: &mut impl Input,
        at: u64,
        size: u64,
        mut each: impl FnMut(&[u8]) -> Result<(), PackError>,
    ) -> Result<(), PackError> {
        self.spend(size)?;
        self.state.reset(true);
        let mut left = size;
        loop {
            check(self.stop)?;
            let ready = input.peek()?;
            let (taken, made) = (self.state.total_in(), self.state.total_out());
            let status = self
                .state
                .decompress(ready, &mut self.chunk, FlushDecompress::None)
                .map_err(|_| Flaw::Compression(at))?;
            let taken = usize::try_from(self.state.total_in() - taken).unwrap_or(usize::MAX);
            let made = usize::try_from(self.state.total_out() - made).unwrap_or(usize::MAX);
            input.take(taken)?;
            left = left.checked_sub(made as u64).ok_or(Flaw::Size(at))?;
            each(self.chunk.get(..made).unwrap_or_default())?;
            if status == Status::StreamEnd {
                break;
            }
            if taken == 0 && made == 0 {
                return Err(Flaw::Compression(at).into());
            }
        }
        if left == 0 {
            Ok(())
        } else {
            Err(Flaw::Size(at).into())
        }
    }
}

/// Bytes of the pack on disk.
pub(super) struct Stored<'a> {
    file: &'a File,
    at: u64,
    end: u64,
    ready: Vec<u8>,
    taken: usize,
}

impl<'a> Stored<'a> {
    /// From byte `at` to byte `end`.
    pub(super) const fn new(file: &'a File, at: u64, end: u64) -> Self {
        Self {
            file,
            at,
            end,
            ready: Vec::new(),
            taken: 0,
        }
    }

    /// One byte.
    pub(super) fn byte(&mut self) -> Result<u8, PackError> {
        let byte = self.peek()?.first().copied().ok_or(Flaw::Short)?;
        self.take(1)?;
        Ok(byte)
    }
}

impl Input for Stored<'_> {
    fn peek(&mut self) -> Result<&[u8], PackError> {
        if self.taken == self.ready.len() {
            let length = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(CHUNK);
            if length == 0 {
                return Err(Flaw::Short.into());
            }
            self.ready.resize(length.min(CHUNK), 0);
            self.file.read_exact_at(&mut self.ready, self.at)?;
            self.at += self.ready.len() as u64;
            self.taken = 0;
        }
        Ok(self.ready.get(self.taken..).unwrap_or_default())
    }

    fn take(&mut self, bytes: usize) -> Result<(), PackError> {
        self.taken = self.taken.saturating_add(bytes).min(self.ready.len());
        Ok(())
    }
}
