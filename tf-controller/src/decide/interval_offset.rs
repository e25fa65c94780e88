//! The offset of a stack's drift detections in its interval. It spreads the detections of stacks that were applied together, and
//! those that became due while no controller ran.

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

/// Shortest pause after a success, as a fraction of the interval: drift right after an apply is unlikely.
const PAUSE: i128 = 20;

/// The offset of one stack in every interval. It depends on the object's uid alone, so it survives a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IntervalOffset {
    /// The offset, in 2⁻³² of an interval.
    share: u32,
    /// Start of this controller: a detection that was due before waits for its next time.
    since: Timestamp,
}

impl IntervalOffset {
    /// The offset of the object with this uid, for a controller that started at `since`.
    pub(crate) fn from_uid(uid: &str, since: Timestamp) -> Self {
        let digest = Sha256::digest(uid.as_bytes());
        let share = digest
            .iter()
            .take(4)
            .fold(0, |all, byte| all << 8 | u32::from(*byte));
        Self { share, since }
    }

    /// The first time at the stack's offset that is at least a twentieth of the interval after the last success, and not before this
    /// controller started: at most 1.05 intervals after the success, then once per interval. Never with an interval of 0.
    pub(crate) fn due(&self, last: Timestamp, interval: SignedDuration) -> Timestamp {
        let every = interval.as_millis();
        if every <= 0 {
            return Timestamp::MAX;
        }
        let offset = (i128::from(self.share) * every) >> 32;
        let next = |from: i128| from + (offset - from).rem_euclid(every);
        let (last, since) = (milliseconds(last), milliseconds(self.since));
        let due = next(last + every / PAUSE + 1);
        let due = if due < since { next(since) } else { due };
        i64::try_from(due)
            .ok()
            .and_then(|due| Timestamp::from_millisecond(due).ok())
            .unwrap_or(Timestamp::MAX)
    }
}

fn milliseconds(time: Timestamp) -> i128 {
    i128::from(time.as_millisecond())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: SignedDuration = SignedDuration::from_hours(1);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    /// Counts, of a thousand stacks, those that are due in each twentieth of the interval after `begin`.
    fn spread(begin: i64, due: impl Fn(IntervalOffset) -> Timestamp) -> Vec<usize> {
        let mut parts = vec![0; 21];
        for stack in 0..1000 {
            let due = due(IntervalOffset::from_uid(&format!("uid-{stack}"), at(begin)));
            let after = due.as_second() - begin;
            assert!((0..=3780).contains(&after), "{after}");
            parts[usize::try_from(after / 180).unwrap()] += 1;
        }
        parts
    }

    #[test]
    fn checks_of_stacks_that_were_applied_together_are_spread_evenly_over_the_interval() {
        let parts = spread(1_000_000, |phase| phase.due(at(1_000_000), HOUR));
        assert_eq!(parts[0], 0, "none right after the apply");
        assert!(
            parts[1..].iter().all(|part| (25..=80).contains(part)),
            "{parts:?}"
        );
    }

    #[test]
    fn overdue_detections_are_spread_after_a_restart() {
        let long_ago = at(1_000_000 - 7 * 24 * 3600);
        let parts = spread(1_000_000, |phase| phase.due(long_ago, HOUR));
        assert!(
            parts[..20].iter().all(|part| (25..=80).contains(part)),
            "{parts:?}"
        );
    }

    proptest! {
        #[test]
        fn a_restart_keeps_future_times_and_one_check_per_interval(
            uid in "[a-f0-9]{8}", last in 0_i64..2_000_000_000, seconds in 60_i64..1_000_000, took in 0_i64..3,
        ) {
            let interval = SignedDuration::from_secs(seconds);
            let due = IntervalOffset::from_uid(&uid, at(0)).due(at(last), interval);
            let after = due.duration_since(at(last));
            prop_assert!(after > SignedDuration::ZERO && after <= interval + interval / 20 + SignedDuration::from_millis(1));
            prop_assert_eq!(IntervalOffset::from_uid(&uid, at(last)).due(at(last), interval), due);
            // The check ran at its time and took a while: the next one is an interval later.
            let ended = at(due.as_second() + took);
            prop_assert_eq!(IntervalOffset::from_uid(&uid, at(0)).due(ended, interval), due + interval);
        }

        #[test]
        fn no_times_break_it(last in any::<i32>(), since in any::<i32>(), interval in any::<i64>()) {
            let phase = IntervalOffset::from_uid("u", at(since.into()));
            let due = phase.due(at(last.into()), SignedDuration::from_secs(interval));
            prop_assert!(due >= at(last.into()));
        }
    }
}
