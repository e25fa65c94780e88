//! The objects of a bucket: pointers, contents and indexes by the paths of artifacts, with a time limit for each operation. Nothing is
//! listed to find an artifact.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStore, PutMode, PutOptions, PutPayload, UpdateVersion};
use sluice_api::digest::Digest;
use tokio::io::AsyncRead;

use super::error::{BucketError, Problem};
use super::pointer::{self, Pointer};
use super::upload::upload;
use crate::archive::MAX_INDEX_BYTES;
use crate::storage::path::{INDEX_SUFFIX, KIND};
use crate::storage::{ArtifactPath, ObjectDirectory};

/// What the keys of recovery points of mirrors begin with. No kind has this name.
const MIRRORS: &str = "mirrors";
/// Suffix of pointers.
const POINTER_SUFFIX: &str = ".digest";
/// Time limit of an operation on a small object, with its retries, and for the next piece of a download.
const SMALL_LIMIT: Duration = Duration::from_mins(1);
/// Time limit of an upload, and of a listing.
const LARGE_LIMIT: Duration = Duration::from_mins(10);

/// A bucket; cheap to clone.
#[derive(Clone, Debug)]
pub struct Bucket {
    store: Arc<dyn ObjectStore>,
    name: Arc<str>,
    /// What all keys begin with; empty or with a slash at its end.
    prefix: Arc<str>,
}

/// A pointer and the version of its object.
pub(super) struct StoredPointer {
    /// `None` if the object is no pointer. Its version permits the leader to replace it.
    pub(super) pointer: Option<Pointer>,
    version: UpdateVersion,
}

/// A content that is being read.
pub(super) struct OpenContent {
    /// Its object. The entity tag alone does not tell it from what replaces it: it is often the digest of what was sent, and so a content
    /// that was damaged on the server has the tag of the intact one. The time of the change differs.
    pub(super) meta: ObjectMeta,
    pieces: BoxStream<'static, object_store::Result<Bytes>>,
}

impl Bucket {
    /// Uses a bucket that is open. `name` is for messages; all keys begin with `prefix`.
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>, name: &str, prefix: &str) -> Self {
        let prefix = match prefix.trim_matches('/') {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        Self {
            store,
            name: name.into(),
            prefix: prefix.into(),
        }
    }

    /// Returns the key of a pointer.
    pub(super) fn pointer_key(&self, path: &ArtifactPath) -> Path {
        Path::from(format!("{}{path}{POINTER_SUFFIX}", self.prefix))
    }

    /// Returns the key of a content, which has its digest in the name.
    pub(super) fn content_key(&self, path: &ArtifactPath, digest: &Digest) -> Path {
        let (prefix, digest) = (&self.prefix, digest.to_string().replace(':', "-"));
        Path::from(format!("{prefix}{path}.{digest}"))
    }

    /// Returns the key of the index of a content.
    pub(super) fn index_key(&self, path: &ArtifactPath, digest: &Digest) -> Path {
        Path::from(format!("{}{INDEX_SUFFIX}", self.content_key(path, digest)))
    }

    /// Returns the key of the recovery point of a mirror, or what those of all mirrors begin with.
    pub(super) fn mirror_key(&self, mirror: Option<&str>) -> Path {
        let prefix = &self.prefix;
        match mirror {
            Some(mirror) => Path::from(format!("{prefix}{MIRRORS}/{mirror}")),
            None => Path::from(format!("{prefix}{MIRRORS}")),
        }
    }

    /// Returns the object whose directory has this key.
    pub(super) fn directory_of(&self, key: &Path) -> Option<ObjectDirectory> {
        let mut parts = key.as_ref().strip_prefix(&*self.prefix)?.split('/');
        let (kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        let directory = ObjectDirectory::git_repository(namespace, name).ok()?;
        (kind == KIND && parts.count() == 1).then_some(directory)
    }

    /// Returns the artifact whose pointer has this key.
    pub(super) fn artifact_of(&self, directory: &ObjectDirectory, pointer: &Path) -> Option<ArtifactPath> {
        let path = pointer.as_ref().strip_prefix(&*self.prefix)?;
        directory.recorded(path.strip_suffix(POINTER_SUFFIX)?)
    }

    /// Returns what the keys of an object's files, or of all objects', begin with.
    pub(super) fn directory_key(&self, directory: Option<&ObjectDirectory>) -> Path {
        match directory {
            Some(directory) => Path::from(format!("{}{directory}", self.prefix)),
            None => Path::from(format!("{}{KIND}", self.prefix)),
        }
    }

    /// Returns the object at the key of a path's pointer, if there is one.
    pub(super) async fn pointer(&self, path: &ArtifactPath) -> Result<Option<StoredPointer>, BucketError> {
        let key = self.pointer_key(path);
        let read = async {
            let found = self.store.get_opts(&key, GetOptions::default()).await?;
            let version = UpdateVersion {
                e_tag: found.meta.e_tag.clone(),
                version: found.meta.version.clone(),
            };
            let size = found.meta.size;
            let bytes = if size > pointer::MAX_BYTES {
                Bytes::new()
            } else {
                found.bytes().await?
            };
            Ok::<_, object_store::Error>((bytes, version))
        };
        let found = self.optional("read", &key, SMALL_LIMIT, read).await?;
        Ok(found.map(|(bytes, version)| StoredPointer {
            pointer: Pointer::parse(&bytes),
            version,
        }))
    }

    /// Lets a path have another content: creates the pointer, or replaces this version of it and no other.
    pub(super) async fn put_pointer(
        &self,
        path: &ArtifactPath,
        pointer: &Pointer,
        replaced: Option<StoredPointer>,
    ) -> Result<(), BucketError> {
        let key = self.pointer_key(path);
        let mode = replaced.map_or(PutMode::Create, |stored| PutMode::Update(stored.version));
        let payload = PutPayload::from(pointer.to_string());
        let put = self.store.put_opts(&key, payload, PutOptions::from(mode));
        match self.limited("write", &key, SMALL_LIMIT, put).await {
            // The answer to an earlier try may be lost.
            Err(error) if *error.problem() == Problem::Changed => {
                let stored = self.pointer(path).await?;
                let is_ours = stored.is_some_and(|stored| stored.pointer.as_ref() == Some(pointer));
                if is_ours { Ok(()) } else { Err(error) }
            }
            put => put.map(drop),
        }
    }

    /// Records in the pointer that the content that was read is damaged. Returns whether pointer and content are still these: the leader may
    /// have stored the content again during the download, and then the pointer is the same.
    pub(super) async fn mark_damaged(
        &self,
        path: &ArtifactPath,
        pointer: &Pointer,
        read: &ObjectMeta,
    ) -> Result<bool, BucketError> {
        let stored = self.pointer(path).await?;
        let Some(stored) = stored.filter(|stored| stored.pointer.as_ref() == Some(pointer)) else {
            return Ok(false);
        };
        if !self.is_current(path, &pointer.digest, read).await? {
            return Ok(false);
        }
        let damaged = Pointer {
            is_damaged: true,
            ..pointer.clone()
        };
        self.put_pointer(path, &damaged, Some(stored)).await?;
        // The leader may have stored the content in between. It reads the pointer after that: one of both sees what the other has written.
        if self.is_current(path, &pointer.digest, read).await? {
            return Ok(true);
        }
        let marked = self.pointer(path).await?;
        if let Some(marked) = marked.filter(|marked| marked.pointer.as_ref() == Some(&damaged)) {
            self.put_pointer(path, pointer, Some(marked)).await?;
        }
        Ok(false)
    }

    /// Returns whether a content is stored that is still the one that was read.
    async fn is_current(
        &self,
        path: &ArtifactPath,
        digest: &Digest,
        read: &ObjectMeta,
    ) -> Result<bool, BucketError> {
        let found = self.content_meta(path, digest).await?;
        Ok(found.is_some_and(|found| found == *read))
    }

    /// Returns whether the content is stored with its size.
    pub(super) async fn has_content(
        &self,
        path: &ArtifactPath,
        pointer: &Pointer,
    ) -> Result<bool, BucketError> {
        let found = self.content_meta(path, &pointer.digest).await?;
        Ok(found.is_some_and(|found| found.size == pointer.size))
    }

    /// Returns size and version of a content, if it is stored.
    async fn content_meta(
        &self,
        path: &ArtifactPath,
        digest: &Digest,
    ) -> Result<Option<ObjectMeta>, BucketError> {
        let key = self.content_key(path, digest);
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        let head = self.store.get_opts(&key, options);
        let found = self.optional("look up", &key, SMALL_LIMIT, head).await?;
        Ok(found.map(|found| found.meta))
    }

    /// Stores a content in place of what its key has. The key has the digest, so another writer stores the same.
    pub(super) async fn put_content(
        &self,
        path: &ArtifactPath,
        digest: &Digest,
        file: File,
    ) -> Result<(), BucketError> {
        let key = self.content_key(path, digest);
        self.put(&key, tokio::fs::File::from_std(file)).await
    }

    /// Stores an object of any size in place of what its key has.
    pub(super) async fn put(&self, key: &Path, content: impl AsyncRead + Unpin) -> Result<(), BucketError> {
        let upload = upload(&*self.store, key, content);
        self.limited("write", key, LARGE_LIMIT, upload).await
    }

    /// Stores the index of a content. Indexes of one content may differ, and each is good.
    pub(super) async fn put_index(
        &self,
        path: &ArtifactPath,
        digest: &Digest,
        index: Vec<u8>,
    ) -> Result<(), BucketError> {
        let key = self.index_key(path, digest);
        let put = self
            .store
            .put_opts(&key, PutPayload::from(index), PutOptions::default());
        self.limited("write", &key, SMALL_LIMIT, put).await.map(drop)
    }

    /// Returns the index of a content, if it has one of a permitted size.
    pub(super) async fn index(
        &self,
        path: &ArtifactPath,
        digest: &Digest,
    ) -> Result<Option<Vec<u8>>, BucketError> {
        let key = self.index_key(path, digest);
        let read = async {
            let found = self.store.get_opts(&key, GetOptions::default()).await?;
            let is_small = found.meta.size <= MAX_INDEX_BYTES;
            let bytes = if is_small {
                Some(found.bytes().await?)
            } else {
                None
            };
            Ok::<_, object_store::Error>(bytes)
        };
        let found = self.optional("read", &key, SMALL_LIMIT, read).await?;
        Ok(found.flatten().map(|bytes| bytes.to_vec()))
    }

    /// Opens a content for reading.
    pub(super) async fn open(&self, key: &Path) -> Result<OpenContent, BucketError> {
        let get = self.store.get_opts(key, GetOptions::default());
        let found = self.limited("read", key, SMALL_LIMIT, get).await?;
        Ok(OpenContent {
            meta: found.meta.clone(),
            pieces: found.into_stream(),
        })
    }

    /// Returns the next piece of a content; `None` at its end.
    pub(super) async fn next_piece(
        &self,
        key: &Path,
        content: &mut OpenContent,
    ) -> Result<Option<Bytes>, BucketError> {
        let next = content.pieces.try_next();
        self.limited("read", key, SMALL_LIMIT, next).await
    }

    /// Returns the keys of an object's files, or of all objects'.
    pub(super) async fn list(&self, directory: Option<&ObjectDirectory>) -> Result<Vec<Path>, BucketError> {
        let listed = self.list_below(&self.directory_key(directory)).await?;
        Ok(listed.into_iter().map(|found| found.location).collect())
    }

    /// Returns the objects whose keys begin with these parts.
    pub(super) async fn list_below(&self, prefix: &Path) -> Result<Vec<ObjectMeta>, BucketError> {
        let listed = self.store.list(Some(prefix)).try_collect();
        self.limited("list", prefix, LARGE_LIMIT, listed).await
    }

    /// Deletes an object. A missing one is no error.
    pub(super) async fn delete(&self, key: &Path) -> Result<(), BucketError> {
        let keys = stream::iter([Ok(key.clone())]).boxed();
        let deleted = self.store.delete_stream(keys).try_collect::<Vec<_>>();
        self.optional("delete", key, SMALL_LIMIT, deleted).await.map(drop)
    }

    /// Returns the error of an operation on a key.
    pub(super) fn error(&self, operation: &'static str, key: &Path, problem: Problem) -> BucketError {
        BucketError::new(operation, &self.name, key, problem)
    }

    /// Returns the error of an operation on the content of a path.
    pub(super) fn content_error(
        &self,
        path: &ArtifactPath,
        digest: &Digest,
        problem: Problem,
    ) -> BucketError {
        self.error("read", &self.content_key(path, digest), problem)
    }

    /// Replaces an object, as somebody else may do it.
    #[cfg(test)]
    pub(super) async fn overwrite(&self, key: &Path, content: &'static [u8]) {
        let put = self
            .store
            .put_opts(key, PutPayload::from(content), PutOptions::default());
        put.await.unwrap();
    }

    /// Runs an operation within a time limit.
    async fn limited<T>(
        &self,
        operation: &'static str,
        key: &Path,
        limit: Duration,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, BucketError> {
        let problem = match tokio::time::timeout(limit, work).await {
            Ok(Ok(result)) => return Ok(result),
            Ok(Err(error)) => Problem::of(&error),
            Err(_) => Problem::TimedOut,
        };
        Err(self.error(operation, key, problem))
    }

    /// As [`Self::limited`]; `None` for a missing object.
    async fn optional<T>(
        &self,
        operation: &'static str,
        key: &Path,
        limit: Duration,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> Result<Option<T>, BucketError> {
        match self.limited(operation, key, limit, work).await {
            Err(error) if *error.problem() == Problem::Missing => Ok(None),
            result => result.map(Some),
        }
    }
}

/// Returns whether a key is that of a pointer.
pub(super) fn is_pointer(key: &Path) -> bool {
    key.as_ref().ends_with(POINTER_SUFFIX)
}
