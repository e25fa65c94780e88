//! Tells on the screen when objects cannot be stored, and when they can again.

use crate::view::Screen;
use sluice_embedded::StorageHealth;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Follows the store until the stop.
pub(super) async fn follow(
    mut health: watch::Receiver<StorageHealth>,
    screen: Arc<Screen>,
    stop: CancellationToken,
) {
    loop {
        let now = health.borrow_and_update().clone();
        if let Some(text) = told(&now) {
            screen.say(&text);
        }
        let changed = tokio::select! {
            () = stop.cancelled() => return,
            changed = health.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
        if *health.borrow() == StorageHealth::Writable {
            screen.say("Objects are stored again.");
        }
    }
}

/// What is wrong, if something is.
fn told(health: &StorageHealth) -> Option<String> {
    match health {
        StorageHealth::Writable => None,
        StorageHealth::OnReserve => Some(
            "Warning: the disk of the state directory is full. Applies that run can store their states; nothing new starts \
             until there is space."
                .to_owned(),
        ),
        StorageHealth::Failing(why) => Some(format!(
            "Warning: objects cannot be stored, states among them: {why}. It is tried again until it works."
        )),
    }
}
