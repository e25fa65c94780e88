//! Whether the bucket can be read. Only a change is logged: during an outage, each request fails.

use std::sync::atomic::{AtomicBool, Ordering};

/// An outage of the bucket, as far as reads of pointers show it.
#[derive(Debug, Default)]
pub(super) struct Outage(AtomicBool);

impl Outage {
    /// Records a failure. Returns whether it is the first one.
    pub(super) fn begin(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }

    /// Records a success. Returns whether it is the first one after a failure.
    pub(super) fn end(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_begins_and_ends_once() {
        let outage = Outage::default();
        assert!(!outage.end());
        assert!(outage.begin() && !outage.begin());
        assert!(outage.end() && !outage.end());
    }
}
