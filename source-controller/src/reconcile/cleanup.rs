//! The end of an object: its artifacts go, then its finalizer. Needs neither source nor Secret, so it cannot get stuck.

use sluice_runtime::event::Event;

use super::told::COLLECTED;
use crate::storage::{ObjectDirectory, Storage, StorageError};

/// Removes the object's artifacts. Blocks.
///
/// # Errors
/// A file cannot be removed; the finalizer must stay then.
pub(super) fn cleanup(
    storage: &dyn Storage,
    directory: &ObjectDirectory,
) -> Result<Option<Event>, StorageError> {
    let removed = storage.remove(directory)?;
    Ok(removed.then(|| Event::unposted(COLLECTED, "garbage collected artifacts for deleted resource")))
}
