//! Artifacts in a bucket, with a local directory as a bounded cache.
//!
//! The leader builds an artifact in the local directory, then uploads content, index and pointer, in this order, and publishes the
//! status at last. Every replica serves: one that lacks a file downloads it once (`provide`). Keys follow from the path of the artifact:
//! its pointer is at `<path>.digest`, the content at `<path>.<algorithm>-<digits>`, and the index beside the content.
//!
//! As the other storage, this one blocks: its functions wait for the bucket on the threads of blocking work.

mod cache;
mod connect;
mod error;
mod objects;
mod pointer;
mod provide;
mod store;
mod superseded;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use cache::Cache;
pub use connect::ConnectError;
pub(crate) use connect::connect;
pub use error::{BucketError, Problem};
pub use objects::Bucket;
use pointer::Pointer;
use sluice_runtime::shutdown::Token;
use sluice_runtime::sync::lock;
use superseded::Superseded;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::{ArtifactPath, LocalDirectory, StorageError};

/// How long a request for a file is answered without another look at its pointer.
const POINTER_AGE: Duration = Duration::from_secs(1);
/// How long the leader assumes that what it has found or stored is still in the bucket. Only a person or a rule of the bucket deletes it.
const FOUND_AGE: Duration = Duration::from_mins(10);

/// Artifacts in a bucket; cheap to clone.
#[derive(Clone)]
pub struct BucketStorage(Arc<Shared>);

/// What the threads of this process share.
struct Shared {
    local: LocalDirectory,
    bucket: Bucket,
    cache: Cache,
    /// What is known of the bucket.
    known: Mutex<HashMap<ArtifactPath, Known>>,
    superseded: Superseded,
    /// Locks of the files that are being downloaded or stored.
    writers: Mutex<HashMap<ArtifactPath, Weak<tokio::sync::Mutex<()>>>>,
    runtime: Handle,
    stop: Token,
}

/// What is known of the object at a path.
#[derive(Clone, Debug)]
struct Known {
    pointer: Pointer,
    /// When the pointer was read or written.
    read_at: Instant,
    /// When the content was found or written.
    found_at: Option<Instant>,
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
            known: Mutex::default(),
            superseded: Superseded::default(),
            writers: Mutex::default(),
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
    /// Waits for the bucket; ends early when the program stops. Blocks.
    fn wait<T>(
        &self,
        path: &ArtifactPath,
        work: impl Future<Output = Result<T, BucketError>>,
    ) -> Result<T, StorageError> {
        let stopped = || {
            let key = self.bucket.pointer_key(path);
            self.bucket.error("reach", &key, Problem::Stopped)
        };
        let result = self.runtime.block_on(async {
            tokio::select! {
                result = work => result,
                () = self.stop.cancelled() => Err(stopped()),
            }
        });
        result.map_err(StorageError::from)
    }

    /// Returns the pointer of a path: the known one, if it was read within `age`, or else that of the bucket.
    async fn pointer(&self, path: &ArtifactPath, age: Duration) -> Result<Option<Pointer>, BucketError> {
        if let Some(known) = self.known(path).filter(|known| known.read_at.elapsed() < age) {
            return Ok(Some(known.pointer));
        }
        let read_at = Instant::now();
        let stored = self.bucket.pointer(path).await?;
        let pointer = stored.map(|stored| stored.pointer);
        match &pointer {
            Some(pointer) => self.learn(path, pointer, read_at, None),
            None => drop(lock(&self.known).remove(path)),
        }
        Ok(pointer)
    }

    fn known(&self, path: &ArtifactPath) -> Option<Known> {
        lock(&self.known).get(path).cloned()
    }

    /// Records a pointer. What is known of the same content stays.
    fn learn(&self, path: &ArtifactPath, pointer: &Pointer, read_at: Instant, found_at: Option<Instant>) {
        let mut known = lock(&self.known);
        let earlier = known.get(path).filter(|known| known.pointer == *pointer);
        let found_at = found_at.or_else(|| earlier.and_then(|known| known.found_at));
        let pointer = pointer.clone();
        let learned = Known {
            pointer,
            read_at,
            found_at,
        };
        known.insert(path.clone(), learned);
    }

    /// Counts the known pointer of a path as read just now, so that the next requests do not wait for a bucket that fails.
    fn trust(&self, path: &ArtifactPath) {
        if let Some(known) = lock(&self.known).get_mut(path) {
            known.read_at = Instant::now();
        }
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
            if let Err(error) = self.local.evict(&evicted) {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, path = %evicted, "cannot remove a file from the cache");
            }
        }
    }
}

#[cfg(test)]
mod tests;
