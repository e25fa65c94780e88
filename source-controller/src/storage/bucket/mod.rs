//! Artifacts in a bucket, with a local directory as a bounded cache.
//!
//! The leader builds an artifact in the local directory, then uploads content, index and pointer, in this order, and publishes the
//! status at last. Every replica serves: one that lacks a file downloads it once (`provide`). Keys follow from the path of the artifact:
//! its pointer is at `<path>.digest`, the content at `<path>.<algorithm>-<digits>`, and the index beside the content. The recovery points of
//! mirrors are in the bucket too (`mirrors`).
//!
//! As the other storage, this one blocks: its functions wait for the bucket on the threads of blocking work.

mod cache;
mod connect;
mod error;
mod mirrors;
mod objects;
mod outage;
mod pointer;
mod pointer_cache;
mod provide;
mod rate;
mod recent_paths;
mod repair;
mod store;
mod superseded;
mod upload;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use cache::Cache;
pub use connect::ConnectError;
pub(crate) use connect::connect;
pub use error::{BucketError, Problem};
use object_store::path::Path;
pub use objects::Bucket;
use outage::Outage;
use pointer::Pointer;
use pointer_cache::PointerCache;
use provide::{MAX_DOWNLOADS, REQUEST_LIMIT};
use rate::{MIN_RATE, MinimumRate};
use recent_paths::RecentPaths;
use sluice_runtime::shutdown::Token;
use sluice_runtime::sync::lock;
use superseded::Superseded;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::{ArtifactPath, LocalDirectory, StorageError};

/// How long a request for a file is answered without another look at its pointer.
const POINTER_AGE: Duration = Duration::from_secs(1);
/// How long the leader assumes that what it has found or stored is still in the bucket. Only a user or a rule of the bucket deletes it.
const FOUND_AGE: Duration = Duration::from_mins(10);

/// Artifacts in a bucket; cheap to clone.
#[derive(Clone)]
pub struct BucketStorage(Arc<Shared>);

/// What the threads of this process share.
struct Shared {
    local: LocalDirectory,
    bucket: Bucket,
    cache: Cache,
    pointers: PointerCache,
    /// Paths without a pointer: requests for them ask the bucket at most once in this time. A new artifact is absent for as long on a
    /// replica that was asked for it before it was published.
    absent: RecentPaths,
    /// Paths whose pointers could not be read: their copies are served without another try.
    failed: RecentPaths,
    outage: Outage,
    superseded: Superseded,
    /// Locks of the files that are being downloaded or stored.
    writers: Mutex<HashMap<ArtifactPath, Weak<tokio::sync::Mutex<()>>>>,
    /// Permits of downloads from the bucket.
    downloads: Arc<Semaphore>,
    min_rate: MinimumRate,
    /// Maximum time that a request waits for a file.
    request_limit: Duration,
    runtime: Handle,
    stop: Token,
}

impl fmt::Debug for BucketStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BucketStorage").field(&self.0.bucket).finish()
    }
}

impl BucketStorage {
    /// Uses a bucket, with `local` as a cache of at most `max_cached_bytes` (0: unlimited), until `stop`. Blocks: it looks at the files
    /// that the cache has.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn open(
        local: LocalDirectory,
        bucket: Bucket,
        max_cached_bytes: u64,
        runtime: Handle,
        stop: Token,
    ) -> Result<Self, StorageError> {
        let storage = Self(Arc::new(Shared {
            local,
            bucket,
            cache: Cache::new(max_cached_bytes),
            pointers: PointerCache::default(),
            absent: RecentPaths::new(POINTER_AGE),
            failed: RecentPaths::new(POINTER_AGE),
            outage: Outage::default(),
            superseded: Superseded::default(),
            writers: Mutex::default(),
            downloads: Arc::new(Semaphore::new(MAX_DOWNLOADS)),
            min_rate: MIN_RATE,
            request_limit: REQUEST_LIMIT,
            runtime,
            stop,
        }));
        let shared = &storage.0;
        for (path, bytes) in shared.local.copies()? {
            shared.keep(&path, bytes);
        }
        Ok(storage)
    }
}

impl Shared {
    /// Waits for an operation on the objects of a path; ends early when the program stops. Blocks.
    fn wait<T>(
        &self,
        path: &ArtifactPath,
        work: impl Future<Output = Result<T, BucketError>>,
    ) -> Result<T, StorageError> {
        self.wait_for(|| self.bucket.pointer_key(path), work)
    }

    /// As [`Self::wait`], for an operation on a key, which is for the message only.
    fn wait_for<T>(
        &self,
        key: impl FnOnce() -> Path,
        work: impl Future<Output = Result<T, BucketError>>,
    ) -> Result<T, StorageError> {
        let result = self.runtime.block_on(async {
            tokio::select! {
                result = work => result,
                () = self.stop.cancelled() => Err(self.bucket.error("reach", &key(), Problem::Stopped)),
            }
        });
        result.map_err(StorageError::from)
    }

    /// Returns the pointer of a path: the cached one, if it was read within `age`, or else that of the bucket. An object that is no pointer
    /// counts as none.
    async fn pointer(&self, path: &ArtifactPath, age: Duration) -> Result<Option<Pointer>, BucketError> {
        match self.valid_pointer(path, age).await {
            Err(error) if *error.problem() == Problem::InvalidPointer => {
                self.pointers.remove(path);
                Ok(None)
            }
            read => read,
        }
    }

    /// As [`Self::pointer`], but an object that is no pointer is an error.
    async fn valid_pointer(
        &self,
        path: &ArtifactPath,
        age: Duration,
    ) -> Result<Option<Pointer>, BucketError> {
        let cached = self.pointers.get(path);
        if let Some(cached) = cached.filter(|cached| cached.read_at.elapsed() < age) {
            return Ok(Some(cached.pointer));
        }
        let read_at = Instant::now();
        let stored = self.bucket.pointer(path).await?;
        if self.outage.end() {
            tracing::info!("the bucket can be read again");
        }
        let Some(stored) = stored else {
            self.pointers.remove(path);
            return Ok(None);
        };
        let Some(pointer) = stored.pointer else {
            let key = self.bucket.pointer_key(path);
            return Err(self.bucket.error("read", &key, Problem::InvalidPointer));
        };
        self.pointers.insert(path, &pointer, read_at, None);
        Ok(Some(pointer))
    }

    /// Returns the lock of the file at a path, which its writers hold.
    fn writer(&self, path: &ArtifactPath) -> Arc<tokio::sync::Mutex<()>> {
        let mut writers = lock(&self.writers);
        if let Some(writer) = writers.get(path).and_then(Weak::upgrade) {
            return writer;
        }
        writers.retain(|_, writer| writer.strong_count() > 0);
        let writer = Arc::default();
        writers.insert(path.clone(), Arc::downgrade(&writer));
        writer
    }

    /// Adds a file to the cache, and removes what exceeds its limit. Blocks.
    fn keep(&self, path: &ArtifactPath, bytes: u64) {
        for evicted in self.cache.insert(path, bytes) {
            let writer = self.writer(&evicted.path);
            // A file that is being stored must be there until it is uploaded. It is removed with the next one.
            let Ok(_alone) = writer.try_lock() else {
                self.cache.restore(evicted);
                continue;
            };
            if let Err(error) = self.local.evict(&evicted.path) {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, path = %evicted.path, "cannot remove a file from the cache");
            }
        }
    }
}

#[cfg(test)]
mod tests;
