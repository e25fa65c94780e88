//! How often and how fast the runner of one run is started. Pure.

use std::time::{Duration, Instant};

/// Age at which a start no longer counts.
pub(super) const START_EXPIRY: Duration = Duration::from_mins(10);
/// Starts of one run before it is given up.
const MAX_STARTS: u32 = 5;
/// Time between starts of one run: a runner may exit at once.
const START_INTERVAL: Duration = Duration::from_secs(5);

/// The starts of the runner of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Starts {
    count: u32,
    /// When it was started last.
    pub(super) last: Instant,
}

/// Whether a runner may be started now.
#[derive(Clone, Copy, Debug)]
pub(super) enum StartDecision {
    /// It may; the starts with this one.
    Start(Starts),
    /// The last start is too recent.
    TooSoon,
    /// It was started too often.
    GiveUp,
}

impl Starts {
    /// Decides about a further start.
    pub(super) fn next(before: Option<Self>, now: Instant) -> StartDecision {
        match before {
            None => StartDecision::Start(Self { count: 1, last: now }),
            Some(before) if now.duration_since(before.last) < START_INTERVAL => StartDecision::TooSoon,
            Some(before) if before.count >= MAX_STARTS => StartDecision::GiveUp,
            Some(before) => StartDecision::Start(Self {
                count: before.count + 1,
                last: now,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_that_dies_at_once_is_restarted_with_back_off_and_a_limit() {
        let mut now = Instant::now();
        let (mut before, mut started) = (None, 0);
        loop {
            match Starts::next(before, now) {
                StartDecision::Start(next) => {
                    started += 1;
                    before = Some(next);
                }
                StartDecision::TooSoon => now += Duration::from_secs(1),
                StartDecision::GiveUp => break,
            }
        }
        assert_eq!(started, MAX_STARTS);
    }
}
