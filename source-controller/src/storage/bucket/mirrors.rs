//! Recovery points of mirrors in the bucket: one object for each mirror, at a key with the name of the mirror.

use std::fs::File;
use std::io::{self, Cursor};
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use object_store::path::Path;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, timeout_at};

use super::error::{BucketError, Problem};
use super::objects::OpenContent;
use super::{BucketStorage, Shared};
use crate::git::{MAX_RECOVERY_BYTES, Pieces, RecoveryStore};
use crate::storage::StorageError;

/// Age at which a recovery point is deleted, in seconds: 30 days. This deletes the recovery points of repositories that are no longer used.
/// A repository that is used gets a new recovery point with its next fetch from nothing.
const MAX_AGE: i64 = 30 * 24 * 60 * 60;

/// The pieces of a recovery point.
struct ObjectPieces {
    shared: Arc<Shared>,
    key: Path,
    content: OpenContent,
    deadline: Instant,
}

impl RecoveryStore for BucketStorage {
    fn store(&self, mirror: &str, header: Vec<u8>, pack: File) -> io::Result<()> {
        let shared = &*self.0;
        let key = shared.bucket.mirror_key(Some(mirror));
        let content = Cursor::new(header).chain(tokio::fs::File::from_std(pack));
        let put = shared.bucket.put(&key, content);
        shared.wait_for(|| key.clone(), put).map_err(io::Error::other)
    }

    fn open(&self, mirror: &str, deadline: Instant) -> io::Result<Option<Pieces>> {
        let shared = Arc::clone(&self.0);
        let key = shared.bucket.mirror_key(Some(mirror));
        let opened = shared.wait_until(deadline, &key, shared.bucket.open(&key));
        let content = match opened {
            Ok(content) => content,
            Err(StorageError::Bucket(error)) if *error.problem() == Problem::Missing => return Ok(None),
            Err(error) => return Err(io::Error::other(error)),
        };
        if content.meta.size > MAX_RECOVERY_BYTES {
            let problem = format!("the recovery point has {} bytes", content.meta.size);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
        }
        Ok(Some(Box::new(ObjectPieces {
            shared,
            key,
            content,
            deadline,
        })))
    }

    fn remove_expired(&self, now: Timestamp) -> io::Result<usize> {
        let shared = &*self.0;
        let prefix = shared.bucket.mirror_key(None);
        let remove = async {
            let mut removed = 0;
            for found in shared.bucket.list_below(&prefix).await? {
                let age = now.as_second().saturating_sub(found.last_modified.timestamp());
                if age > MAX_AGE {
                    shared.bucket.delete(&found.location).await?;
                    removed += 1;
                }
            }
            Ok::<_, BucketError>(removed)
        };
        shared
            .wait_for(|| prefix.clone(), remove)
            .map_err(io::Error::other)
    }
}

impl Iterator for ObjectPieces {
    type Item = io::Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        let Self {
            shared,
            key,
            content,
            deadline,
        } = self;
        let next = shared.bucket.next_piece(key, content);
        let piece = shared.wait_until(*deadline, key, next);
        piece.map_err(io::Error::other).transpose()
    }
}

impl Shared {
    /// As [`Self::wait_for`], until the deadline at the latest.
    fn wait_until<T>(
        &self,
        deadline: Instant,
        key: &Path,
        work: impl Future<Output = Result<T, BucketError>>,
    ) -> Result<T, StorageError> {
        let bounded = async {
            let result = timeout_at(deadline, work).await;
            result.unwrap_or_else(|_| Err(self.bucket.error("read", key, Problem::TimedOut)))
        };
        self.wait_for(|| key.clone(), bounded)
    }
}
