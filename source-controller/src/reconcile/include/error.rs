//! Errors of includes.

use std::io;
use std::time::Duration;

use sluice_runtime::artifact::UnpackError;
use sluice_runtime::failure::{Class, Failure};

use crate::storage::{InvalidPathComponent, StorageError};
use crate::tree::{OverlayError, TreeError};

/// An error that prevents an include.
#[derive(Debug, thiserror::Error)]
pub enum IncludeError {
    /// The repository does not exist or belongs to another controller.
    #[error(
        "could not get resource for include '{name}': GitRepository.source.toolkit.fluxcd.io \"{name}\" not found"
    )]
    NotFound {
        /// Name of the repository.
        name: String,
        /// Delay before the next attempt.
        wait: Duration,
    },
    /// The repository has no artifact yet.
    #[error("no artifact available for include '{name}'")]
    NoArtifact {
        /// Name of the repository.
        name: String,
        /// Delay before the next attempt.
        wait: Duration,
    },
    /// The target path in the tree cannot be resolved.
    #[error("path calculation for include '{name}' failed: {source}")]
    Slot {
        /// Name of the repository.
        name: String,
        /// The cause.
        #[source]
        source: TreeError,
    },
    /// The content cannot be copied.
    #[error("failed to copy '{name}' include from {from} to {to}: {source}")]
    Copy {
        /// Name of the repository.
        name: String,
        /// The requested source path.
        from: String,
        /// The target path.
        to: String,
        /// The cause.
        #[source]
        source: Box<CopyError>,
    },
}

/// An error while copying the content of an include.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The repository's name cannot be used in a path.
    #[error(transparent)]
    Name(#[from] InvalidPathComponent),
    /// The status of the included repository names a file outside its directory.
    #[error("'{0}' is not an artifact of that repository")]
    Foreign(String),
    /// The file does not exist or cannot be opened.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The status has no valid digest.
    #[error("invalid artifact digest: {0}")]
    Digest(String),
    /// The file was replaced during the read, or is damaged.
    #[error("the artifact file no longer matches digest {0}")]
    Changed(String),
    /// The archive cannot be extracted.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// The temporary directory cannot be created.
    #[error("cannot create a temporary directory: {0}")]
    Temporary(#[source] io::Error),
    /// The source path does not exist, or the target path is occupied.
    #[error(transparent)]
    Overlay(#[from] OverlayError),
}

impl Failure for IncludeError {
    fn class(&self) -> Class {
        match self {
            Self::NotFound { wait, .. } | Self::NoArtifact { wait, .. } => Class::Waiting(*wait),
            // A new commit or artifact can fix this; the retry detects it.
            Self::Slot { .. } | Self::Copy { .. } => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "NotFound",
            Self::NoArtifact { .. } => "NoArtifact",
            Self::Slot { .. } => "IllegalPath",
            Self::Copy { .. } => "CopyFailure",
        }
    }
}
