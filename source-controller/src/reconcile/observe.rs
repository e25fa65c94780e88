//! The state at the start of a reconciliation: what the status says, and what storage holds. Removes superseded artifacts
//! and verifies the one in the status.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use sluice_api::annotation::requested_at;
use sluice_api::source::{Artifact, GitRepository, GitRepositoryStatus};

use crate::storage::{FileState, ObjectDirectory, Storage, StorageError};

/// The state of an object's artifacts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Observed<'a> {
    /// The stored artifact after verification, with its current URL. Nearly always it is as the status has it.
    pub artifact: Option<Cow<'a, Artifact>>,
    /// Whether the status names an artifact whose file is missing.
    pub is_missing: bool,
    /// The defect of a damaged file, which was removed.
    pub damage: Option<String>,
    /// Number of superseded artifacts that were removed.
    pub collected: u64,
}

impl<'a> Observed<'a> {
    /// Returns the state that the status records, for when storage is not read.
    pub(super) fn recorded(object: &'a GitRepository) -> Self {
        let artifact = object.status.as_ref().and_then(|status| status.artifact.as_ref());
        Self {
            artifact: artifact.map(Cow::Borrowed),
            ..Self::default()
        }
    }
}

/// Returns whether a user waits for the result, because of a request or an edit.
pub(super) fn is_awaited(object: &GitRepository) -> bool {
    is_requested(object) || is_new_generation(object)
}

/// Returns whether the object has an unhandled reconcile request in its annotations.
pub(super) fn is_requested(object: &GitRepository) -> bool {
    let requested = requested_at(object.annotations());
    let status = object.status.as_ref();
    let handled = status.and_then(|status| status.last_handled_reconcile_at.as_deref());
    requested.is_some() && requested != handled
}

/// Returns whether no reconciliation of the current generation has ended.
pub(super) fn is_new_generation(object: &GitRepository) -> bool {
    object.metadata.generation != observed_generation(object)
}

/// Returns the generation that the last reconciliation to end has seen.
pub(super) fn observed_generation(object: &GitRepository) -> Option<i64> {
    object
        .status
        .as_ref()
        .and_then(|status| status.observed_generation)
}

/// Returns the state of an object without an artifact, or whose artifact is as it was and the only one, without waiting for the disk.
/// Otherwise [`observe`] must read it.
pub(super) fn unchanged<'a>(
    storage: &dyn Storage,
    directory: &ObjectDirectory,
    status: Option<&'a GitRepositoryStatus>,
) -> Option<Observed<'a>> {
    let Some(artifact) = status.and_then(|status| status.artifact.as_ref()) else {
        return Some(Observed::default());
    };
    let path = directory.recorded(&artifact.path)?;
    storage.is_unchanged(&path, &artifact.digest).then(|| Observed {
        artifact: Some(with_url(artifact, storage.url(&path))),
        ..Observed::default()
    })
}

/// Returns the artifact with its current URL.
fn with_url(artifact: &Artifact, url: String) -> Cow<'_, Artifact> {
    if artifact.url == url {
        return Cow::Borrowed(artifact);
    }
    Cow::Owned(Artifact {
        url,
        ..artifact.clone()
    })
}

/// Collects garbage and verifies the current artifact. The retention time starts when an artifact is superseded. If
/// collection fails, a later reconciliation retries it. Blocks.
///
/// # Errors
/// The artifact's file cannot be read, or a damaged file cannot be removed.
pub(super) fn observe(
    storage: &dyn Storage,
    directory: &ObjectDirectory,
    status: Option<&GitRepositoryStatus>,
    retention: Duration,
    now: Timestamp,
) -> Result<Observed<'static>, StorageError> {
    let Some(artifact) = status.and_then(|status| status.artifact.as_ref()) else {
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
        FileState::Intact => Observed {
            artifact: Some(Cow::Owned(with_url(artifact, storage.url(&path)).into_owned())),
            is_missing: false,
            ..missing
        },
        FileState::Missing => missing,
        FileState::Damaged(damage) => Observed {
            damage: Some(damage),
            ..missing
        },
    })
}
