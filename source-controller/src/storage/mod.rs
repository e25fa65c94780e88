//! Where artifacts are kept: a trait, and the local directory that Flux's layout describes.
//!
//! Publication is by rename only: a reader sees the whole new file or the whole old one, and a status names a file only
//! once it would survive a power cut. All calls block; callers are on threads that may.

mod address;
mod draft;
mod local;
mod open;
mod path;
mod step;
mod verify;

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use sluice_api::digest::Digest;
use sluice_runtime::failure::{Class, Failure};

pub(crate) use address::TOKEN_PARAMETER;
pub use address::{AddressError, AdvertisedAddress, advertised};
pub use local::LocalDirectory;
pub(crate) use open::open_below;
pub use path::{ArtifactPath, ObjectDirectory, UnsafePart};

/// Keeps artifacts.
pub trait Storage: Send + Sync {
    /// Begins a new file for `path`, which nobody sees until it is published.
    ///
    /// # Errors
    /// The directory cannot be made, or another process is writing the same artifact.
    fn create(&self, path: &ArtifactPath) -> Result<Box<dyn Draft>, StorageError>;

    /// Whether the file is there and has this digest. A damaged file is removed.
    ///
    /// # Errors
    /// The file cannot be read, or a damaged one not be removed.
    fn verify(&self, path: &ArtifactPath, digest: &str) -> Result<Verdict, StorageError>;

    /// Opens the file for reading. It stays readable when it is succeeded or collected meanwhile.
    ///
    /// # Errors
    /// The file is not there, or cannot be opened.
    fn open(&self, path: &ArtifactPath) -> Result<Box<dyn Read + Send>, StorageError>;

    /// Notes that the artifact is about to be succeeded by another: from now on its retention time runs.
    ///
    /// # Errors
    /// The note cannot be written.
    fn supersede(&self, path: &ArtifactPath, now: Timestamp) -> Result<(), StorageError>;

    /// Removes what was superseded (or left behind unfinished) longer than `retention` ago. Never removes `current`.
    /// Gives the number of artifacts removed.
    ///
    /// # Errors
    /// The directory cannot be read, or a file not be removed.
    fn collect(
        &self,
        directory: &ObjectDirectory,
        current: Option<&ArtifactPath>,
        retention: Duration,
        now: Timestamp,
    ) -> Result<u64, StorageError>;

    /// Removes superseded artifacts of an object, whatever their age, until at most `keep` artifacts are left, the newest
    /// and `current`. For a disk that is full: otherwise a superseded artifact has its retention time. Gives the number
    /// of artifacts removed.
    ///
    /// # Errors
    /// The directory cannot be read, or a file not be removed.
    fn make_room(
        &self,
        directory: &ObjectDirectory,
        current: Option<&ArtifactPath>,
        keep: usize,
    ) -> Result<u64, StorageError>;

    /// Removes everything of an object that is gone. Gives whether there was anything.
    ///
    /// # Errors
    /// A file cannot be removed.
    fn remove(&self, directory: &ObjectDirectory) -> Result<bool, StorageError>;

    /// The address that consumers fetch the artifact from.
    fn url(&self, path: &ArtifactPath) -> String;
}

/// How long superseded artifacts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Each of them this long, counted from when it was superseded.
    pub ttl: Duration,
    /// On a full disk, this many artifacts of an object at most, the current one included.
    pub records: usize,
}

/// A file that is being written. Dropped without [`Draft::publish`], it leaves nothing behind.
pub trait Draft: Write + Send {
    /// Makes the file durable and then visible under its name.
    ///
    /// # Errors
    /// The file cannot be synced or renamed.
    fn publish(self: Box<Self>, digest: &Digest) -> Result<(), StorageError>;
}

/// What a look at a stored file found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There, and with the digest that is wanted.
    Good,
    /// Not there, or no regular file.
    Missing,
    /// There, but not what the status says; it has been removed.
    Damaged(String),
}

/// Why storage did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The object's directory cannot be made.
    #[error("failed to create artifact directory: {source}")]
    Directory {
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Another process is writing the same artifact.
    #[error("another process is writing artifact {0}")]
    Locked(String),
    /// A file cannot be written, synced or renamed.
    #[error("unable to archive artifact to storage: {what} {path}: {source}", path = .path.display())]
    Write {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file or directory cannot be read.
    #[error("failed to stat target artifact path: {path}: {source}", path = .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file or directory cannot be removed.
    #[error("failed to remove {path}: {source}", path = .path.display())]
    Remove {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The storage root is no directory.
    #[error("storage path {path} must be an existing directory: {source}", path = .path.display())]
    Root {
        /// The path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl StorageError {
    /// Whether the disk, or what is granted of it, is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Directory { source } | Self::Write { source, .. } => is_full(source),
            Self::Locked(_) | Self::Read { .. } | Self::Remove { .. } | Self::Root { .. } => false,
        }
    }
}

/// Whether a write failed for want of space.
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
            // A full or broken disk may be mended; no edit of the object would help.
            Self::Directory { .. }
            | Self::Locked(_)
            | Self::Write { .. }
            | Self::Read { .. }
            | Self::Remove { .. }
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
        }
    }
}

#[cfg(test)]
mod tests;
