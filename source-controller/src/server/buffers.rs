//! Buffers for the chunks of files, which are reused: a new one of this size costs a page fault for each page.

use std::sync::{Arc, Mutex};

use sluice_runtime::sync::lock;

/// Size of a chunk in bytes: large enough that a request to the system costs little beside its copy, and small enough for
/// hundreds of slow readers.
pub(super) const CHUNK: usize = 128 * 1024;
/// Maximum number of buffers that are kept for reuse: 8 MiB.
const MAX_KEPT: usize = 64;

/// Buffers that are not in use; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffers(Arc<Mutex<Pool>>);

#[derive(Debug, Default)]
struct Pool {
    free: Vec<Vec<u8>>,
    in_use: usize,
}

/// A buffer of one chunk, which returns to its pool when it is dropped.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    /// Number of bytes with content.
    filled: usize,
    pool: Buffers,
}

impl Buffers {
    /// Returns an empty buffer.
    pub(super) fn take(&self) -> Buffer {
        let free = {
            let mut pool = lock(&self.0);
            pool.in_use += 1;
            pool.free.pop()
        };
        Buffer {
            bytes: free.unwrap_or_else(|| vec![0; CHUNK]),
            filled: 0,
            pool: self.clone(),
        }
    }

    /// Returns the number of buffers in use.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        lock(&self.0).in_use
    }
}

impl Buffer {
    /// Returns the first `length` bytes, at most a chunk, to be overwritten.
    pub(super) fn space(&mut self, length: usize) -> &mut [u8] {
        let length = length.min(self.bytes.len());
        &mut self.bytes[..length]
    }

    /// Sets the number of bytes with content.
    pub(super) fn set_filled(&mut self, filled: usize) {
        self.filled = filled.min(self.bytes.len());
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut pool = lock(&self.pool.0);
        pool.in_use -= 1;
        if pool.free.len() < MAX_KEPT {
            pool.free.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_reused_and_a_limited_number_is_kept() {
        let buffers = Buffers::default();
        let mut first = buffers.take();
        first.space(3).copy_from_slice(b"abc");
        first.set_filled(3);
        assert_eq!(first.as_ref(), b"abc");
        let address = first.as_ref().as_ptr();
        drop(first);
        let again = buffers.take();
        assert_eq!((again.as_ref(), again.bytes.as_ptr()), (&b""[..], address));
        let many: Vec<_> = (0..2 * MAX_KEPT).map(|_| buffers.take()).collect();
        assert_eq!(buffers.in_use(), 2 * MAX_KEPT + 1);
        drop((again, many));
        assert_eq!((buffers.in_use(), lock(&buffers.0).free.len()), (0, MAX_KEPT));
    }
}
