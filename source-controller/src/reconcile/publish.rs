//! From a packed draft to an artifact that a status may name. Blocks.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_api::source::Artifact;

use crate::archive::Totals;
use crate::storage::{ArtifactPath, Draft, Storage, StorageError};

/// A draft that holds a whole archive.
pub(super) struct Packed {
    /// The file, not visible yet.
    pub draft: Box<dyn Draft>,
    /// What went into it.
    pub totals: Totals,
    /// Where it will lie.
    pub path: ArtifactPath,
    /// The revision it was made of.
    pub revision: String,
}

/// Publishes. The retention time of `previous`, if it is another file, begins first: should the program die in between,
/// it is kept a little too long at worst.
///
/// # Errors
/// The file cannot be made durable or visible.
pub(super) fn publish(
    storage: &dyn Storage,
    packed: Packed,
    previous: Option<&ArtifactPath>,
    now: Timestamp,
) -> Result<Artifact, StorageError> {
    let Packed {
        draft,
        totals,
        path,
        revision,
    } = packed;
    if let Some(previous) = previous.filter(|previous| **previous != path) {
        storage.supersede(previous, now)?;
    }
    draft.publish(&totals.digest)?;
    Ok(Artifact {
        digest: totals.digest.to_string(),
        // The API keeps whole seconds.
        last_update_time: Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
        metadata: None,
        path: path.to_string(),
        revision,
        size: i64::try_from(totals.size).ok(),
        url: storage.url(&path),
    })
}
