//! Artifact storage: a trait, its implementation in a local directory with Flux's layout, and one in a bucket ([`bucket`]), which uses
//! such a directory as its cache.
//!
//! Artifacts are published by rename: a reader sees the complete old or new file, and a status only names files that
//! survive a power failure. All functions block, except [`Storage::is_unchanged`].

mod address;
pub mod bucket;
mod digest_cache;
mod directory;
mod local;
mod path;
mod retention;
mod settled;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use address::TOKEN_PARAMETER;
pub use address::{AddressError, AdvertisedAddress, advertised_address};
use jiff::Timestamp;
pub use local::LocalDirectory;
pub(crate) use path::open_below;
pub use path::{ArtifactPath, InvalidPathComponent, ObjectDirectory};
pub use retention::Retention;
use sluice_api::digest::Digest;
use sluice_runtime::failure::{Class, Failure};
#[cfg(test)]
use tests::crashes::checkpoint;

use crate::archive::StoredFile;

/// Marks a completed step in the handling of local files. Tests kill the process at one of them.
#[cfg(not(test))]
const fn checkpoint(_: &'static str) {}

/// Artifact storage.
pub trait Storage: Send + Sync {
    /// Starts a new file for `path`, invisible until published.
    ///
    /// # Errors
    /// The directory cannot be created, or another process is writing the same artifact.
    fn create(&self, path: &ArtifactPath) -> Result<Box<dyn Draft>, StorageError>;

    /// Verifies that the file exists with this digest. Removes a damaged file.
    ///
    /// # Errors
    /// The file cannot be read, or a damaged file cannot be removed.
    fn verify(&self, path: &ArtifactPath, digest: &str) -> Result<FileState, StorageError>;

    /// Returns whether nothing is to be collected beside the file, and the file exists with this digest. Unlike the others it does not
    /// block: it returns `false` where only [`Storage::collect`] and [`Storage::verify`] can tell.
    fn is_unchanged(&self, _path: &ArtifactPath, _digest: &str) -> bool {
        false
    }

    /// Opens the file for reading. It stays readable if it is superseded or removed meanwhile.
    ///
    /// # Errors
    /// The file does not exist or cannot be opened.
    fn open(&self, path: &ArtifactPath) -> Result<Box<dyn StoredFile>, StorageError>;

    /// Returns the index of the artifact, if it has one. It may be damaged or belong to an earlier file of this path.
    ///
    /// # Errors
    /// The index exists and cannot be read.
    fn index(&self, path: &ArtifactPath) -> Result<Option<Vec<u8>>, StorageError>;

    /// Marks the artifact as superseded, which starts its retention time.
    ///
    /// # Errors
    /// The mark cannot be written.
    fn supersede(&self, path: &ArtifactPath, now: Timestamp) -> Result<(), StorageError>;

    /// Removes files that were superseded or abandoned more than `retention` ago, except `current`. Returns the number
    /// of removed artifacts.
    ///
    /// # Errors
    /// The directory cannot be read, or a file cannot be removed.
    fn collect(
        &self,
        directory: &ObjectDirectory,
        current: Option<&ArtifactPath>,
        retention: Duration,
        now: Timestamp,
    ) -> Result<u64, StorageError>;

    /// Removes superseded artifacts of an object regardless of their age, until at most `keep` remain: `current` and
    /// the newest. For full disks only. Returns the number of removed artifacts.
    ///
    /// # Errors
    /// The directory cannot be read, or a file cannot be removed.
    fn free_space(
        &self,
        directory: &ObjectDirectory,
        current: Option<&ArtifactPath>,
        keep: usize,
    ) -> Result<u64, StorageError>;

    /// Removes all files of a deleted object. Returns whether there were any.
    ///
    /// # Errors
    /// A file cannot be removed.
    fn remove(&self, directory: &ObjectDirectory) -> Result<bool, StorageError>;

    /// Returns the objects with files here, whether they still exist or not.
    ///
    /// # Errors
    /// The files cannot be listed.
    fn directories(&self) -> Result<Vec<ObjectDirectory>, StorageError>;

    /// Returns the URL of an artifact for consumers.
    fn url(&self, path: &ArtifactPath) -> String;
}

/// A file under construction. Removed if dropped without [`Draft::publish`].
pub trait Draft: Write + Send {
    /// Makes the file durable, then visible under its name, and stores its index beside it. An index that cannot be stored is not an error:
    /// it only saves work.
    ///
    /// # Errors
    /// The file cannot be synced or renamed.
    fn publish(self: Box<Self>, digest: &Digest, index: Option<&[u8]>) -> Result<(), StorageError>;
}

/// The state of a stored file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileState {
    /// It exists with the expected digest.
    Intact,
    /// It does not exist or is not a regular file.
    Missing,
    /// Its content differed from the expected digest; it was removed.
    Damaged(String),
}

/// An error of artifact storage.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The object's directory cannot be created.
    #[error("failed to create artifact directory: {source}")]
    Directory {
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// Another process is writing the same artifact.
    #[error("another process is writing artifact {0}")]
    Locked(String),
    /// A file cannot be written, synced or renamed.
    #[error("unable to archive artifact to storage: {what} {path}: {source}", path = .path.display())]
    Write {
        /// The attempted operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A file or directory cannot be read.
    #[error("failed to stat target artifact path: {path}: {source}", path = .path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A file or directory cannot be removed.
    #[error("failed to remove {path}: {source}", path = .path.display())]
    Remove {
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The bucket cannot be used.
    #[error("failed to use the bucket of artifacts: {0}")]
    Bucket(#[from] bucket::BucketError),
    /// The storage root is not a directory.
    #[error("storage path {path} must be an existing directory: {source}", path = .path.display())]
    Root {
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
}

impl StorageError {
    /// Returns the conversion of an error of reading `path`.
    fn read(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Read {
            path: path.to_owned(),
            source,
        }
    }

    /// Returns the conversion of an error of removing `path`.
    fn remove(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Remove {
            path: path.to_owned(),
            source,
        }
    }

    /// Returns whether the disk or its quota is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Directory { source } | Self::Write { source, .. } => is_full(source),
            // Nothing on this disk makes room in a bucket.
            Self::Locked(_)
            | Self::Read { .. }
            | Self::Remove { .. }
            | Self::Bucket(_)
            | Self::Root { .. } => false,
        }
    }
}

/// Returns whether a write failed for lack of space.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

impl Failure for StorageError {
    fn class(&self) -> Class {
        match self {
            // A disk or a bucket may be repaired; an edit of the object does not help.
            Self::Directory { .. }
            | Self::Locked(_)
            | Self::Write { .. }
            | Self::Read { .. }
            | Self::Remove { .. }
            | Self::Bucket(_)
            | Self::Root { .. } => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Directory { .. } => "DirectoryCreationFailed",
            Self::Locked(_) => "Failed",
            Self::Write { .. } => "ArchiveOperationFailed",
            Self::Read { .. } | Self::Root { .. } => "StatOperationFailed",
            Self::Remove { .. } => "GarbageCollectionFailed",
            Self::Bucket(error) => error.reason(),
        }
    }
}

#[cfg(test)]
mod tests;
