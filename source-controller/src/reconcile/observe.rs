//! What is there before anything is done: superseded artifacts are collected, and the artifact that the status names is
//! looked at. Blocks.

use std::time::Duration;

use jiff::Timestamp;
use sluice_api::source::{Artifact, GitRepositoryStatus};

use crate::storage::{ObjectDirectory, Storage, StorageError, Verdict};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Observed {
    /// The artifact that is stored, as it was verified, with its address of today.
    pub artifact: Option<Artifact>,
    /// Whether the status names an artifact that is not there any more.
    pub lost: bool,
    /// What is wrong with a file that was found damaged, and removed.
    pub damage: Option<String>,
    /// Superseded artifacts that were removed.
    pub collected: u64,
}

/// Looks at storage. The retention time counts from when an artifact was superseded; a file that cannot be collected
/// now is collected by a later pass.
///
/// # Errors
/// The artifact's file cannot be read, or a damaged one not be removed.
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
                "superseded artifacts stay for now"
            );
            0
        });
    let gone = Observed {
        lost: true,
        collected,
        ..Observed::default()
    };
    let Some(path) = path else { return Ok(gone) };
    Ok(match storage.verify(&path, &artifact.digest)? {
        Verdict::Good => {
            let artifact = Artifact {
                url: storage.url(&path),
                ..artifact.clone()
            };
            Observed {
                artifact: Some(artifact),
                lost: false,
                ..gone
            }
        }
        Verdict::Missing => gone,
        Verdict::Damaged(damage) => Observed {
            damage: Some(damage),
            ..gone
        },
    })
}
