//! Inspects storage at the start of a reconciliation: removes superseded artifacts and verifies the one in the status.
//! Blocks.

use std::time::Duration;

use jiff::Timestamp;
use sluice_api::source::{Artifact, GitRepositoryStatus};

use crate::storage::{FileState, ObjectDirectory, Storage, StorageError};

/// The state of an object's artifacts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Observed {
    /// The stored artifact after verification, with its current URL.
    pub artifact: Option<Artifact>,
    /// Whether the status names an artifact whose file is missing.
    pub is_missing: bool,
    /// The defect of a damaged file, which was removed.
    pub damage: Option<String>,
    /// Number of superseded artifacts that were removed.
    pub collected: u64,
}

/// Collects garbage and verifies the current artifact. The retention time starts when an artifact is superseded. If
/// collection fails, a later reconciliation retries it.
///
/// # Errors
/// The artifact's file cannot be read, or a damaged file cannot be removed.
pub(super) fn observe(
    storage: &dyn Storage,
    directory: &ObjectDirectory,
    status: &GitRepositoryStatus,
    retention: Duration,
    now: Timestamp,
) -> Result<Observed, StorageError> {
    let Some(artifact) = &status.artifact else {
        return Ok(Observed::default());
    };
    let path = directory.recorded(&artifact.path);
    let collected = storage
        .collect(directory, path.as_ref(), retention, now)
        .unwrap_or_else(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "garbage collection failed; retried by the next reconciliation"
            );
            0
        });
    let missing = Observed {
        is_missing: true,
        collected,
        ..Observed::default()
    };
    let Some(path) = path else { return Ok(missing) };
    Ok(match storage.verify(&path, &artifact.digest)? {
        FileState::Intact => {
            let artifact = Artifact {
                url: storage.url(&path),
                ..artifact.clone()
            };
            Observed {
                artifact: Some(artifact),
                is_missing: false,
                ..missing
            }
        }
        FileState::Missing => missing,
        FileState::Damaged(damage) => Observed {
            damage: Some(damage),
            ..missing
        },
    })
}
