//! State of each object between reconciliations: our own last write, the last trigger, and the last report of a wait.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use kube::Resource;
use sluice_api::source::GitRepository;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::status::{Applied, WriteError};
use sluice_runtime::sync::lock;
use tokio::time::Instant;

/// The tracked state of all objects.
#[derive(Debug, Default)]
pub struct ObjectTracker(Mutex<HashMap<ObjectKey, Tracked>>);

#[derive(Debug, Default)]
struct Tracked {
    last_write: LastWrite,
    triggered_at: Option<Instant>,
    wait_reported_at: Option<Instant>,
}

/// The last write of this controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LastWrite {
    /// No write that the cache might not show yet.
    #[default]
    Nothing,
    /// The `resourceVersion` of the write.
    Version(u64),
    /// A write without a known result, or with a version that is not a number.
    Unknown,
}

impl ObjectTracker {
    /// Records that an event triggered a reconciliation.
    pub(super) fn record_trigger(&self, key: &ObjectKey, now: Instant) {
        self.lock().entry(key.clone()).or_default().triggered_at = Some(now);
    }

    /// Returns the time of the last trigger that no reconciliation has handled yet.
    pub(super) fn last_trigger(&self, key: &ObjectKey) -> Option<Instant> {
        self.lock().get(key)?.triggered_at
    }

    /// Clears the trigger, unless a newer one arrived.
    pub(super) fn clear_trigger(&self, key: &ObjectKey, triggered_at: Option<Instant>) {
        self.update(key, |tracked| {
            if tracked.triggered_at == triggered_at {
                tracked.triggered_at = None;
            }
        });
    }

    /// Records that the object was read from the API server.
    pub(super) fn record_read(&self, key: &ObjectKey, object: &GitRepository) {
        self.update(key, |tracked| {
            if tracked.last_write == LastWrite::Unknown {
                tracked.last_write = version(object).map_or(LastWrite::Unknown, LastWrite::Version);
            }
        });
    }

    /// Records the result of a write of this controller.
    pub(super) fn record_write(&self, key: &ObjectKey, result: &Result<Applied<GitRepository>, WriteError>) {
        let last_write = match result {
            Ok(Applied::Written(object)) => version(object).map_or(LastWrite::Unknown, LastWrite::Version),
            Ok(Applied::Unchanged(_) | Applied::Gone) => return,
            Err(_) => LastWrite::Unknown,
        };
        self.lock().entry(key.clone()).or_default().last_write = last_write;
    }

    /// Returns whether the cached object includes our own last write. Versions of one kind are ordered as numbers
    /// (KEP-5504); a version that is not a number counts as stale.
    pub(super) fn is_current(&self, key: &ObjectKey, cached: &GitRepository) -> bool {
        let mut is_shown = true;
        self.update(key, |tracked| {
            is_shown = match tracked.last_write {
                LastWrite::Nothing => true,
                LastWrite::Version(floor) => version(cached).is_some_and(|version| version >= floor),
                LastWrite::Unknown => false,
            };
            if is_shown {
                tracked.last_write = LastWrite::Nothing;
            }
        });
        is_shown
    }

    /// Returns whether the last wait report is at least `pause` ago; if so, records `now` as the new report.
    pub(super) fn may_report_wait(&self, key: &ObjectKey, now: Instant, pause: Duration) -> bool {
        let mut all = self.lock();
        let wait_reported_at = &mut all.entry(key.clone()).or_default().wait_reported_at;
        let may = wait_reported_at.is_none_or(|last| now.saturating_duration_since(last) >= pause);
        if may {
            *wait_reported_at = Some(now);
        }
        may
    }

    /// Removes the state of a deleted object.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    /// Changes the state of a tracked object and removes it if it becomes empty.
    fn update(&self, key: &ObjectKey, update: impl FnOnce(&mut Tracked)) {
        let mut all = self.lock();
        if let Some(tracked) = all.get_mut(key) {
            update(tracked);
            if tracked.triggered_at.is_none()
                && tracked.wait_reported_at.is_none()
                && tracked.last_write == LastWrite::Nothing
            {
                all.remove(key);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Tracked>> {
        lock(&self.0)
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
    fn a_cache_older_than_our_last_write_is_stale() {
        let tracker = ObjectTracker::default();
        let key = ObjectKey::of(&at("1"));
        assert!(tracker.is_current(&key, &at("1")), "nothing was written");
        tracker.record_write(&key, &Ok(Applied::Written(at("10"))));
        for (version, shown) in [("9", false), ("x", false), ("10", true), ("9", true)] {
            // The state is cleared once the cache has caught up: a watch only moves forward.
            assert_eq!(tracker.is_current(&key, &at(version)), shown, "{version}");
        }
    }

    #[test]
    fn a_write_without_a_result_forces_a_read() {
        let tracker = ObjectTracker::default();
        let key = ObjectKey::of(&at("1"));
        let conflict = WriteError::Conflicts {
            what: "status",
            kind: String::new(),
            name: String::new(),
        };
        tracker.record_write(&key, &Err(conflict));
        assert!(!tracker.is_current(&key, &at("99")));
        tracker.record_read(&key, &at("120"));
        assert!(!tracker.is_current(&key, &at("119")));
        assert!(tracker.is_current(&key, &at("120")));
        assert!(tracker.lock().is_empty());
    }

    #[test]
    fn a_trigger_stays_pending_until_a_later_reconciliation_handles_it() {
        let tracker = ObjectTracker::default();
        let key = ObjectKey::of(&at("1"));
        let first = Instant::now();
        let second = first + Duration::from_secs(1);
        tracker.record_trigger(&key, first);
        let triggered_at = tracker.last_trigger(&key);
        tracker.record_trigger(&key, second);
        tracker.clear_trigger(&key, triggered_at);
        assert_eq!(tracker.last_trigger(&key), Some(second));
        tracker.clear_trigger(&key, Some(second));
        assert!(tracker.lock().is_empty());
    }
}
