//! The memory from which an archive is written and hashed. Pure.

use std::io;

/// Maximum memory of a buffer that is used again: a power of two, and more than most pieces have. A larger one is freed, so that one large
/// piece does not take memory until the end of the build.
pub(super) const KEPT_BYTES: usize = 512 << 10;

/// Bytes to write and to hash. Its memory is initialised once and then used again: a piece is read right behind the one before it, and no
/// page is touched for the first time.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// All of it is initialised; the first `length` bytes are in use.
    memory: Vec<u8>,
    length: usize,
    /// Whether the previous artifact has these bytes at the same place, and the same ones before them.
    pub(super) is_unchanged: bool,
}

impl Buffer {
    /// Returns the bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[..self.length]
    }

    pub(super) const fn len(&self) -> usize {
        self.length
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether so many bytes more leave it small enough to be used again.
    pub(super) const fn has_room(&self, more: usize) -> bool {
        self.length.saturating_add(more) <= KEPT_BYTES
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.grow(bytes.len()).copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Appends `length` bytes that `fill` writes; none if it fails.
    ///
    /// # Errors
    /// `fill` fails.
    pub(super) fn append_with(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        fill(self.grow(length))?;
        self.length += length;
        Ok(())
    }

    /// Returns the memory of the next `more` bytes. It may have any content.
    fn grow(&mut self, more: usize) -> &mut [u8] {
        let end = self.length + more;
        if end > self.memory.len() {
            // The archive of a small tree needs a few KB, so a buffer is not large from the start.
            let size = if end > KEPT_BYTES {
                end
            } else {
                end.next_power_of_two()
            };
            if self.length == 0 {
                self.memory = vec![0; size];
            } else {
                self.memory.reserve_exact(size - self.memory.len());
                self.memory.resize(size, 0);
            }
        }
        &mut self.memory[self.length..end]
    }

    /// Returns the buffer without its bytes; `None` if it is too large to be used again.
    pub(super) fn reused(self) -> Option<Self> {
        (self.memory.len() <= KEPT_BYTES).then_some(Self {
            memory: self.memory,
            length: 0,
            is_unchanged: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_cannot_be_filled_are_not_appended() {
        let mut buffer = Buffer::default();
        buffer.append(b"before");
        let failed = buffer.append_with(100, |memory| {
            memory.fill(b'x');
            Err(io::ErrorKind::InvalidData.into())
        });
        assert!(failed.is_err());
        assert_eq!(buffer.bytes(), b"before");
        let filled = buffer.append_with(2, |memory| {
            memory.copy_from_slice(b", ");
            Ok(())
        });
        assert!(filled.is_ok());
        buffer.append(b"after");
        assert_eq!(buffer.bytes(), b"before, after");
    }

    #[test]
    fn memory_is_used_again_unless_it_is_large() {
        let mut buffer = Buffer::default();
        buffer.append(&[1; 1000]);
        let mut buffer = buffer.reused().unwrap();
        assert!(buffer.is_empty());
        let memory = buffer.memory.as_ptr();
        buffer.append(&[2; 900]);
        assert!(buffer.bytes() == [2; 900]);
        assert_eq!(buffer.memory.as_ptr(), memory);

        assert!(buffer.has_room(KEPT_BYTES - 900) && !buffer.has_room(KEPT_BYTES - 899));
        let rest = vec![3_u8; KEPT_BYTES - 900];
        buffer.append(&rest);
        assert!(buffer.bytes() == [&[2; 900][..], &rest].concat());
        let mut buffer = buffer.reused().unwrap();

        let large = vec![4_u8; KEPT_BYTES + 1];
        buffer.append(&large);
        assert!(buffer.bytes() == large);
        assert!(buffer.reused().is_none());
    }
}
