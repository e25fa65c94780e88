//! Prints a warning when objects cannot be stored, and a message when they can again.

use std::sync::Arc;

use sluice_embedded::StorageHealth;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::view::Screen;

/// Follows the store's health until `stop`.
pub(super) async fn follow(
    mut health: watch::Receiver<StorageHealth>,
    screen: Arc<Screen>,
    stop: CancellationToken,
) {
    loop {
        let current = health.borrow_and_update().clone();
        if let Some(text) = warning(&current) {
            screen.print(&text);
        }
        let changed = tokio::select! {
            () = stop.cancelled() => return,
            changed = health.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
        if *health.borrow() == StorageHealth::Writable {
            screen.print("Objects are stored again.");
        }
    }
}

/// Returns the warning for a state of the store.
fn warning(health: &StorageHealth) -> Option<String> {
    match health {
        StorageHealth::Writable => None,
        StorageHealth::OnReserve => Some(
            "Warning: the disk of the state directory is full. Running applies can still store their state; nothing new starts \
             until there is space."
                .to_owned(),
        ),
        StorageHealth::Failing(why) => Some(format!(
            "Warning: objects, including Terraform state, cannot be stored: {why}. Retrying until it succeeds."
        )),
    }
}
