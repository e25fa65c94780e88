//! The wall clock as a dependency, so that tests control the time.

use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;

use crate::sync::lock;

/// A source of the current time.
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// The system clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock for tests that changes only on request.
#[derive(Debug)]
pub struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    /// Creates a clock that shows `start`.
    #[must_use]
    pub const fn new(start: Timestamp) -> Self {
        Self(Mutex::new(start))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let mut now = lock(&self.0);
        // The clock stops at the year 9999.
        *now = now.checked_add(by).unwrap_or(*now);
    }

    /// Sets the clock.
    pub fn set(&self, to: Timestamp) {
        *lock(&self.0) = to;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *lock(&self.0)
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_on_request() {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        assert_eq!(clock.now(), clock.now());
        clock.advance(Duration::from_secs(90));
        assert_eq!(clock.now().as_second(), 90);
        clock.set(Timestamp::MAX);
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.now(), Timestamp::MAX);
    }
}
