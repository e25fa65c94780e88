//! Sends an object to a bucket, in parts if it is large.

use std::time::Duration;

use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, PutMultipartOptions, PutOptions, PutPayload};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::runtime::Handle;

use super::error::Problem;

/// Size of the parts of an upload, in bytes; a smaller file is sent at once. One part is in memory.
const PART: usize = 8 << 20;
/// Time limit for the deletion of the parts of a failed upload.
const ABORT_LIMIT: Duration = Duration::from_mins(1);

/// Sends an object, in place of what the key has.
pub(super) async fn upload(
    store: &dyn ObjectStore,
    key: &Path,
    mut content: impl AsyncRead + Unpin,
) -> object_store::Result<()> {
    let first = read_part(&mut content).await?;
    if first.len() < PART {
        let put = store.put_opts(key, PutPayload::from(first), PutOptions::default());
        return put.await.map(drop);
    }
    let options = PutMultipartOptions::default();
    let parts = store.put_multipart_opts(key, options).await?;
    let mut upload = IncompleteUpload {
        parts: Some(parts),
        key: key.clone(),
    };
    upload.send(first, &mut content).await
}

/// An upload in parts. Unless it becomes complete, its parts are deleted when it is dropped, by a task of its own: a time limit or the end
/// of the program drops the future of the upload, which can then send nothing more.
struct IncompleteUpload {
    /// `None` after the completion.
    parts: Option<Box<dyn MultipartUpload>>,
    key: Path,
}

impl IncompleteUpload {
    /// Sends the parts of an object one after another. An empty part after the last full one is not sent.
    async fn send(
        &mut self,
        first: Vec<u8>,
        content: &mut (impl AsyncRead + Unpin),
    ) -> object_store::Result<()> {
        let Some(parts) = &mut self.parts else {
            return Ok(());
        };
        let mut part = first;
        while !part.is_empty() {
            parts.put_part(PutPayload::from(part)).await?;
            part = read_part(content).await?;
        }
        parts.complete().await?;
        self.parts = None;
        Ok(())
    }
}

impl Drop for IncompleteUpload {
    fn drop(&mut self) {
        // Without a runtime, the program has ended. A rule of the bucket deletes the parts.
        if let (Some(parts), Ok(runtime)) = (self.parts.take(), Handle::try_current()) {
            runtime.spawn(abort(parts, self.key.clone()));
        }
    }
}

/// Deletes the parts of an upload.
async fn abort(mut parts: Box<dyn MultipartUpload>, key: Path) {
    match tokio::time::timeout(ABORT_LIMIT, parts.abort()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::debug!(error = %Problem::of(&error), %key, "the parts of a failed upload are left");
        }
        Err(_) => tracing::debug!(%key, "the parts of a failed upload are left: no answer in time"),
    }
}

/// Reads up to the size of a part.
async fn read_part(content: &mut (impl AsyncRead + Unpin)) -> object_store::Result<Vec<u8>> {
    let mut part = Vec::new();
    let read = content.take(PART as u64).read_to_end(&mut part).await;
    read.map_err(|error| object_store::Error::Generic {
        store: "local file",
        source: error.into(),
    })?;
    Ok(part)
}
