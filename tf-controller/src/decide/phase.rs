//! Where in its interval a stack is looked at. Stacks that are applied together must not be checked together ever after,
//! nor all at once when a controller comes back: each has a place of its own on the clock.

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

/// The least pause after a success, as a part of the interval: a check right behind an apply tells nothing.
const PAUSE: i128 = 20;

/// The place of one stack in every interval. It depends on the object's uid alone, so it is the same after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// The place, in parts of 2³² of an interval.
    share: u32,
    /// Since when this controller decides: what was due before waits for the next time that it is due.
    since: Timestamp,
}

impl Phase {
    /// The phase of the object with this uid, for a controller that decides since then.
    #[must_use]
    pub fn of(uid: &str, since: Timestamp) -> Self {
        let digest = Sha256::digest(uid.as_bytes());
        let share = digest
            .iter()
            .take(4)
            .fold(0, |all, byte| all << 8 | u32::from(*byte));
        Self { share, since }
    }

    /// The first time on the stack's own raster that is a twentieth of the interval after its last success, and not
    /// before this controller began. So it comes at most 1.05 intervals after the success, and then once per interval; never
    /// where the interval is nothing.
    #[must_use]
    pub fn due(&self, last: Timestamp, interval: SignedDuration) -> Timestamp {
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
    use super::*;
    use proptest::prelude::*;

    const HOUR: SignedDuration = SignedDuration::from_hours(1);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    /// How many of a thousand stacks are due in each twentieth of the interval behind `begin`.
    fn spread(begin: i64, due: impl Fn(Phase) -> Timestamp) -> Vec<usize> {
        let mut parts = vec![0; 21];
        for stack in 0..1000 {
            let due = due(Phase::of(&format!("uid-{stack}"), at(begin)));
            let after = due.as_second() - begin;
            assert!((0..=3780).contains(&after), "{after}");
            parts[usize::try_from(after / 180).unwrap()] += 1;
        }
        parts
    }

    #[test]
    fn checks_of_stacks_that_were_applied_together_are_spread_evenly_over_the_interval() {
        let parts = spread(1_000_000, |phase| phase.due(at(1_000_000), HOUR));
        assert_eq!(parts[0], 0, "none comes right behind the apply");
        assert!(
            parts[1..].iter().all(|part| (25..=80).contains(part)),
            "{parts:?}"
        );
    }

    #[test]
    fn what_became_due_while_nobody_decided_is_spread_as_well() {
        let long_ago = at(1_000_000 - 7 * 24 * 3600);
        let parts = spread(1_000_000, |phase| phase.due(long_ago, HOUR));
        assert!(
            parts[..20].iter().all(|part| (25..=80).contains(part)),
            "{parts:?}"
        );
    }

    proptest! {
        #[test]
        fn a_restart_moves_nothing_that_is_not_due_yet_and_checks_come_once_per_interval(
            uid in "[a-f0-9]{8}", last in 0_i64..2_000_000_000, seconds in 60_i64..1_000_000, took in 0_i64..3,
        ) {
            let interval = SignedDuration::from_secs(seconds);
            let due = Phase::of(&uid, at(0)).due(at(last), interval);
            let after = due.duration_since(at(last));
            prop_assert!(after > SignedDuration::ZERO && after <= interval + interval / 20 + SignedDuration::from_millis(1));
            prop_assert_eq!(Phase::of(&uid, at(last)).due(at(last), interval), due);
            // The check ran at its time and took a while: the next one is an interval later.
            let ended = at(due.as_second() + took);
            prop_assert_eq!(Phase::of(&uid, at(0)).due(ended, interval), due + interval);
        }

        #[test]
        fn no_times_break_it(last in any::<i32>(), since in any::<i32>(), interval in any::<i64>()) {
            let phase = Phase::of("u", at(since.into()));
            let due = phase.due(at(last.into()), SignedDuration::from_secs(interval));
            prop_assert!(due >= at(last.into()));
        }
    }
}
