//! Tracks the heartbeats of runs whose process locks are not visible here. Clocks of machines may differ, so a run
//! counts as dead by the time on our own monotonic clock in which we checked it and its heartbeat did not change.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use sluice_runtime::sync::lock;
use tokio::time::Instant;

use crate::executor::RunRef;

/// The longest time between two checks that counts: while the API is away no heartbeat arrives, and a runner gets
/// time to send one again.
const MAX_GAP: Duration = Duration::from_secs(15);
/// Entries that were not checked for this long are removed.
const EXPIRY: Duration = Duration::from_hours(1);

/// The last heartbeat of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LastHeartbeat {
    heartbeat: Option<Timestamp>,
    checked_at: Instant,
    silence: Duration,
}

impl LastHeartbeat {
    /// Returns the state after another check.
    fn observe(before: Option<Self>, heartbeat: Option<Timestamp>, now: Instant) -> Self {
        let silence = before
            .filter(|before| before.heartbeat == heartbeat)
            .map(|before| {
                let gap = now.saturating_duration_since(before.checked_at).min(MAX_GAP);
                before.silence.saturating_add(gap)
            });
        Self {
            heartbeat,
            checked_at: now,
            silence: silence.unwrap_or_default(),
        }
    }
}

/// A run that its pod or process lock shows to be alive is reported after this many times the silence after which another one counts as
/// dead: a heartbeat may be late, for example after an outage of the API server.
const REPORT_FACTOR: u32 = 2;

/// Tracks the heartbeats of runs.
pub(crate) struct HeartbeatTracker {
    silence: Duration,
    observed: Mutex<HashMap<RunRef, LastHeartbeat>>,
}

impl HeartbeatTracker {
    /// Returns a tracker that counts a run as dead after this long without a new heartbeat.
    pub(crate) fn new(silence: Duration) -> Self {
        Self {
            silence,
            observed: Mutex::default(),
        }
    }

    /// Returns whether the run, whose last heartbeat is this, still counts as alive.
    pub(crate) fn is_alive(&self, run: &RunRef, heartbeat: Option<Timestamp>, now: Instant) -> bool {
        let mut all = lock(&self.observed);
        all.retain(|_, observed| now.saturating_duration_since(observed.checked_at) < EXPIRY);
        let observed = LastHeartbeat::observe(all.get(run).copied(), heartbeat, now);
        all.insert(run.clone(), observed);
        observed.silence < self.silence
    }

    /// Returns whether the run has sent no heartbeat for so long that its users should know.
    pub(crate) fn is_silent(&self, run: &RunRef) -> bool {
        let observed = lock(&self.observed).get(run).copied();
        observed.is_some_and(|observed| observed.silence >= self.silence * REPORT_FACTOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_mins(1);

    fn run() -> RunRef {
        RunRef {
            namespace: "team".into(),
            name: "net-1".into(),
        }
    }

    fn heartbeat(number: i64) -> Timestamp {
        Timestamp::from_second(number).unwrap()
    }

    #[test]
    fn a_run_is_dead_after_checks_without_a_new_heartbeat() {
        let (tracker, start) = (HeartbeatTracker::new(SILENCE), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for seconds in (0..60).step_by(10) {
            assert!(
                tracker.is_alive(&run(), Some(heartbeat(1)), at(seconds)),
                "{seconds}"
            );
        }
        assert!(!tracker.is_alive(&run(), Some(heartbeat(1)), at(60)));
        for seconds in (70..=120).step_by(10) {
            assert!(!tracker.is_silent(&run()), "{seconds}");
            tracker.is_alive(&run(), Some(heartbeat(1)), at(seconds));
        }
        assert!(tracker.is_silent(&run()));
        // Any change counts as a heartbeat, also an earlier time.
        assert!(tracker.is_alive(&run(), Some(heartbeat(0)), at(121)));
        assert!(!tracker.is_silent(&run()));
        assert!(tracker.is_alive(&run(), Some(heartbeat(0)), at(130)));
    }

    #[test]
    fn time_without_checks_does_not_count() {
        let (tracker, start) = (HeartbeatTracker::new(SILENCE), Instant::now());
        assert!(tracker.is_alive(&run(), Some(heartbeat(1)), start));
        assert!(tracker.is_alive(&run(), Some(heartbeat(1)), start + Duration::from_mins(30)));
        assert!(tracker.is_alive(&run(), Some(heartbeat(2)), start + Duration::from_secs(1810)));
    }

    #[test]
    fn a_run_without_heartbeat_has_the_same_time() {
        let (tracker, start) = (HeartbeatTracker::new(SILENCE), Instant::now());
        let checks =
            (0..20).map(|check| tracker.is_alive(&run(), None, start + Duration::from_secs(check * 10)));
        assert_eq!(checks.filter(|is_alive| *is_alive).count(), 6);
    }
}
