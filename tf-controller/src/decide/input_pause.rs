//! The pause between runs whose only cause is changed inputs. A stack that reads its own outputs, or two stacks that read each
//! other, would run forever. So the pause doubles with each such run that follows soon after another.

use jiff::{SignedDuration, Timestamp};

use super::facts::after;

/// Pause after the first such run.
const FIRST: SignedDuration = SignedDuration::from_secs(10);
/// Longest pause.
const LONGEST: SignedDuration = SignedDuration::from_hours(1);
/// Shortest time without such a run that ends a streak.
const QUIET_PERIOD: SignedDuration = SignedDuration::from_mins(10);

/// A streak of runs whose only cause was changed inputs: no commit, no edit, no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InputRunStreak {
    /// Number of runs.
    pub(crate) count: u32,
    /// When the last of them ended.
    pub(crate) ended: Timestamp,
}

impl InputRunStreak {
    /// Adds a run that was created and ended at these times to the streak, or begins a new streak.
    pub(crate) fn with(before: Option<Self>, made: Timestamp, ended: Timestamp) -> Self {
        let soon = before.filter(|before| made <= before.quiet_until());
        Self {
            count: soon.map_or(0, |before| before.count).saturating_add(1),
            ended,
        }
    }

    /// When the next run may start.
    pub(crate) fn until(&self) -> Timestamp {
        after(self.ended, self.pause())
    }

    fn pause(&self) -> SignedDuration {
        let factor = 1_i32
            .checked_shl(self.count.saturating_sub(1).min(30))
            .unwrap_or(i32::MAX);
        FIRST.checked_mul(factor).unwrap_or(LONGEST).min(LONGEST)
    }

    fn quiet_until(&self) -> Timestamp {
        after(self.ended, (self.pause() * 2).max(QUIET_PERIOD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn the_pause_doubles_up_to_an_hour_and_restarts_after_a_quiet_period() {
        let pauses = (1..=12).map(|count| InputRunStreak { count, ended: at(0) }.until().as_second());
        assert_eq!(
            pauses.collect::<Vec<_>>(),
            [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600, 3600]
        );
        let count = |before, made| InputRunStreak::with(before, at(made), at(made)).count;
        let before = |count| Some(InputRunStreak { count, ended: at(0) });
        assert_eq!(
            (count(None, 5), count(before(2), 600), count(before(2), 601)),
            (1, 3, 1)
        );
        assert_eq!((count(before(10), 7200), count(before(10), 7201)), (11, 1));
        assert_eq!(count(before(u32::MAX), 1), u32::MAX);
    }
}
