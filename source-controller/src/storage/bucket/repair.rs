//! Stores again, at each listing, what replicas have marked as damaged: no reconciliation checks the artifact of a suspended object.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use object_store::path::Path;
use sluice_api::digest::Digest;

use super::Shared;
use super::error::BucketError;
use super::pointer::Pointer;
use crate::storage::{ArtifactPath, FileState, ObjectDirectory, Storage as _, StorageError};

/// Number of pointers that are read at once.
const CONCURRENT_READS: usize = 16;

/// An artifact whose content is damaged in the bucket.
struct MarkedArtifact<'a> {
    path: &'a ArtifactPath,
    pointer: Pointer,
}

impl Shared {
    /// Stores again the marked contents whose files are on this disk. The others wait for a reconciliation. Blocks.
    pub(super) fn repair(&self, listed: &BTreeMap<ObjectDirectory, BTreeSet<Path>>) {
        let of_directory = |(directory, keys): (&ObjectDirectory, &BTreeSet<Path>)| {
            let paths = keys
                .iter()
                .filter_map(|key| self.bucket.artifact_of(directory, key));
            paths.collect::<Vec<_>>()
        };
        let root = self.local.root();
        let mut local: Vec<ArtifactPath> = listed.iter().flat_map(of_directory).collect();
        local.retain(|path| root.join(path.relative()).exists());
        let key = || self.bucket.directory_key(None);
        let marked = match self.wait_for(key, self.marked(&local)) {
            Ok(marked) => marked,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "cannot look for damaged artifacts in the bucket");
                return;
            }
        };
        for artifact in marked {
            if let Err(error) = self.upload_copy(artifact.path, &artifact.pointer.digest) {
                let (error, path) = (&error as &dyn std::error::Error, artifact.path);
                tracing::warn!(error, %path, "cannot store a damaged artifact again");
            }
        }
    }

    /// Returns the artifacts among these that are marked.
    async fn marked<'a>(&self, paths: &'a [ArtifactPath]) -> Result<Vec<MarkedArtifact<'a>>, BucketError> {
        let reads = stream::iter(paths).map(|path| async move {
            let stored = self.bucket.pointer(path).await?;
            let pointer = stored.and_then(|stored| stored.pointer);
            let damaged = pointer.filter(|pointer| pointer.is_damaged);
            Ok::<_, BucketError>(damaged.map(|pointer| MarkedArtifact { path, pointer }))
        });
        let read = reads.buffer_unordered(CONCURRENT_READS);
        let read: Vec<Option<MarkedArtifact<'a>>> = read.try_collect().await?;
        Ok(read.into_iter().flatten().collect())
    }

    /// Uploads the local file if it is intact. Returns its state. Blocks.
    pub(super) fn upload_copy(
        &self,
        path: &ArtifactPath,
        digest: &Digest,
    ) -> Result<FileState, StorageError> {
        let writer = self.writer(path);
        let _alone = self.runtime.block_on(writer.lock_owned());
        let state = self.local.verify(path, &digest.to_string())?;
        if state == FileState::Intact {
            let index = self.local.index(path)?;
            self.upload(path, digest, index.as_deref())?;
            tracing::info!(%path, "artifact uploaded: it was missing or damaged in the bucket");
        }
        Ok(state)
    }
}
