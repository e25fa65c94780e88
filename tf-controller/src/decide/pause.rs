//! The pause between runs that nothing but changed inputs causes. A stack that reads what its own apply writes, or two that read
//! each other, would run without end: so each such run that follows soon on another waits twice as long as the one before.

use super::after;
use jiff::{SignedDuration, Timestamp};

/// The pause after the first such run.
const FIRST: SignedDuration = SignedDuration::from_secs(10);
/// The longest pause.
const LONGEST: SignedDuration = SignedDuration::from_hours(1);
/// The least time without such a run after which the next one is the first again.
const CALM: SignedDuration = SignedDuration::from_mins(10);

/// Runs in a row that nothing but changed inputs caused: no commit, no edit, no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputRuns {
    /// How many.
    pub count: u32,
    /// When the last of them ended.
    pub ended: Timestamp,
}

impl InputRuns {
    /// With another such run, made and ended at these times.
    #[must_use]
    pub fn with(before: Option<Self>, made: Timestamp, ended: Timestamp) -> Self {
        let soon = before.filter(|before| made <= before.calm());
        Self {
            count: soon.map_or(0, |before| before.count).saturating_add(1),
            ended,
        }
    }

    /// When the next one may start.
    #[must_use]
    pub fn until(&self) -> Timestamp {
        after(self.ended, self.pause())
    }

    fn pause(&self) -> SignedDuration {
        let factor = 1_i32
            .checked_shl(self.count.saturating_sub(1).min(30))
            .unwrap_or(i32::MAX);
        FIRST.checked_mul(factor).unwrap_or(LONGEST).min(LONGEST)
    }

    fn calm(&self) -> Timestamp {
        after(self.ended, (self.pause() * 2).max(CALM))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn the_pause_doubles_up_to_an_hour_and_begins_again_after_a_calm() {
        let pauses = (1..=12).map(|count| InputRuns { count, ended: at(0) }.until().as_second());
        assert_eq!(
            pauses.collect::<Vec<_>>(),
            [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600, 3600]
        );
        let count = |before, made| InputRuns::with(before, at(made), at(made)).count;
        let before = |count| Some(InputRuns { count, ended: at(0) });
        assert_eq!(
            (count(None, 5), count(before(2), 600), count(before(2), 601)),
            (1, 3, 1)
        );
        assert_eq!((count(before(10), 7200), count(before(10), 7201)), (11, 1));
        assert_eq!(count(before(u32::MAX), 1), u32::MAX);
    }
}
