//! The open readers of undeltified blobs, a bounded number for all mirrors.

use std::path::Path;
use std::sync::Arc;

use git2::Oid;
use sluice_git_pack::BlobReader;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of open readers. Each keeps up to eight files open, and a package may have a thousand submodules,
/// whose checkouts are open until its end.
const MAX_READERS: usize = 64;

/// A bounded number of readers.
#[derive(Clone, Debug)]
pub(super) struct Readers(Arc<Semaphore>);

impl Default for Readers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_READERS)))
    }
}

impl Readers {
    /// Opens the packs of a directory; `None` if the directory cannot be read, or too many readers are open. Does not wait.
    pub(super) fn open(&self, packs: &Path) -> Option<Reader> {
        let permit = Arc::clone(&self.0).try_acquire_owned().ok()?;
        let blobs = BlobReader::open(packs).ok()?;
        Some(Reader {
            blobs,
            _permit: permit,
        })
    }
}

/// An open reader.
pub(in super::super) struct Reader {
    // Closed before another one may be opened.
    blobs: BlobReader,
    _permit: OwnedSemaphorePermit,
}

impl Reader {
    /// As [`BlobReader::read`].
    pub(in super::super) fn read(&self, id: Oid, limit: u64) -> Option<Vec<u8>> {
        self.blobs.read(id, limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_of_readers_is_open() {
        let packs = tempfile::tempdir().unwrap();
        let readers = Readers::default();
        assert!(readers.open(&packs.path().join("none")).is_none());
        let mut opened: Vec<_> = (0..MAX_READERS)
            .map(|_| readers.open(packs.path()).unwrap())
            .collect();
        assert!(readers.open(packs.path()).is_none());
        opened.pop();
        assert!(readers.open(packs.path()).is_some());
    }
}
