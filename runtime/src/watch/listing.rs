//! The objects of a list, until the list is complete.

use kube::runtime::watcher::Event;

/// Keeps the objects of a list until its end. kube's cache shows them only then, so a reconciliation that begins between two pages of a
/// list would see the state before the interruption that led to it, and no event would follow.
#[derive(Debug)]
pub(super) struct Listing<T>(Vec<T>);

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Listing<T> {
    /// Returns the objects that the cache shows since this event.
    pub(super) fn shown(&mut self, event: Event<T>) -> Vec<T> {
        match event {
            Event::Apply(object) => return vec![object],
            // The list before broke off.
            Event::Init => self.0.clear(),
            Event::InitApply(object) => self.0.push(object),
            Event::InitDone => return std::mem::take(&mut self.0),
            Event::Delete(_) => {}
        }
        Vec::new()
    }
}
