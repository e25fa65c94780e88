//! The waits of queued objects in their tasks.

use std::time::Duration;

use sluice_runtime::schedule::ObjectKey;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Slots, State};

/// Maximum number of objects that wait in their tasks: more than one burst of polls, and little memory.
pub(super) const MAX_WAITING_IN_PLACE: usize = 64;

impl Slots {
    /// Waits in place for the turn of a queued object, for at most this time. Returns whether to acquire its slot now:
    /// the slot is granted, or the time is over. Otherwise the object was not waiting, or its wait was ended, and it is
    /// triggered. Dropped before its end, it withdraws the object.
    ///
    /// An object whose wait was reported does not wait here: a host that hangs takes no place from others. Nor does one that
    /// was triggered since its request.
    pub(in super::super) async fn wait_in_place(&self, key: &ObjectKey, at_most: Duration) -> bool {
        let entered = self.0.lock().enter(key);
        let Some(granted) = entered else {
            return false;
        };
        let mut place = Place {
            slots: self,
            key,
            has_ended: false,
        };
        let ended = timeout(at_most, granted).await;
        place.has_ended = true;
        if let Ok(granted) = ended {
            return granted.is_ok();
        }
        // It stays queued. If it was granted a slot in the meantime, the caller finds that.
        self.end_wait(key);
        true
    }

    /// Ends the wait of an object in its task, also one that is about to begin, because something triggered the object: what
    /// it requests may differ. It stays queued.
    pub(in super::super) fn end_wait(&self, key: &ObjectKey) {
        let mut state = self.0.lock();
        // Most often nothing is queued, and the key needs no hash.
        if state.objects.is_empty() {
            return;
        }
        if let Some(waiting) = state.objects.get_mut(key) {
            (waiting.is_due, waiting.in_place) = (true, None);
        }
    }
}

impl State {
    /// Lets a queued object wait in its task, and returns what completes with its grant. `None`: there is no place, its
    /// wait was reported, it was triggered, or it is not queued any more. After a grant it is triggered anyway.
    fn enter(&mut self, key: &ObjectKey) -> Option<oneshot::Receiver<()>> {
        if self.in_place >= MAX_WAITING_IN_PLACE {
            return None;
        }
        let waiting = self.objects.get_mut(key)?;
        if waiting.is_reported || waiting.is_due {
            return None;
        }
        let (wake, granted) = oneshot::channel();
        waiting.in_place = Some(wake);
        self.in_place += 1;
        Some(granted)
    }
}

/// The place of an object that waits in its task.
struct Place<'a> {
    slots: &'a Slots,
    key: &'a ObjectKey,
    /// Whether the wait ended by itself.
    has_ended: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.slots.0.lock().in_place -= 1;
        if !self.has_ended {
            // No other task takes the slot.
            self.slots.forget(self.key);
        }
    }
}
