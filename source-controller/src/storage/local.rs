//! Stores artifacts in a local directory with Flux's layout, so that existing volumes can be reused. A file is temporary
//! until it is durable.

use std::collections::HashSet;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use sluice_api::digest::Digest;
use tempfile::NamedTempFile;

use super::address::AdvertisedAddress;
use super::digest_cache::{DigestCache, FileIdentity};
use super::directory::is_local_disk;
use super::path::{INDEX_SUFFIX, LOCK_SUFFIX, beside, open_nofollow};
use super::retention::{is_expired, is_settled, remove_leftovers};
use super::settled::SettledDirectories;
use super::{ArtifactPath, Draft, FileState, ObjectDirectory, Storage, StorageError, checkpoint, open_below};
use crate::archive::{Algorithm, Hasher, MAX_INDEX_BYTES, StoredFile};

const FILE_MODE: u32 = 0o600;

/// A storage directory and its advertised address.
#[derive(Clone, Debug)]
pub struct LocalDirectory {
    pub(super) root: PathBuf,
    address: AdvertisedAddress,
    pub(super) digests: Arc<DigestCache>,
    settled: Arc<SettledDirectories>,
    /// The directories above those of objects whose names this process has synced.
    pub(super) synced: Arc<Mutex<HashSet<PathBuf>>>,
    /// Whether a look at a file never waits for another machine.
    pub(super) is_local_disk: bool,
}

impl LocalDirectory {
    /// Opens an existing directory.
    ///
    /// # Errors
    /// `root` does not exist or is not a directory.
    pub fn open(
        root: impl Into<PathBuf>,
        address: impl Into<AdvertisedAddress>,
    ) -> Result<Self, StorageError> {
        let root = root.into();
        let found = fs::metadata(&root).and_then(|found| {
            let is_directory = found.is_dir().then_some(());
            is_directory.ok_or_else(|| ErrorKind::NotADirectory.into())
        });
        if let Err(source) = found {
            return Err(StorageError::Root { path: root, source });
        }
        Ok(Self {
            is_local_disk: is_local_disk(&root),
            root,
            address: address.into(),
            digests: Arc::default(),
            settled: Arc::default(),
            synced: Arc::default(),
        })
    }

    /// Returns the root directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the cached digest of a file below the root, if the file is unchanged.
    #[must_use]
    pub(crate) fn cached_digest(&self, relative: &Path, metadata: &Metadata) -> Option<Digest> {
        self.digests.digest(&self.root.join(relative), metadata)
    }

    /// Returns the number of files that this process has stored or removed so far.
    #[must_use]
    pub(crate) fn changes(&self) -> u64 {
        self.digests.changes()
    }

    fn absolute(&self, path: &ArtifactPath) -> PathBuf {
        path.below(&self.root)
    }

    /// Creates a temporary file in the object's directory.
    fn draft(&self, path: &ArtifactPath, directory: &Path, lock: Option<File>) -> io::Result<Box<dyn Draft>> {
        let file = tempfile::Builder::new()
            .prefix(path.file())
            .permissions(Permissions::from_mode(FILE_MODE))
            .tempfile_in(directory)?;
        checkpoint("file created");
        Ok(Box::new(LocalDraft {
            file,
            target: self.absolute(path),
            digests: Arc::clone(&self.digests),
            _lock: lock,
        }))
    }

    /// As [`Storage::create`], for a copy of a file that is stored elsewhere, and without the lock: the caller excludes other writers.
    ///
    /// # Errors
    /// The directory or the file cannot be created.
    pub(super) fn receive(&self, path: &ArtifactPath) -> Result<Box<dyn Draft>, StorageError> {
        let directory = self.create_directory(path.directory());
        let draft = directory.and_then(|directory| self.draft(path, &directory, None));
        draft.map_err(|source| StorageError::Directory { source })
    }

    /// Removes the copy of a file that is stored elsewhere. A missing one is not an error.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub(super) fn evict(&self, path: &ArtifactPath) -> Result<(), StorageError> {
        match self.remove_artifact(&self.absolute(path)) {
            Err(StorageError::Remove { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

impl Storage for LocalDirectory {
    fn create(&self, path: &ArtifactPath) -> Result<Box<dyn Draft>, StorageError> {
        let directory = self
            .create_directory(path.directory())
            .map_err(|source| StorageError::Directory { source })?;
        let lock_path = directory.join(format!("{}{LOCK_SUFFIX}", path.file()));
        let failed = |what, source| StorageError::Write {
            what,
            path: lock_path.clone(),
            source,
        };
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(|source| failed("cannot open lock", source))?;
        match lock.try_lock() {
            Ok(()) => checkpoint("locked"),
            Err(fs::TryLockError::WouldBlock) => return Err(StorageError::Locked(path.to_string())),
            Err(fs::TryLockError::Error(source)) => return Err(failed("cannot lock", source)),
        }
        self.draft(path, &directory, Some(lock))
            .map_err(|source| failed("cannot create a file for", source))
    }

    fn verify(&self, path: &ArtifactPath, digest: &str) -> Result<FileState, StorageError> {
        let absolute = self.absolute(path);
        let failed = StorageError::read(&absolute);
        let metadata = match fs::symlink_metadata(&absolute) {
            Ok(metadata) if metadata.is_file() => metadata,
            Ok(_) => return Ok(FileState::Missing),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(FileState::Missing);
            }
            Err(error) => return Err(failed(error)),
        };
        if self.digests.is_known(&absolute, &metadata, digest) {
            return Ok(FileState::Intact);
        }
        let problem = match digest.parse::<Digest>() {
            Err(problem) => problem.to_string(),
            Ok(wanted) => {
                let found = hash(&absolute, &metadata, wanted.algorithm()).map_err(failed)?;
                if found == wanted {
                    self.digests.insert(&absolute, &metadata, found);
                    return Ok(FileState::Intact);
                }
                format!("computed digest doesn't match '{digest}'")
            }
        };
        let removed = fs::remove_file(&absolute);
        self.digests.remove(&absolute);
        removed.map_err(StorageError::remove(&absolute))?;
        Ok(FileState::Damaged(problem))
    }

    fn is_unchanged(&self, path: &ArtifactPath, digest: &str) -> bool {
        if !self.is_local_disk {
            return false;
        }
        let mut absolute = path.directory().below(&self.root);
        let is_settled = fs::symlink_metadata(&absolute).is_ok_and(|metadata| {
            let identity = FileIdentity::of(&metadata);
            self.settled.contains(&absolute, &identity, path.file())
        });
        absolute.push(path.file());
        is_settled
            && fs::symlink_metadata(&absolute).is_ok_and(|metadata| {
                metadata.is_file() && self.digests.is_known(&absolute, &metadata, digest)
            })
    }

    fn open(&self, path: &ArtifactPath) -> Result<Box<dyn StoredFile>, StorageError> {
        let file = open_below(&self.root, &path.relative());
        Ok(Box::new(file.map_err(StorageError::read(&self.absolute(path)))?))
    }

    fn index(&self, path: &ArtifactPath) -> Result<Option<Vec<u8>>, StorageError> {
        let relative = beside(&path.relative(), INDEX_SUFFIX);
        let absolute = self.root.join(&relative);
        let failed = StorageError::read(&absolute);
        let file = match open_below(&self.root, &relative) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        let length = file.metadata().map_err(failed)?.len().min(MAX_INDEX_BYTES);
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
        // One byte over the limit tells the parser that the file is too large.
        file.take(MAX_INDEX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        Ok(Some(bytes))
    }

    /// Sets the file's modification time to the time of supersession: durable without a separate record, and compatible
    /// with Flux's garbage collection.
    fn supersede(&self, path: &ArtifactPath, now: Timestamp) -> Result<(), StorageError> {
        let absolute = self.absolute(path);
        let touched = open_nofollow(&absolute).and_then(|file| file.set_modified(SystemTime::from(now)));
        checkpoint("superseded");
        match touched {
            Err(source) if source.kind() != ErrorKind::NotFound => Err(StorageError::Write {
                what: "cannot touch",
                path: absolute,
                source,
            }),
            _ => Ok(()),
        }
    }

    fn collect(
        &self,
        directory: &ObjectDirectory,
        current: Option<&ArtifactPath>,
        retention: Duration,
        now: Timestamp,
    ) -> Result<u64, StorageError> {
        let absolute = directory.below(&self.root);
        // Read before the list, so that the next call notices a change during the list.
        let identity = fs::symlink_metadata(&absolute).map(|metadata| FileIdentity::of(&metadata));
        let stable = identity.ok().filter(FileIdentity::is_stable);
        if let (Some(identity), Some(current)) = (&stable, current)
            && self.settled.contains(&absolute, identity, current.file())
        {
            return Ok(0);
        }
        let files = self.files(directory)?;
        let mut removed = 0;
        for file in files.iter().filter(|file| file.is_superseded(current)) {
            if is_expired(&file.metadata, retention, now) {
                self.remove_artifact(&file.path)?;
                removed += 1;
            }
        }
        remove_leftovers(&files, retention, now)?;
        if let (Some(identity), Some(current)) = (stable, current)
            && is_settled(&files, current)
        {
            self.settled.insert(&absolute, identity, current.file());
        }
        Ok(removed)
    }

    fn free_space(
        &self,
        directory: &ObjectDirectory,
        current: Option<&ArtifactPath>,
        keep: usize,
    ) -> Result<u64, StorageError> {
        let mut superseded = self.files(directory)?;
        superseded.retain(|file| file.is_superseded(current));
        superseded.sort_by_key(|superseded| {
            let superseded_at = superseded.metadata.modified().ok();
            (std::cmp::Reverse(superseded_at), superseded.path.clone())
        });
        let retained = keep.saturating_sub(usize::from(current.is_some()));
        let mut removed = 0;
        for superseded in superseded.iter().skip(retained) {
            self.remove_artifact(&superseded.path)?;
            removed += 1;
        }
        Ok(removed)
    }

    fn remove(&self, directory: &ObjectDirectory) -> Result<bool, StorageError> {
        let absolute = directory.below(&self.root);
        let removed = fs::remove_dir_all(&absolute);
        self.digests.remove(&absolute);
        self.settled.remove(&absolute);
        match removed {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StorageError::remove(&absolute)(error)),
        }
    }

    fn directories(&self) -> Result<Vec<ObjectDirectory>, StorageError> {
        self.objects()
    }

    fn url(&self, path: &ArtifactPath) -> String {
        self.address.url(path)
    }
}

/// A temporary file beside its target, with the lock of the artifact if other processes may write it.
struct LocalDraft {
    file: NamedTempFile,
    /// The final path.
    target: PathBuf,
    digests: Arc<DigestCache>,
    _lock: Option<File>,
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
    fn publish(self: Box<Self>, digest: &Digest, index: Option<&[u8]>) -> Result<(), StorageError> {
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
        self.digests.insert_written(&target, &metadata, digest.clone());
        if let Err(error) = replace_index(&target, index) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                artifact = %target.display(),
                "cannot store the index: the next artifact is compressed as a whole"
            );
        }
        Ok(())
    }
}

/// Replaces the index beside an artifact. It is not synced: after a power failure its digest tells whether it is complete.
fn replace_index(artifact: &Path, index: Option<&[u8]>) -> io::Result<()> {
    let path = beside(artifact, INDEX_SUFFIX);
    let Some(bytes) = index else {
        return match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    };
    let mut file = NamedTempFile::new_in(artifact.parent().unwrap_or(artifact))?;
    file.write_all(bytes)?;
    file.persist(&path).map_err(|error| error.error)?;
    checkpoint("index stored");
    Ok(())
}

/// Hashes the file that `metadata` belongs to; fails if it was replaced.
fn hash(path: &Path, metadata: &Metadata, algorithm: Algorithm) -> io::Result<Digest> {
    use std::os::unix::fs::MetadataExt;
    let file = open_nofollow(path)?;
    if file.metadata()?.ino() != metadata.ino() {
        return Err(io::Error::other("the file was replaced during the read"));
    }
    Hasher::of(algorithm, file)
}
