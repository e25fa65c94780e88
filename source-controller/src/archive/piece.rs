//! Compresses one segment into its pieces.

use std::io;
use std::sync::Mutex;

use sluice_runtime::shutdown::Token;
use sluice_runtime::sync::lock;

use super::Content;
use super::index::Record;
use super::member::compress;
use super::segment::{Key, MAX_BYTES, Notable, Segment};

/// Memory that is used again for each piece: at most [`MAX_BYTES`] each, and a little more for what does not compress.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    raw: Vec<u8>,
    compressed: Vec<u8>,
}

/// The unused buffers of all builds with several threads. A later build takes them, so that the memory does not depend on when the
/// allocator returns what is free. The last build that ends frees them.
#[derive(Debug, Default)]
pub(super) struct BufferPool {
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    builds: usize,
    unused: Vec<Buffers>,
}

/// The part of one build in the pool.
pub(super) struct PoolUser<'a>(&'a BufferPool);

impl BufferPool {
    /// Returns the part of a build that begins.
    pub(super) fn enter(&self) -> PoolUser<'_> {
        lock(&self.state).builds += 1;
        PoolUser(self)
    }

    /// Returns the number of builds and of unused buffers.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = lock(&self.state);
        (state.builds, state.unused.len())
    }
}

impl PoolUser<'_> {
    /// Runs `work` with buffers of the pool, or with new ones if there are none.
    pub(super) fn with_buffers<T>(&self, work: impl FnOnce(&mut Buffers) -> T) -> T {
        let mut buffers = lock(&self.0.state).unused.pop().unwrap_or_default();
        let result = work(&mut buffers);
        lock(&self.0.state).unused.push(buffers);
        result
    }
}

impl Drop for PoolUser<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.builds -= 1;
        if state.builds == 0 {
            state.unused = Vec::new();
        }
    }
}

/// A compressed piece.
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    unpacked: u32,
    crc: u32,
    stored_crc: u32,
    notable: Notable,
}

impl Piece {
    fn compress(buffers: &mut Buffers, notable: Notable) -> io::Result<Self> {
        let Buffers { raw, compressed } = buffers;
        compress(raw, compressed)?;
        Ok(Self {
            bytes: compressed.clone(),
            unpacked: length(raw)?,
            crc: crc32fast::hash(raw),
            stored_crc: crc32fast::hash(compressed),
            notable,
        })
    }

    /// Returns the record of the piece, which has this key.
    ///
    /// # Errors
    /// The piece is too long; [`MAX_BYTES`] prevents this.
    pub(super) fn record(&self, key: Key) -> io::Result<Record> {
        Ok(Record {
            key,
            length: length(&self.bytes)?,
            unpacked: self.unpacked,
            crc: self.crc,
            stored_crc: self.stored_crc,
            notable: self.notable,
        })
    }
}

fn length(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(io::Error::other)
}

/// Compresses a segment and passes its pieces to `emit`, in order; if one is `wanted`, only that piece.
pub(super) fn compress_segment<C: Content>(
    segment: &Segment<C>,
    wanted: Option<u64>,
    buffers: &mut Buffers,
    stop: &Token,
    emit: &mut dyn FnMut(Piece) -> Result<(), C::Error>,
) -> Result<(), C::Error> {
    // An earlier segment may have failed.
    buffers.raw.clear();
    let bytes = usize::try_from(segment.length()).unwrap_or(MAX_BYTES);
    buffers.raw.reserve_exact(bytes.min(MAX_BYTES));
    let mut cutter = Cutter {
        buffers,
        wanted,
        number: 0,
        emit,
    };
    let notable = segment.read(stop, &mut |bytes: &[u8]| cutter.append(bytes))?;
    // The notable files are known at the end, so they belong to the last piece.
    cutter.cut(notable)
}

/// Cuts the bytes of a segment into pieces.
struct Cutter<'a, E> {
    buffers: &'a mut Buffers,
    wanted: Option<u64>,
    number: u64,
    emit: &'a mut dyn FnMut(Piece) -> Result<(), E>,
}

impl<E: From<io::Error>> Cutter<'_, E> {
    fn append(&mut self, bytes: &[u8]) -> Result<(), E> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.buffers.raw.len() == MAX_BYTES {
                self.cut(Notable::default())?;
            }
            let fitting = rest.len().min(MAX_BYTES - self.buffers.raw.len());
            let (now, later) = rest.split_at(fitting);
            self.buffers.raw.extend_from_slice(now);
            rest = later;
        }
        Ok(())
    }

    fn cut(&mut self, notable: Notable) -> Result<(), E> {
        if self.wanted.is_none_or(|wanted| wanted == self.number) {
            let piece = Piece::compress(self.buffers, notable)?;
            (self.emit)(piece)?;
        }
        self.number += 1;
        self.buffers.raw.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_until_the_last_build_ends() {
        let pool = BufferPool::default();
        let (first, second) = (pool.enter(), pool.enter());
        first.with_buffers(|buffers| buffers.raw.reserve(1000));
        assert_eq!(pool.counts(), (2, 1));
        drop(first);
        assert!(second.with_buffers(|buffers| buffers.raw.capacity()) >= 1000);
        assert_eq!(pool.counts(), (1, 1));
        drop(second);
        assert_eq!(pool.counts(), (0, 0));
    }
}
