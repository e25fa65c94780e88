//! The storage of the leader: builds in the local directory, and keeps the bucket as the place of what is published.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Duration;

use jiff::Timestamp;
use object_store::path::Path;
use sluice_api::digest::Digest;
use tokio::time::Instant;

use super::error::BucketError;
use super::objects::is_pointer;
use super::pointer::Pointer;
use super::{BucketStorage, FOUND_AGE, Shared};
use crate::archive::{Index, StoredFile};
use crate::storage::{ArtifactPath, Draft, FileState, ObjectDirectory, Storage, StorageError, open_below};

/// A draft in the local directory, which is uploaded when it is published.
struct BucketDraft {
    local: Box<dyn Draft>,
    storage: BucketStorage,
    path: ArtifactPath,
}

impl Write for BucketDraft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.local.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.local.flush()
    }
}

impl Draft for BucketDraft {
    fn publish(self: Box<Self>, digest: &Digest, index: Option<&[u8]>) -> Result<(), StorageError> {
        let Self { local, storage, path } = *self;
        let shared = &*storage.0;
        // A download to the same path waits.
        let writer = shared.writer(&path);
        let _alone = shared.runtime.block_on(writer.lock_owned());
        local.publish(digest, index)?;
        shared.upload(&path, digest, index)
    }
}

impl Storage for BucketStorage {
    fn create(&self, path: &ArtifactPath) -> Result<Box<dyn Draft>, StorageError> {
        Ok(Box::new(BucketDraft {
            local: self.0.local.create(path)?,
            storage: self.clone(),
            path: path.clone(),
        }))
    }

    /// Looks in the bucket, at most once in ten minutes. What it lacks, or what is damaged there, is uploaded if the local file is intact.
    fn verify(&self, path: &ArtifactPath, digest: &str) -> Result<FileState, StorageError> {
        let shared = &*self.0;
        let wanted = match digest.parse::<Digest>() {
            Ok(wanted) => wanted,
            Err(problem) => return Ok(FileState::Damaged(problem.to_string())),
        };
        if shared.wait(path, shared.is_stored(path, &wanted))? {
            return Ok(FileState::Intact);
        }
        shared.upload_copy(path, &wanted)
    }

    fn open(&self, path: &ArtifactPath) -> Result<Box<dyn StoredFile>, StorageError> {
        let shared = &*self.0;
        let writer = shared.writer(path);
        let _alone = shared.runtime.block_on(writer.lock_owned());
        if let Some(pointer) = shared.wait(path, shared.pointer(path, FOUND_AGE))? {
            return Ok(Box::new(shared.fetch(path, &pointer)?));
        }
        shared.local.open(path)
    }

    fn index(&self, path: &ArtifactPath) -> Result<Option<Vec<u8>>, StorageError> {
        let shared = &*self.0;
        if let Some(index) = shared.local.index(path)? {
            return Ok(Some(index));
        }
        let Some(pointer) = shared.wait(path, shared.pointer(path, FOUND_AGE))? else {
            return Ok(None);
        };
        let index = shared.wait(path, shared.bucket.index(path, &pointer.digest))?;
        // Others may write the bucket.
        Ok(index.map(Index::strip_checkpoints))
    }

    fn supersede(&self, path: &ArtifactPath, now: Timestamp) -> Result<(), StorageError> {
        let keys = self.0.keys(path);
        self.0.superseded.insert(path.directory(), keys, now);
        self.0.local.supersede(path, now)
    }

    fn collect(
        &self,
        directory: &ObjectDirectory,
        current: Option<&ArtifactPath>,
        retention: Duration,
        now: Timestamp,
    ) -> Result<u64, StorageError> {
        let shared = &*self.0;
        shared.local.collect(directory, current, retention, now)?;
        shared.forget_removed(directory);
        let Some(current) = current else { return Ok(0) };
        let expired = shared.superseded.expired(directory, retention, now);
        if expired.is_empty() {
            return Ok(0);
        }
        // Without its pointer, nothing tells which content is the current one. `verify` writes the pointer again.
        let Some(pointer) = shared.wait(current, shared.pointer(current, Duration::ZERO))? else {
            return Ok(0);
        };
        let in_use = shared.keys_of(current, &pointer.digest);
        let (used, unused): (Vec<_>, Vec<_>) = expired.into_iter().partition(|key| in_use.contains(key));
        shared.superseded.remove(directory, &used);
        let removed = shared.wait(current, shared.delete(&unused))?;
        shared.superseded.remove(directory, &unused);
        for path in unused
            .iter()
            .filter_map(|key| shared.bucket.artifact_of(directory, key))
        {
            shared.pointers.remove(&path);
        }
        Ok(removed)
    }

    /// Frees space on this disk: the bucket has the artifacts.
    fn free_space(
        &self,
        directory: &ObjectDirectory,
        current: Option<&ArtifactPath>,
        keep: usize,
    ) -> Result<u64, StorageError> {
        let removed = self.0.local.free_space(directory, current, keep);
        self.0.forget_removed(directory);
        removed
    }

    fn remove(&self, directory: &ObjectDirectory) -> Result<bool, StorageError> {
        let shared = &*self.0;
        let was_local = shared.local.remove(directory)?;
        shared.cache.forget(directory, |_| true);
        shared.pointers.remove_directory(directory);
        let key = || shared.bucket.directory_key(Some(directory));
        let removed = shared.wait_for(key, async {
            let keys = shared.bucket.list(Some(directory)).await?;
            shared.delete(&keys).await?;
            Ok::<_, BucketError>(keys.len())
        })?;
        shared.superseded.remove_directory(directory);
        Ok(was_local || removed > 0)
    }

    /// Lists the bucket, and repairs what is damaged there. Counts what no known artifact has as superseded from now: an earlier leader may
    /// have left it.
    fn directories(&self) -> Result<Vec<ObjectDirectory>, StorageError> {
        let shared = &*self.0;
        let started_at = Timestamp::now();
        let keys = shared.wait_for(|| shared.bucket.directory_key(None), shared.bucket.list(None))?;
        let mut listed: BTreeMap<ObjectDirectory, BTreeSet<Path>> = BTreeMap::new();
        for key in keys {
            if let Some(directory) = shared.bucket.directory_of(&key) {
                listed.entry(directory).or_default().insert(key);
            }
        }
        // Before the record of the listing, from which an upload removes its keys.
        shared.repair(&listed);
        let now = Timestamp::now();
        shared.superseded.insert_listing(&listed, started_at, now);
        Ok(listed.into_keys().collect())
    }

    fn url(&self, path: &ArtifactPath) -> String {
        self.0.local.url(path)
    }
}

impl Shared {
    /// Returns whether pointer and content of a path are stored.
    async fn is_stored(&self, path: &ArtifactPath, digest: &Digest) -> Result<bool, BucketError> {
        let names = |pointer: &Pointer| pointer.digest == *digest && !pointer.is_damaged;
        let cached = self.pointers.get(path).filter(|cached| names(&cached.pointer));
        let found_at = cached.and_then(|cached| cached.found_at);
        if found_at.is_some_and(|found_at| found_at.elapsed() < FOUND_AGE) {
            return Ok(true);
        }
        let pointer = self.pointer(path, Duration::ZERO).await?;
        let Some(pointer) = pointer.filter(names) else {
            return Ok(false);
        };
        let is_stored = self.bucket.has_content(path, &pointer).await?;
        if is_stored {
            let now = Instant::now();
            self.pointers.insert(path, &pointer, now, Some(now));
        }
        Ok(is_stored)
    }

    /// Uploads the local file: content, index, and at last the pointer. Blocks.
    pub(super) fn upload(
        &self,
        path: &ArtifactPath,
        digest: &Digest,
        index: Option<&[u8]>,
    ) -> Result<(), StorageError> {
        let absolute = self.local.root().join(path.relative());
        let failed = StorageError::read(&absolute);
        let file = open_below(self.local.root(), &path.relative()).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let pointer = Pointer {
            digest: digest.clone(),
            size,
            is_damaged: false,
        };
        let keys = self.keys_of(path, digest);
        self.superseded.remove(path.directory(), &keys);
        let upload = async {
            let mut stored = self.bucket.pointer(path).await?;
            let named = stored.as_ref().and_then(|stored| stored.pointer.clone());
            let is_same = named.as_ref().is_some_and(|named| named.digest == *digest);
            let is_damaged = named.as_ref().is_some_and(|named| named.is_damaged);
            if (is_same && is_damaged) || !self.bucket.has_content(path, &pointer).await? {
                self.bucket.put_content(path, digest, file).await?;
                if is_same {
                    // A replica that has read the replaced content may have marked the pointer meanwhile.
                    stored = self.bucket.pointer(path).await?;
                }
            }
            if let Some(index) = index {
                self.bucket.put_index(path, digest, index.to_vec()).await?;
            }
            let current = stored.as_ref().and_then(|stored| stored.pointer.as_ref());
            if current != Some(&pointer) {
                self.bucket.put_pointer(path, &pointer, stored).await?;
            }
            Ok::<_, BucketError>(named)
        };
        let uploaded = self.wait(path, upload);
        // The file is on disk also if it is not in the bucket.
        self.keep(path, size);
        let named = uploaded?;
        if let Some(replaced) = named.filter(|named| named.digest != *digest) {
            let mut keys = self.keys_of(path, &replaced.digest);
            keys.retain(|key| *key != self.bucket.pointer_key(path));
            self.superseded.insert(path.directory(), keys, Timestamp::now());
        }
        let now = Instant::now();
        self.pointers.insert(path, &pointer, now, Some(now));
        self.absent.remove(path);
        Ok(())
    }

    /// Removes from the cache the files of an object that are no longer on disk.
    fn forget_removed(&self, directory: &ObjectDirectory) {
        let root = self.local.root();
        self.cache
            .forget(directory, |path| !root.join(path.relative()).exists());
    }

    /// Deletes objects; pointers first, so that no pointer names what is gone. Returns how many artifacts were deleted.
    async fn delete(&self, keys: &[Path]) -> Result<u64, BucketError> {
        let is_of_pointer = |key: &&Path| is_pointer(key);
        let mut removed = 0;
        for key in keys.iter().filter(is_of_pointer) {
            self.bucket.delete(key).await?;
            removed += 1;
        }
        for key in keys.iter().filter(|key| !is_pointer(key)) {
            self.bucket.delete(key).await?;
        }
        Ok(removed)
    }

    /// Returns the keys of the artifact at a path, as far as known. The others are found by the next listing.
    fn keys(&self, path: &ArtifactPath) -> Vec<Path> {
        match self.pointers.get(path) {
            Some(cached) => self.keys_of(path, &cached.pointer.digest),
            None => vec![self.bucket.pointer_key(path)],
        }
    }

    /// Returns the keys of a path with this content.
    fn keys_of(&self, path: &ArtifactPath, digest: &Digest) -> Vec<Path> {
        let bucket = &self.bucket;
        vec![
            bucket.pointer_key(path),
            bucket.content_key(path, digest),
            bucket.index_key(path, digest),
        ]
    }
}
