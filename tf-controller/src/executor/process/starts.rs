//! How often the runner of one run is started. Pure.

use std::time::{Duration, Instant};

/// Starts after which a run that nobody takes up is given up.
const MOST_STARTS: u32 = 5;
/// Time between the starts of one run: a runner that dies at once must not be started in a circle.
const BETWEEN_STARTS: Duration = Duration::from_secs(5);

/// How often a run's runner was started, and when last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Starts {
    count: u32,
    /// When the last one was.
    pub(super) last: Instant,
}

/// What a wish to start a runner comes to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Again {
    /// It is started, and this is then known of it.
    Start(Starts),
    /// It was started too short ago.
    NotYet,
    /// It was started too often.
    GiveUp,
}

impl Starts {
    /// What another wish comes to now.
    pub(super) fn again(before: Option<Self>, now: Instant) -> Again {
        match before {
            None => Again::Start(Self { count: 1, last: now }),
            Some(before) if now.duration_since(before.last) < BETWEEN_STARTS => Again::NotYet,
            Some(before) if before.count >= MOST_STARTS => Again::GiveUp,
            Some(before) => Again::Start(Self {
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
    fn a_runner_that_dies_at_once_is_started_slowly_and_not_for_ever() {
        let mut now = Instant::now();
        let (mut before, mut started) = (None, 0);
        loop {
            match Starts::again(before, now) {
                Again::Start(next) => {
                    started += 1;
                    before = Some(next);
                }
                Again::NotYet => now += Duration::from_secs(1),
                Again::GiveUp => break,
            }
        }
        assert_eq!(started, MOST_STARTS);
    }
}
