//! Errors that end a reconciliation, and how the object shows them.

use sluice_api::condition::SourceCondition as Kind;
use sluice_runtime::blocking::JobError;
use sluice_runtime::failure::{Class, Failure, chain};

use super::include::IncludeError;
use super::pack::PackError;
use super::resolve::ResolveError;
use super::submodules::SubmoduleError;
use super::verify::VerifyError;
use crate::git::FetchError;
use crate::storage::{InvalidPathComponent, StorageError};
use crate::tree::SparseError;

/// An error that ends a reconciliation without an artifact.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The spec cannot be resolved to a source.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The remote cannot be read.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// A submodule cannot be fetched.
    #[error(transparent)]
    Submodule(#[from] SubmoduleError),
    /// The commit lacks a sparse path.
    #[error(transparent)]
    Sparse(#[from] SparseError),
    /// The signature of the commit or tag cannot be verified.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// An include is not available or cannot be copied.
    #[error(transparent)]
    Include(#[from] IncludeError),
    /// The archive cannot be built.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// The storage cannot be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A blocking job was stopped or timed out.
    #[error("work on the artifact: {0}")]
    Job(#[from] JobError),
    /// The object's name cannot be used in a path.
    #[error(transparent)]
    Name(#[from] InvalidPathComponent),
}

impl ReconcileError {
    /// Returns the condition that shows the failure next to `Ready`, if any. The condition is `True`, except
    /// `SourceVerified`, which is `False`.
    #[must_use]
    pub const fn condition(&self) -> Option<Kind> {
        match self {
            Self::Pack(PackError::Ignore { .. } | PackError::IgnoreTooLarge { .. } | PackError::Stopped)
            | Self::Storage(StorageError::Locked(_))
            | Self::Job(_) => None,
            Self::Fetch(FetchError::Storage(_)) => Some(Kind::StorageOperationFailed),
            Self::Verify(VerifyError::Read(_))
            | Self::Resolve(_)
            | Self::Fetch(_)
            | Self::Submodule(_)
            | Self::Sparse(_)
            | Self::Pack(PackError::Read(_) | PackError::ControlCharacter { .. }) => Some(Kind::FetchFailed),
            Self::Verify(_) => Some(Kind::SourceVerified),
            Self::Include(IncludeError::NotFound { .. } | IncludeError::NoArtifact { .. }) => {
                Some(Kind::IncludeUnavailable)
            }
            Self::Include(_) | Self::Pack(PackError::Write(_)) | Self::Storage(_) | Self::Name(_) => {
                Some(Kind::StorageOperationFailed)
            }
        }
    }

    /// Returns the message for conditions and events.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Fetch(FetchError::Empty) => self.to_string(),
            Self::Fetch(error) => format!("failed to checkout and determine revision: {}", chain(error)),
            Self::Submodule(error) => format!("failed to checkout and determine revision: {error}"),
            other => chain(other),
        }
    }
}

impl Failure for ReconcileError {
    fn class(&self) -> Class {
        match self {
            Self::Resolve(error) => error.class(),
            Self::Fetch(error) => error.class(),
            Self::Submodule(error) => error.class(),
            Self::Sparse(error) => error.class(),
            Self::Verify(error) => error.class(),
            Self::Include(error) => error.class(),
            Self::Pack(error) => error.class(),
            Self::Storage(error) => error.class(),
            Self::Job(_) => Class::Transient,
            Self::Name(_) => Class::Terminal,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Resolve(error) => error.reason(),
            Self::Fetch(error) => error.reason(),
            Self::Submodule(error) => error.reason(),
            Self::Sparse(error) => error.reason(),
            Self::Verify(error) => error.reason(),
            Self::Include(error) => error.reason(),
            Self::Pack(error) => error.reason(),
            Self::Storage(error) => error.reason(),
            Self::Job(_) => "Failed",
            Self::Name(_) => "InvalidPath",
        }
    }
}
