//! Why an include cannot be had.

use std::io;
use std::time::Duration;

use sluice_runtime::artifact::UnpackError;
use sluice_runtime::failure::{Class, Failure};

use crate::storage::{StorageError, UnsafePart};
use crate::tree::{OverlayError, TreeError};

/// Why an include cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum IncludeError {
    /// There is no such repository, or another controller's.
    #[error(
        "could not get resource for include '{name}': GitRepository.source.toolkit.fluxcd.io \"{name}\" not found"
    )]
    NotFound {
        /// Its name.
        name: String,
        /// When to look again.
        wait: Duration,
    },
    /// It has made nothing yet.
    #[error("no artifact available for include '{name}'")]
    NoArtifact {
        /// Its name.
        name: String,
        /// When to look again.
        wait: Duration,
    },
    /// Its place in the tree cannot be found out.
    #[error("path calculation for include '{name}' failed: {source}")]
    Place {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: TreeError,
    },
    /// Its content cannot be taken over.
    #[error("failed to copy '{name}' include from {from} to {to}: {source}")]
    Copy {
        /// Its name.
        name: String,
        /// What of it is wanted.
        from: String,
        /// Where it goes.
        to: String,
        /// Why.
        #[source]
        source: Box<CopyError>,
    },
}

/// Why the content of an include cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The name is none of an object.
    #[error(transparent)]
    Name(#[from] UnsafePart),
    /// The status of the other repository names a file that is not its own.
    #[error("'{0}' is no artifact of that repository")]
    Foreign(String),
    /// The file is not there, or cannot be opened.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The status names no digest that can be checked.
    #[error("its digest cannot be checked: {0}")]
    Digest(String),
    /// The file was succeeded while it was read, or is damaged.
    #[error("its file does not have the digest {0} any more")]
    Changed(String),
    /// The archive cannot be extracted.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// No directory for its content can be made.
    #[error("no temporary directory can be made: {0}")]
    Temporary(#[source] io::Error),
    /// There is no such path in it, or the target is taken.
    #[error(transparent)]
    Overlay(#[from] OverlayError),
}

impl IncludeError {
    /// Whether it was found out before the remote was asked.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::NotFound { .. } | Self::NoArtifact { .. })
    }
}

impl Failure for IncludeError {
    fn class(&self) -> Class {
        match self {
            Self::NotFound { wait, .. } | Self::NoArtifact { wait, .. } => Class::Waiting(*wait),
            // A new commit or artifact mends it, which is noticed by looking again.
            Self::Place { .. } | Self::Copy { .. } => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "NotFound",
            Self::NoArtifact { .. } => "NoArtifact",
            Self::Place { .. } => "IllegalPath",
            Self::Copy { .. } => "CopyFailure",
        }
    }
}
