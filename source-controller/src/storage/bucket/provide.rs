//! Provides the files that the server of any replica is asked for: downloads a missing one, once for all who wait for it.

use std::fs;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::error::{BucketError, Problem};
use super::pointer::Pointer;
use super::{BucketStorage, POINTER_AGE, Shared};
use crate::archive::Hasher;
use crate::storage::{ArtifactPath, FileState, LocalDirectory, Storage as _, StorageError};

/// How long a request waits for the bucket where a copy can be served.
const PATIENCE: Duration = Duration::from_secs(1);

impl BucketStorage {
    /// Makes sure that the local file at a path is what the bucket has there. Returns whether it has anything. While the bucket cannot be
    /// reached, a file that was verified before is provided.
    ///
    /// # Errors
    /// The bucket cannot be reached, its content is damaged, or the file cannot be written.
    pub(crate) async fn provide(&self, path: &ArtifactPath) -> Result<bool, StorageError> {
        let shared = &self.0;
        let known = shared.known(path);
        let fresh = known.filter(|known| known.read_at.elapsed() < POINTER_AGE);
        if let Some(fresh) = fresh
            && shared.has_copy(path, Some(&fresh.pointer)).await
        {
            shared.cache.touch(path);
            return Ok(true);
        }
        let alone = shared.writer(path).lock_owned().await;
        let has_copy = shared.has_copy(path, None).await;
        let pointer = match shared.look_up(path, has_copy).await {
            Ok(Some(pointer)) => pointer,
            Ok(None) => return Ok(false),
            Err(error) if !has_copy => return Err(error.into()),
            Err(error) => {
                shared.trust(path);
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, %path, "the bucket cannot be reached: the copy on disk is served");
                return Ok(true);
            }
        };
        if shared.has_copy(path, Some(&pointer)).await {
            shared.cache.touch(path);
            return Ok(true);
        }
        let (shared, path) = (Arc::clone(shared), path.clone());
        // The thread keeps the lock, also if the client goes.
        let fetched = tokio::task::spawn_blocking(move || {
            let _alone = alone;
            shared.fetch(&path, &pointer)
        });
        let fetched = fetched.await;
        fetched.unwrap_or_else(|error| {
            Err(StorageError::Directory {
                source: std::io::Error::other(error),
            })
        })?;
        Ok(true)
    }
}

impl Shared {
    /// Returns the pointer of a path. Where a copy can be served instead, a slow bucket is not awaited.
    async fn look_up(&self, path: &ArtifactPath, has_copy: bool) -> Result<Option<Pointer>, BucketError> {
        let look = self.pointer(path, POINTER_AGE);
        if !has_copy {
            return look.await;
        }
        tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(|_| {
            let key = self.bucket.pointer_key(path);
            Err(self.bucket.error("read", &key, Problem::TimedOut))
        })
    }

    /// Returns whether the local file is known to be that of the pointer, or to be any verified one.
    async fn has_copy(&self, path: &ArtifactPath, pointer: Option<&Pointer>) -> bool {
        let relative = path.relative();
        let absolute = self.local.root().join(&relative);
        let Ok(metadata) = tokio::fs::symlink_metadata(&absolute).await else {
            return false;
        };
        let digest = self.local.cached_digest(&relative, &metadata);
        digest.is_some_and(|digest| pointer.is_none_or(|pointer| pointer.digest == digest))
    }

    /// Makes the local file that of the pointer. The caller holds the lock of its writers. Blocks.
    ///
    /// # Errors
    /// The content cannot be downloaded, does not match its digest, or cannot be written.
    pub(super) fn fetch(&self, path: &ArtifactPath, pointer: &Pointer) -> Result<(), StorageError> {
        if self.local.verify(path, &pointer.digest.to_string())? == FileState::Intact {
            self.cache.touch(path);
            return Ok(());
        }
        let (digest, bucket) = (&pointer.digest, &self.bucket);
        let damaged = || StorageError::from(bucket.content_error(path, digest, Problem::Damaged));
        let mut draft = self.local.receive(path)?;
        let mut hasher = Hasher::new(digest.algorithm());
        let mut content = self.wait(path, bucket.open(path, digest))?;
        let mut size = 0;
        while let Some(piece) = self.wait(path, bucket.next_piece(path, digest, &mut content))? {
            size += piece.len() as u64;
            if size > pointer.size {
                return Err(damaged());
            }
            hasher.update(&piece);
            draft.write_all(&piece).map_err(|source| StorageError::Write {
                what: "cannot write the copy of",
                path: path.relative(),
                source,
            })?;
        }
        if size != pointer.size || hasher.finish() != *digest {
            return Err(damaged());
        }
        draft.publish(digest, None)?;
        self.keep(path, size);
        tracing::debug!(%path, bytes = size, "artifact downloaded from the bucket");
        Ok(())
    }
}

impl LocalDirectory {
    /// Returns the artifacts here with their sizes, those that were stored first before the others. Removes the leftovers of downloads
    /// that a killed process has not completed.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) fn copies(&self) -> Result<Vec<(ArtifactPath, u64)>, StorageError> {
        let mut copies = Vec::new();
        for directory in self.objects()? {
            let files = self.files(&directory)?.into_iter();
            for found in files.filter(|file| file.is_superseded(None)) {
                let name = found.path.file_name().and_then(|name| name.to_str());
                let recorded = name.and_then(|name| directory.recorded(&format!("{directory}/{name}")));
                match recorded {
                    Some(path) => copies.push((found.metadata.modified().ok(), path, found.metadata.len())),
                    // It cannot be removed, or is gone: the next start tries again.
                    None => drop(fs::remove_file(&found.path)),
                }
            }
        }
        copies.sort();
        Ok(copies.into_iter().map(|(_, path, bytes)| (path, bytes)).collect())
    }
}
