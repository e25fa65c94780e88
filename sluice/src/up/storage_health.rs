//! Tells the user when objects cannot be stored.

use std::sync::Arc;

use sluice_embedded::StorageHealth;
use sluice_runtime::shutdown::Token;
use tokio::sync::watch;

use crate::view::Lines;

/// Prints a warning when objects cannot be stored, and a message when they can again, until `stop`.
pub(super) async fn follow(mut health: watch::Receiver<StorageHealth>, lines: Arc<Lines>, stop: Token) {
    loop {
        let current = health.borrow_and_update().clone();
        if let Some(text) = warning(&current) {
            lines.print(&text);
        }
        let changed = tokio::select! {
            () = stop.cancelled() => return,
            changed = health.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
        if *health.borrow() == StorageHealth::Writable {
            lines.print("Objects can be stored again.");
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
