//! Who may run: at most so many runs at once.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

/// Places for runs, by stack: a stack has one run at most.
#[derive(Debug)]
pub struct Slots {
    most: usize,
    taken: Mutex<HashSet<String>>,
}

impl Slots {
    /// `most` runs at once, at least one.
    #[must_use]
    pub fn new(most: u16) -> Self {
        Self {
            most: usize::from(most.max(1)),
            taken: Mutex::default(),
        }
    }

    /// Takes a place for a stack's run; true also when it holds one already.
    pub fn take(&self, stack: &str) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.contains(stack) {
            return true;
        }
        taken.len() < self.most && taken.insert(stack.to_owned())
    }

    /// Counts a run that is in progress, whether there is a place for it or not: one that an earlier controller started.
    pub fn hold(&self, stack: &str) {
        self.taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(stack.to_owned());
    }

    /// Frees a stack's place.
    pub fn free(&self, stack: &str) {
        self.taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(stack);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_and_come_back() {
        let slots = Slots::new(1);
        assert!(slots.take("a") && slots.take("a"));
        assert!(!slots.take("b"));
        slots.free("a");
        assert!(slots.take("b"));
    }

    #[test]
    fn a_run_in_progress_counts_beyond_the_limit() {
        let slots = Slots::new(1);
        slots.hold("a");
        slots.hold("b");
        slots.free("a");
        assert!(!slots.take("c"));
        slots.free("b");
        assert!(slots.take("c"));
    }
}
