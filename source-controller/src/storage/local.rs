//! Stores artifacts in a local directory with Flux's layout, so that existing volumes can be reused.

use std::fs::{self, DirBuilder, DirEntry, File, Metadata, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use rustix::fs::OFlags;
use sluice_api::digest::Digest;

use super::address::AdvertisedAddress;
use super::digest_cache::DigestCache;
use super::draft::LocalDraft;
use super::path::KIND;
use super::{ArtifactPath, Draft, FileState, ObjectDirectory, Storage, StorageError, checkpoint, open_below};
use crate::archive::{Algorithm, Hasher};

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const LOCK_SUFFIX: &str = ".lock";

/// A storage directory and its advertised address.
#[derive(Clone, Debug)]
pub struct LocalDirectory {
    root: PathBuf,
    address: AdvertisedAddress,
    digests: Arc<DigestCache>,
}

/// A file that no status refers to.
struct Superseded {
    path: PathBuf,
    metadata: Metadata,
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
            root,
            address: address.into(),
            digests: Arc::default(),
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

    /// Returns the objects with a directory here, whether they still exist or not. Ignores names that are invalid for
    /// objects.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn objects(&self) -> Result<Vec<ObjectDirectory>, StorageError> {
        let mut found = Vec::new();
        for namespace in directories(&self.root.join(KIND))? {
            for name in directories(&self.root.join(KIND).join(&namespace))? {
                found.extend(ObjectDirectory::git_repository(&namespace, &name));
            }
        }
        Ok(found)
    }

    fn absolute(&self, path: &ArtifactPath) -> PathBuf {
        self.root.join(path.relative())
    }

    /// Returns every file of an object.
    fn files(&self, directory: &ObjectDirectory) -> Result<Vec<(PathBuf, Metadata)>, StorageError> {
        let absolute = self.root.join(directory.relative());
        let mut found = Vec::new();
        for entry in entries(&absolute)? {
            let entry = entry?;
            // The file was removed concurrently.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_file() {
                found.push((entry.path(), metadata));
            }
        }
        Ok(found)
    }

    /// Returns every file except `current` and the locks: superseded artifacts and leftovers of crashes.
    fn superseded(
        &self,
        directory: &ObjectDirectory,
        current: Option<&ArtifactPath>,
    ) -> Result<Vec<Superseded>, StorageError> {
        let collected =
            |name: &str| !name.ends_with(LOCK_SUFFIX) && current.is_none_or(|current| current.file() != name);
        let files = self.files(directory)?.into_iter();
        let superseded = files.filter(|(path, _)| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(collected)
        });
        Ok(superseded
            .map(|(path, metadata)| Superseded { path, metadata })
            .collect())
    }

    /// Removes an artifact and its lock.
    fn remove_artifact(&self, path: &Path) -> Result<(), StorageError> {
        fs::remove_file(path).map_err(StorageError::remove(path))?;
        self.digests.remove(path);
        checkpoint("removed");
        let mut lock = path.as_os_str().to_owned();
        lock.push(LOCK_SUFFIX);
        // Ignore a missing lock; a leftover lock is an empty file.
        let _ = fs::remove_file(lock);
        Ok(())
    }

    /// Removes stale locks, which a killed writer leaves behind. Locks are only tried, never awaited, so removing an
    /// unlocked one is safe.
    fn remove_stale_locks(
        &self,
        directory: &ObjectDirectory,
        retention: Duration,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        for (path, metadata) in self.files(directory)? {
            let Some(artifact) = path.to_str().and_then(|path| path.strip_suffix(LOCK_SUFFIX)) else {
                continue;
            };
            if Path::new(artifact).exists() || !expired(&metadata, retention, now) {
                continue;
            }
            let free = open_nofollow(&path).is_ok_and(|lock| lock.try_lock().is_ok());
            if free {
                fs::remove_file(&path).map_err(StorageError::remove(&path))?;
            }
        }
        Ok(())
    }

    /// Creates the object's directory durably.
    fn create_directory(&self, directory: &ObjectDirectory) -> io::Result<PathBuf> {
        let absolute = self.root.join(directory.relative());
        if !absolute.is_dir() {
            DirBuilder::new()
                .recursive(true)
                .mode(DIRECTORY_MODE)
                .create(&absolute)?;
            checkpoint("directory created");
            for parent in absolute
                .ancestors()
                .skip(1)
                .take_while(|parent| parent.starts_with(&self.root))
            {
                File::open(parent)?.sync_all()?;
            }
        }
        Ok(absolute)
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
        let file = tempfile::Builder::new()
            .prefix(path.file())
            .permissions(Permissions::from_mode(FILE_MODE))
            .tempfile_in(&directory)
            .map_err(|source| failed("cannot create a file for", source))?;
        checkpoint("file created");
        Ok(Box::new(LocalDraft {
            file,
            target: self.absolute(path),
            digests: Arc::clone(&self.digests),
            _lock: lock,
        }))
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
        if self
            .digests
            .stable_digest(&absolute, &metadata)
            .is_some_and(|cached| cached.to_string() == digest)
        {
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
        self.digests.remove(&absolute);
        fs::remove_file(&absolute).map_err(StorageError::remove(&absolute))?;
        Ok(FileState::Damaged(problem))
    }

    fn open(&self, path: &ArtifactPath) -> Result<Box<dyn Read + Send>, StorageError> {
        let file = open_below(&self.root, &path.relative());
        Ok(Box::new(file.map_err(StorageError::read(&self.absolute(path)))?))
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
        let mut removed = 0;
        for superseded in self.superseded(directory, current)? {
            if expired(&superseded.metadata, retention, now) {
                self.remove_artifact(&superseded.path)?;
                removed += 1;
            }
        }
        self.remove_stale_locks(directory, retention, now)?;
        Ok(removed)
    }

    fn free_space(
        &self,
        directory: &ObjectDirectory,
        current: Option<&ArtifactPath>,
        keep: usize,
    ) -> Result<u64, StorageError> {
        let mut superseded = self.superseded(directory, current)?;
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
        let absolute = self.root.join(directory.relative());
        self.digests.remove(&absolute);
        match fs::remove_dir_all(&absolute) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StorageError::remove(&absolute)(error)),
        }
    }

    fn url(&self, path: &ArtifactPath) -> String {
        self.address.url(path)
    }
}

/// Lists a directory; empty if it does not exist.
fn entries(path: &Path) -> Result<impl Iterator<Item = Result<DirEntry, StorageError>>, StorageError> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        entries => Some(entries.map_err(StorageError::read(path))?),
    };
    let entries = entries.into_iter().flatten();
    Ok(entries.map(|entry| entry.map_err(StorageError::read(path))))
}

/// Returns the names of subdirectories, without links; none if the directory does not exist.
fn directories(path: &Path) -> Result<Vec<String>, StorageError> {
    let mut names = Vec::new();
    for entry in entries(path)? {
        let entry = entry?;
        if entry.file_type().map_err(StorageError::read(path))?.is_dir() {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

/// Opens the file without following a link that may have replaced it.
fn open_nofollow(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
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

fn expired(metadata: &Metadata, retention: Duration, now: Timestamp) -> bool {
    let since = metadata
        .modified()
        .ok()
        .and_then(|time| SystemTime::from(now).duration_since(time).ok());
    since.is_some_and(|since| since > retention)
}
