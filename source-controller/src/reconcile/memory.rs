//! What the controller remembers of an object between two passes: its own last write, the last event that called for a
//! pass, and when it last reported that it waits.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Resource;
use sluice_api::source::GitRepository;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::status::{Applied, WriteError};
use tokio::time::Instant;

/// What is remembered of all objects.
#[derive(Debug, Default)]
pub struct Memory(Mutex<HashMap<ObjectKey, Known>>);

#[derive(Debug, Default)]
struct Known {
    written: Written,
    called: Option<Instant>,
    reported: Option<Instant>,
}

/// The last write of this controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Written {
    /// None that the cache might not show.
    #[default]
    Nothing,
    /// Its `resourceVersion`.
    Version(u64),
    /// One whose answer is not known, or whose version is no number.
    Unknown,
}

impl Memory {
    /// An event calls for a pass.
    pub(super) fn called(&self, key: &ObjectKey, now: Instant) {
        self.lock().entry(key.clone()).or_default().called = Some(now);
    }

    /// The last event that no pass has answered yet.
    pub(super) fn last_call(&self, key: &ObjectKey) -> Option<Instant> {
        self.lock().get(key)?.called
    }

    /// A pass has answered the events until this one.
    pub(super) fn answered(&self, key: &ObjectKey, call: Option<Instant>) {
        self.change(key, |known| {
            if known.called == call {
                known.called = None;
            }
        });
    }

    /// The object was read from the API itself.
    pub(super) fn read(&self, key: &ObjectKey, object: &GitRepository) {
        self.change(key, |known| {
            if known.written == Written::Unknown {
                known.written = version(object).map_or(Written::Unknown, Written::Version);
            }
        });
    }

    /// What came of a write of this controller.
    pub(super) fn wrote(&self, key: &ObjectKey, result: &Result<Applied<GitRepository>, WriteError>) {
        let written = match result {
            Ok(Applied::Written(object)) => version(object).map_or(Written::Unknown, Written::Version),
            Ok(Applied::Unchanged(_) | Applied::Gone) => return,
            Err(_) => Written::Unknown,
        };
        self.lock().entry(key.clone()).or_default().written = written;
    }

    /// Whether the cache shows this controller's own last write, as far as its answer is known. Versions of one kind are
    /// ordered as numbers (KEP-5504); one that is none is not relied on.
    pub(super) fn is_shown_by(&self, key: &ObjectKey, cached: &GitRepository) -> bool {
        let mut is_shown = true;
        self.change(key, |known| {
            is_shown = match known.written {
                Written::Nothing => true,
                Written::Version(floor) => version(cached).is_some_and(|version| version >= floor),
                Written::Unknown => false,
            };
            if is_shown {
                known.written = Written::Nothing;
            }
        });
        is_shown
    }

    /// Whether the last event about a wait is at least `pause` ago; then the next one counts as written.
    pub(super) fn may_report(&self, key: &ObjectKey, now: Instant, pause: Duration) -> bool {
        let mut all = self.lock();
        let reported = &mut all.entry(key.clone()).or_default().reported;
        let may = reported.is_none_or(|last| now.saturating_duration_since(last) >= pause);
        if may {
            *reported = Some(now);
        }
        may
    }

    /// Forgets an object that is gone.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    /// Changes what is known of an object, if anything is, and keeps nothing that says nothing.
    fn change(&self, key: &ObjectKey, change: impl FnOnce(&mut Known)) {
        let mut all = self.lock();
        if let Some(known) = all.get_mut(key) {
            change(known);
            if known.called.is_none() && known.reported.is_none() && known.written == Written::Nothing {
                all.remove(key);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn version(object: &GitRepository) -> Option<u64> {
    object.meta().resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(version: &str) -> GitRepository {
        let object = json!({
            "metadata": { "name": "app", "namespace": "team", "resourceVersion": version },
            "spec": { "url": "https://h/r", "interval": "1m" },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_cache_older_than_the_own_last_write_is_not_relied_on() {
        let memory = Memory::default();
        let key = ObjectKey::of(&at("1"));
        assert!(memory.is_shown_by(&key, &at("1")), "nothing was written");
        memory.wrote(&key, &Ok(Applied::Written(at("10"))));
        for (version, shown) in [("9", false), ("x", false), ("10", true), ("9", true)] {
            // Once it is shown it is forgotten: a watch goes forward only.
            assert_eq!(memory.is_shown_by(&key, &at(version)), shown, "{version}");
        }
    }

    #[test]
    fn a_write_without_an_answer_makes_the_next_pass_read() {
        let memory = Memory::default();
        let key = ObjectKey::of(&at("1"));
        let lost = WriteError::Conflicts {
            what: "status",
            kind: String::new(),
            name: String::new(),
        };
        memory.wrote(&key, &Err(lost));
        assert!(!memory.is_shown_by(&key, &at("99")));
        memory.read(&key, &at("120"));
        assert!(!memory.is_shown_by(&key, &at("119")));
        assert!(memory.is_shown_by(&key, &at("120")));
        assert!(memory.lock().is_empty());
    }

    #[test]
    fn an_event_counts_until_a_pass_that_began_after_it_has_answered() {
        let memory = Memory::default();
        let key = ObjectKey::of(&at("1"));
        let first = Instant::now();
        let second = first + Duration::from_secs(1);
        memory.called(&key, first);
        let call = memory.last_call(&key);
        memory.called(&key, second);
        memory.answered(&key, call);
        assert_eq!(memory.last_call(&key), Some(second));
        memory.answered(&key, Some(second));
        assert!(memory.lock().is_empty());
    }
}
