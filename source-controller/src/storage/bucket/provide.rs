//! Provides the files that the server of any replica is asked for: downloads a missing one, once for all who wait for it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectMeta;
use sluice_api::digest::Digest;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::error::{BucketError, Problem};
use super::pointer::Pointer;
use super::pointer_cache::CachedPointer;
use super::rate::RateWindow;
use super::{BucketStorage, POINTER_AGE, Shared};
use crate::archive::Hasher;
use crate::storage::{ArtifactPath, FileState, LocalDirectory, Storage as _, StorageError, open_below};

/// Maximum time that a request waits for a file. Consumers repeat a request that was answered with 503.
pub(super) const REQUEST_LIMIT: Duration = Duration::from_secs(15);
/// Maximum number of concurrent downloads. Each has a thread, and the threads that open files must remain.
pub(super) const MAX_DOWNLOADS: usize = 64;
/// How long a request waits for the bucket before its copy is served.
const COPY_LIMIT: Duration = Duration::from_secs(1);

/// A local file whose digest this process has verified.
struct VerifiedCopy {
    file: File,
    digest: Digest,
}

/// The result of a download.
enum Received {
    /// The content is that of the pointer, and is stored as the local file.
    Intact,
    /// The content of this object is another one. Nothing is stored.
    Damaged(ObjectMeta),
}

/// The answer of the bucket for a path, with the lock of the writers of its file.
struct LockedPointer {
    pointer: Option<Pointer>,
    lock: OwnedMutexGuard<()>,
}

impl BucketStorage {
    /// Returns the verified copy of a path, if the bucket still names it or cannot be read. Downloads nothing, and asks the bucket at most
    /// once a second, for at most a second.
    pub(crate) async fn copy(&self, path: &ArtifactPath) -> Option<File> {
        let shared = &self.0;
        let copy = shared.verified_copy(path).await?;
        let cached = shared.pointers.get(path);
        let is_fresh = |cached: &CachedPointer| cached.read_at.elapsed() < POINTER_AGE;
        let is_known = cached.as_ref().is_some_and(is_fresh) || shared.failed.contains(path, Instant::now());
        let is_named = if is_known {
            cached.is_none_or(|cached| cached.pointer.digest == copy.digest)
        } else {
            shared.confirm(path, &copy.digest).await
        };
        if !is_named {
            return None;
        }
        shared.cache.touch(path);
        Some(copy.file)
    }

    /// Opens the file that the bucket has at a path, and downloads it before if it is not here; `None` if the bucket has none.
    ///
    /// # Errors
    /// The bucket cannot be reached or is too slow, its content is damaged, or the file cannot be written.
    pub(crate) async fn provide(&self, path: &ArtifactPath) -> Result<Option<File>, StorageError> {
        let shared = &self.0;
        let provided = tokio::time::timeout(shared.request_limit, shared.provide(path));
        provided
            .await
            .unwrap_or_else(|_| Err(shared.timed_out(path).into()))
    }
}

impl Shared {
    async fn provide(self: &Arc<Self>, path: &ArtifactPath) -> Result<Option<File>, StorageError> {
        let LockedPointer { pointer, lock } = self.look_up(path).await?;
        let Some(pointer) = pointer else { return Ok(None) };
        // Another request may have downloaded it before this one had the lock.
        let copy = self.verified_copy(path).await;
        if let Some(copy) = copy.filter(|copy| copy.digest == pointer.digest) {
            self.cache.touch(path);
            return Ok(Some(copy.file));
        }
        self.download(path, pointer, lock).await.map(Some)
    }

    /// Returns the pointer of a path. Requests for one path look one after another, and the later ones find the answer of the first.
    async fn look_up(&self, path: &ArtifactPath) -> Result<LockedPointer, BucketError> {
        let lock = self.writer(path).lock_owned().await;
        let asked_at = Instant::now();
        if self.absent.contains(path, asked_at) {
            return Ok(LockedPointer { pointer: None, lock });
        }
        let pointer = self.valid_pointer(path, POINTER_AGE).await?;
        if pointer.is_none() {
            self.absent.insert(path, asked_at);
        }
        Ok(LockedPointer { pointer, lock })
    }

    /// Returns whether the copy of a path with this digest can be served: the bucket names it, or cannot be read and is not known to name
    /// another one. Neither a slow bucket nor another writer is awaited.
    async fn confirm(&self, path: &ArtifactPath, copy: &Digest) -> bool {
        let looked_up = tokio::time::timeout(COPY_LIMIT, self.look_up(path)).await;
        let error = match looked_up.unwrap_or_else(|_| Err(self.timed_out(path))) {
            Ok(LockedPointer { pointer, .. }) => {
                return pointer.is_some_and(|pointer| pointer.digest == *copy);
            }
            Err(error) => error,
        };
        let cached = self.pointers.get(path);
        if cached.is_some_and(|cached| cached.pointer.digest != *copy) {
            return false;
        }
        self.failed.insert(path, Instant::now());
        if *error.problem() == Problem::InvalidPointer || self.outage.begin() {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, %path, "the bucket cannot be read: copies on disk are served");
        }
        true
    }

    /// Downloads a file on a thread, which keeps the lock also if the client goes.
    async fn download(
        self: &Arc<Self>,
        path: &ArtifactPath,
        pointer: Pointer,
        lock: OwnedMutexGuard<()>,
    ) -> Result<File, StorageError> {
        let permit = Arc::clone(&self.downloads).acquire_owned().await;
        let (shared, path) = (Arc::clone(self), path.clone());
        let fetched = tokio::task::spawn_blocking(move || {
            let _held = (lock, permit);
            shared.fetch(&path, &pointer)
        });
        fetched.await.unwrap_or_else(|error| {
            Err(StorageError::Directory {
                source: io::Error::other(error),
            })
        })
    }

    /// Opens the local file, if this process has verified it.
    async fn verified_copy(self: &Arc<Self>, path: &ArtifactPath) -> Option<VerifiedCopy> {
        let (shared, relative) = (Arc::clone(self), path.relative());
        let opened = tokio::task::spawn_blocking(move || {
            let file = open_below(shared.local.root(), &relative).ok()?;
            let digest = shared.local.cached_digest(&relative, &file.metadata().ok()?)?;
            Some(VerifiedCopy { file, digest })
        });
        opened.await.ok().flatten()
    }

    fn timed_out(&self, path: &ArtifactPath) -> BucketError {
        let key = self.bucket.pointer_key(path);
        self.bucket.error("read", &key, Problem::TimedOut)
    }

    /// Makes the local file that of the pointer, and opens it. The caller holds the lock of its writers. Blocks.
    ///
    /// # Errors
    /// The content cannot be downloaded, does not match its digest, or cannot be written.
    pub(super) fn fetch(&self, path: &ArtifactPath, pointer: &Pointer) -> Result<File, StorageError> {
        let (root, relative) = (self.local.root(), path.relative());
        let failed = |source| StorageError::Read {
            path: root.join(&relative),
            source,
        };
        if self.local.verify(path, &pointer.digest.to_string())? == FileState::Intact {
            self.cache.touch(path);
            match open_below(root, &relative) {
                // The cache has removed it meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                opened => return opened.map_err(failed),
            }
        }
        let digest = &pointer.digest;
        let damaged = || StorageError::from(self.bucket.content_error(path, digest, Problem::Damaged));
        if pointer.is_damaged {
            return Err(damaged());
        }
        if let Received::Damaged(read) = self.receive(path, pointer)? {
            self.report_damage(path, pointer, &read);
            return Err(damaged());
        }
        let file = open_below(root, &relative).map_err(failed)?;
        self.keep(path, pointer.size);
        tracing::debug!(%path, bytes = pointer.size, "artifact downloaded from the bucket");
        Ok(file)
    }

    /// Stores the content of a pointer as the local file, if it is what the pointer says. Blocks.
    fn receive(&self, path: &ArtifactPath, pointer: &Pointer) -> Result<Received, StorageError> {
        let (digest, bucket) = (&pointer.digest, &self.bucket);
        // Requests that waited for the lock come here after the stop: they write nothing to the disk.
        if self.stop.is_cancelled() {
            return Err(bucket.content_error(path, digest, Problem::Stopped).into());
        }
        let mut window = RateWindow::new(self.min_rate, Instant::now());
        let mut draft = self.local.receive(path)?;
        let mut hasher = Hasher::new(digest.algorithm());
        let key = bucket.content_key(path, digest);
        let mut content = self.wait(path, bucket.open(&key))?;
        let mut size = 0;
        while let Some(piece) = self.wait(path, bucket.next_piece(&key, &mut content))? {
            size += piece.len() as u64;
            if size > pointer.size {
                return Ok(Received::Damaged(content.meta));
            }
            if !window.count(piece.len() as u64, Instant::now()) && size < pointer.size {
                return Err(bucket.content_error(path, digest, Problem::TooSlow).into());
            }
            hasher.update(&piece);
            draft.write_all(&piece).map_err(|source| StorageError::Write {
                what: "cannot write the copy of",
                path: path.relative(),
                source,
            })?;
        }
        if size != pointer.size || hasher.finish() != *digest {
            return Ok(Received::Damaged(content.meta));
        }
        draft.publish(digest, None)?;
        Ok(Received::Intact)
    }

    /// Tells the leader that a content is damaged, in its pointer: the leader reads that again, and no content. Blocks.
    fn report_damage(&self, path: &ArtifactPath, pointer: &Pointer, read: &ObjectMeta) {
        self.pointers.remove(path);
        match self.wait(path, self.bucket.mark_damaged(path, pointer, read)) {
            Ok(is_marked) => tracing::warn!(
                %path,
                is_marked,
                "a content in the bucket is damaged: a reconciliation of its object stores it again"
            ),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, %path, "a content in the bucket is damaged, and its pointer cannot say so");
            }
        }
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
