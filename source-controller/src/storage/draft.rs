//! A file under construction in the local directory: temporary until it is durable.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use sluice_api::digest::Digest;
use tempfile::NamedTempFile;

use super::digest_cache::DigestCache;
use super::{Draft, StorageError, checkpoint};

/// A temporary file beside its target, with the lock of the artifact.
pub(super) struct LocalDraft {
    pub(super) file: NamedTempFile,
    /// The final path.
    pub(super) target: PathBuf,
    pub(super) digests: Arc<DigestCache>,
    pub(super) _lock: File,
}

impl Write for LocalDraft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        checkpoint("written");
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Draft for LocalDraft {
    fn publish(self: Box<Self>, digest: &Digest) -> Result<(), StorageError> {
        let target = self.target.clone();
        let failed = |what, source| StorageError::Write {
            what,
            path: target.clone(),
            source,
        };
        self.file
            .as_file()
            .sync_all()
            .map_err(|source| failed("cannot sync", source))?;
        checkpoint("synced");
        let file = self
            .file
            .persist(&target)
            .map_err(|error| failed("cannot rename to", error.error))?;
        checkpoint("renamed");
        let directory = target.parent().unwrap_or(&target);
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|source| failed("cannot sync the directory of", source))?;
        checkpoint("published");
        let metadata = file.metadata().map_err(|source| failed("cannot stat", source))?;
        self.digests.insert(&target, &metadata, digest.clone());
        Ok(())
    }
}
