//! The window of changes that watches resume from. Versions have no gaps: change `n` stands `n - oldest` places from the front.
//! It is bounded by number and by bytes: a few large objects that change often must not fill the memory.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use serde_json::Value;

use super::{Key, WINDOW, WINDOW_BYTES};

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
    /// The object as JSON, once a watch has sent it.
    json: OnceLock<Bytes>,
    /// About how many bytes the object takes, its JSON among them.
    size: usize,
}

impl Change {
    /// A change of an object.
    pub(crate) fn new(
        revision: u64,
        key: Key,
        verb: Verb,
        object: Arc<Value>,
        before: Option<Arc<Value>>,
    ) -> Self {
        // Text is there twice: in the object and in its JSON.
        let size = 2 * weight(&object);
        Self {
            revision,
            key,
            verb,
            object,
            before,
            json: OnceLock::new(),
            size,
        }
    }

    /// The object as JSON, encoded once for all watches.
    pub(crate) fn json(&self) -> &Bytes {
        self.json.get_or_init(|| Bytes::from(self.object.to_string()))
    }
}

/// About how many bytes a value takes in memory.
pub(super) fn weight(value: &Value) -> usize {
    const NODE: usize = size_of::<Value>();
    NODE + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| NODE + key.len() + weight(value))
            .sum(),
        _ => 0,
    }
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
    /// Of all changes together.
    bytes: usize,
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
            bytes: 0,
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
        self.bytes += change.size;
        self.changes.push_back(Arc::new(change));
        // The newest stays whatever its size: watches that are up to date must see it.
        while self.changes.len() > self.window || (self.bytes > WINDOW_BYTES && self.changes.len() > 1) {
            let Some(oldest) = self.changes.pop_front() else {
                break;
            };
            self.bytes -= oldest.size;
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
            history.push(Change::new(revision, key, Verb::Put, Arc::default(), None));
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

    #[test]
    fn large_objects_shorten_the_window() {
        let mut history = History::starting_at(1);
        let large = serde_json::json!({"data": {"a": "x".repeat(700 << 10)}});
        for revision in 2..302 {
            let key = Key::new("secrets", "default", "a");
            history.push(Change::new(
                revision,
                key,
                Verb::Put,
                Arc::new(large.clone()),
                None,
            ));
            assert!(history.bytes <= WINDOW_BYTES, "{}", history.bytes);
        }
        assert_eq!(revisions(&history, 300), Ok(vec![301]));
        assert!(revisions(&history, 100).is_err());
        let huge = serde_json::json!({"data": "x".repeat(WINDOW_BYTES)});
        history.push(Change::new(
            302,
            Key::new("secrets", "default", "b"),
            Verb::Put,
            Arc::new(huge),
            None,
        ));
        assert_eq!(
            revisions(&history, 301),
            Ok(vec![302]),
            "a change that is larger than all is seen once"
        );
    }
}
