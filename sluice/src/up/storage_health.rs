//! Tells the user when objects cannot be stored.

use std::sync::Arc;

use sluice_embedded::StorageHealth;
use sluice_runtime::shutdown::Token;
use tokio::sync::watch;

use crate::view::Lines;

/// Prints a warning when objects cannot be stored, and a message when they can again, until `stop`.
pub(super) async fn follow(mut health: watch::Receiver<StorageHealth>, lines: Arc<Lines>, stop: Token) {
    let mut known = StorageHealth::Writable;
    loop {
        let current = health.borrow_and_update().clone();
        if let Some(text) = warning(&current).filter(|_| !is_same_outage(&known, &current)) {
            lines.print(&text);
        }
        known = current;
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

/// Returns whether the remote repository was away before: each attempt can have another reason.
const fn is_same_outage(known: &StorageHealth, current: &StorageHealth) -> bool {
    matches!(
        (known, current),
        (StorageHealth::RemoteAway(_), StorageHealth::RemoteAway(_))
    )
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
        StorageHealth::RemoteAway(why) => Some(format!(
            "Warning: the remote repository of the store is away: {why}. Objects in it cannot be changed; Terraform state is \
             stored on this machine. Retrying until it succeeds."
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_of_the_remote_repository_is_shown_once() {
        let away = |why: &str| StorageHealth::RemoteAway(why.to_owned());
        let text = warning(&away("`git push` failed")).unwrap();
        assert!(text.contains("away: `git push` failed."), "{text}");
        assert!(is_same_outage(&away("one"), &away("two")));
        assert!(!is_same_outage(&StorageHealth::Writable, &away("one")));
        let failing = StorageHealth::Failing("one".to_owned());
        assert!(!is_same_outage(&failing, &failing), "its reason matters");
    }
}
