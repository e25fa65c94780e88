//! The window of changes that watches resume from. Versions have no gaps: change `n` stands `n - oldest` places from the front.

use std::{collections::VecDeque, sync::Arc};

use serde_json::Value;

use super::{Key, WINDOW};

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// It was created or changed.
    Put,
    /// It was removed.
    Remove,
}

/// One change.
#[derive(Debug)]
pub(crate) struct Change {
    /// The version it made.
    pub(crate) revision: u64,
    /// Whose change.
    pub(crate) key: Key,
    /// What happened.
    pub(crate) verb: Verb,
    /// The object after it; of a removal, the last state, at the version of the removal.
    pub(crate) object: Arc<Value>,
    /// The object before it.
    pub(crate) before: Option<Arc<Value>>,
}

/// The version asked for lies before the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    /// The oldest version that can be resumed from.
    pub(crate) oldest: u64,
}

/// The newest changes.
#[derive(Debug)]
pub(crate) struct History {
    changes: VecDeque<Arc<Change>>,
    newest: u64,
    window: usize,
}

impl Default for History {
    fn default() -> Self {
        // Version 0 means "any" in requests, so nothing real may have it.
        Self::starting_at(1)
    }
}

impl History {
    /// No changes yet, at this version.
    pub(crate) const fn starting_at(newest: u64) -> Self {
        Self {
            changes: VecDeque::new(),
            newest,
            window: WINDOW,
        }
    }

    /// The newest version.
    pub(crate) const fn newest(&self) -> u64 {
        self.newest
    }

    /// Bounds the window.
    pub(crate) fn set_window(&mut self, window: usize) {
        self.window = window;
    }

    /// Appends a change.
    pub(crate) fn push(&mut self, change: Change) {
        self.newest = change.revision;
        self.changes.push_back(Arc::new(change));
        while self.changes.len() > self.window {
            self.changes.pop_front();
        }
    }

    /// Changes after `revision`; none when it is the newest or lies ahead.
    pub(crate) fn since(&self, revision: u64) -> Result<Vec<Arc<Change>>, Gone> {
        let oldest = self.newest - self.changes.len() as u64;
        if revision < oldest {
            return Err(Gone { oldest });
        }
        let skip = usize::try_from(revision - oldest).unwrap_or(usize::MAX);
        Ok(self.changes.iter().skip(skip).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(changes: u64, window: usize) -> History {
        let mut history = History::starting_at(10);
        history.set_window(window);
        for revision in 11..11 + changes {
            let key = Key::new("secrets", "default", "a");
            history.push(Change {
                revision,
                key,
                verb: Verb::Put,
                object: Arc::default(),
                before: None,
            });
        }
        history
    }

    fn revisions(history: &History, since: u64) -> Result<Vec<u64>, Gone> {
        history
            .since(since)
            .map(|changes| changes.iter().map(|c| c.revision).collect())
    }

    #[test]
    fn changes_after_a_version_come_in_order() {
        let history = filled(3, 100);
        assert_eq!(revisions(&history, 10), Ok(vec![11, 12, 13]));
        assert_eq!(revisions(&history, 12), Ok(vec![13]));
        assert_eq!(revisions(&history, 13), Ok(vec![]));
        assert_eq!(revisions(&history, 99), Ok(vec![]));
    }

    #[test]
    fn a_version_before_the_window_is_gone() {
        assert_eq!(revisions(&filled(3, 2), 10), Err(Gone { oldest: 11 }));
        assert_eq!(revisions(&filled(3, 2), 11), Ok(vec![12, 13]));
        assert_eq!(
            revisions(&filled(0, 2), 9),
            Err(Gone { oldest: 10 }),
            "nothing before a restart is known"
        );
    }
}
