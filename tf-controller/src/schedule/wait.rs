//! What a waiting stack reports: its position in the queue and the limit that it waits for. Pure, with the time as an argument.
//!
//! A thousand stacks may wait, and each start changes the positions of those behind it. So a position is reported as a range, a
//! report is replaced after [`REPORT_INTERVAL`] at the earliest, and the queue replaces few at once.

use std::fmt;
use std::time::{Duration, Instant};

use super::limits::ReachedLimit;

/// How long a report stays at least.
const REPORT_INTERVAL: Duration = Duration::from_secs(30);

/// Positions in the queue that are reported alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PositionRange {
    first: usize,
    last: usize,
}

impl PositionRange {
    /// Returns the range of a position, which counts from 1. Ranges end at 1, 2, 5, 10, 20, 50, 100 and so on.
    fn of(position: usize) -> Self {
        let (mut end, mut decade) = (0_usize, 1_usize);
        loop {
            for factor in [1, 2, 5] {
                let last = decade.saturating_mul(factor);
                if position <= last {
                    let first = end + 1;
                    return Self { first, last };
                }
                end = last;
            }
            decade = decade.saturating_mul(10);
        }
    }
}

impl fmt::Display for PositionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "position {}", self.last)
        } else {
            write!(f, "position {} to {}", self.first, self.last)
        }
    }
}

/// Where a stack is in the queue, and what it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    positions: PositionRange,
    limit: ReachedLimit,
}

impl Wait {
    /// Returns the wait at a position, which counts from 1.
    pub(super) fn new(position: usize, limit: ReachedLimit) -> Self {
        Self {
            positions: PositionRange::of(position),
            limit,
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in the queue; {}", self.positions, self.limit)
    }
}

/// The wait that the status of a stack shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WaitReport {
    wait: Wait,
    reported: Instant,
}

impl WaitReport {
    /// Returns what to report after `last`: the same until it is outdated.
    pub(super) fn after(last: Option<Self>, current: Wait, now: Instant) -> Self {
        match last.filter(|last| !last.is_outdated(&current, now)) {
            Some(last) => last,
            None => Self {
                wait: current,
                reported: now,
            },
        }
    }

    /// Returns whether the report differs from the current wait and is old enough to be replaced.
    pub(super) fn is_outdated(&self, current: &Wait, now: Instant) -> bool {
        self.wait != *current && now.saturating_duration_since(self.reported) >= REPORT_INTERVAL
    }

    /// Returns the reported wait.
    pub(super) fn wait(&self) -> Wait {
        self.wait.clone()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn positions_are_reported_in_ranges() {
        let texts =
            [1, 2, 3, 5, 6, 20, 21, 100, 101, 1000].map(|position| PositionRange::of(position).to_string());
        assert_eq!(
            texts,
            [
                "position 1",
                "position 2",
                "position 3 to 5",
                "position 3 to 5",
                "position 6 to 10",
                "position 11 to 20",
                "position 21 to 50",
                "position 51 to 100",
                "position 101 to 200",
                "position 501 to 1000",
            ]
        );
        let wait = Wait::new(7, ReachedLimit::Runs(4));
        assert_eq!(
            wait.to_string(),
            "position 6 to 10 in the queue; all run slots are occupied (--concurrent=4)"
        );
    }

    proptest! {
        #[test]
        fn each_position_is_in_its_range_and_in_no_other(position in 1..=usize::MAX) {
            let PositionRange { first, last } = PositionRange::of(position);
            prop_assert!((first..=last).contains(&position));
            prop_assert_eq!(PositionRange::of(first), PositionRange::of(last));
            prop_assert!(last == usize::MAX || PositionRange::of(last + 1) != PositionRange::of(last));
        }

        /// Whatever happens in the queue: a report stays for the interval, and then shows the wait of that time.
        #[test]
        fn a_report_changes_at_most_once_in_an_interval(
            steps in proptest::collection::vec((0_u64..40, 1_usize..60, 1_u16..3), 1..100),
        ) {
            let mut now = Instant::now();
            let (mut report, mut changed) = (None::<WaitReport>, None::<Instant>);
            for (seconds, position, limit) in steps {
                now += Duration::from_secs(seconds);
                let current = Wait::new(position, ReachedLimit::Runs(limit));
                let next = WaitReport::after(report.clone(), current.clone(), now);
                let is_due = changed.is_none_or(|changed| now - changed >= REPORT_INTERVAL);
                if report.as_ref().is_none_or(|report| report.wait() != next.wait()) {
                    prop_assert!(is_due && next.wait() == current);
                    changed = Some(now);
                } else if is_due {
                    prop_assert_eq!(next.wait(), current);
                }
                report = Some(next);
            }
        }
    }
}
