//! Disrupted runs: Kubernetes ended the pod for a reason of its own (an eviction, a preemption, a lost node). That says nothing about
//! the work, so the run is repeated and uses up none of `remediation.retries`, unless it is disrupted too often in a row. Pure.

use super::{History, MutationPoint, RunFact, Trigger, holds};

/// How many disrupted runs in a row use up no retry.
pub(crate) const FREE_DISRUPTIONS: u32 = 5;

/// Returns the number of disrupted runs in a row after this run, at most one more than [`FREE_DISRUPTIONS`]: so old runs can be deleted
/// and it stays the same. A run that repeats no other one begins a new row.
pub(crate) fn disruptions_in_row(before: u32, run: &RunFact) -> u32 {
    if !run.disrupted {
        return 0;
    }
    match run.trigger {
        Trigger::Retry | Trigger::Deletion => before.saturating_add(1).min(FREE_DISRUPTIONS + 1),
        _ => 1,
    }
}

impl History {
    /// Returns whether the last run was disrupted and uses up no retry.
    pub(crate) fn has_free_disruption(&self) -> bool {
        let is_over = holds(
            MutationPoint::DisruptionLimit,
            self.disruptions > FREE_DISRUPTIONS,
        );
        self.disruptions > 0 && !is_over
    }

    /// Returns the number of attempts up to the last run that count for `remediation.retries`, if none of them succeeded.
    pub(crate) fn failures(&self, last: &RunFact) -> u32 {
        last.attempt.saturating_sub(u32::from(self.has_free_disruption()))
    }

    /// Returns the number of the attempt that follows the last run.
    pub(crate) fn next_attempt(&self, last: &RunFact) -> u32 {
        self.failures(last).saturating_add(1)
    }

    /// Returns the number with which the delay after the last run grows: with disruptions as with failures.
    pub(super) const fn delay_step(&self, last: &RunFact) -> u32 {
        last.attempt.saturating_add(self.disruptions.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use proptest::prelude::*;

    use super::super::tests::{change, ended, line, with_last};
    use super::super::{Facts, Outcome, RetryPolicy, RunAction, Strategy, decide};
    use super::*;

    /// Returns the facts of a stack whose last run was this attempt, disrupted for the given time in a row.
    fn disrupted(attempt: u32, disruptions: u32, ago: i64) -> Facts {
        let run = RunFact {
            attempt,
            disrupted: true,
            ..ended(Outcome::Lost, ago)
        };
        change(with_last(run), |f| f.history.disruptions = disruptions)
    }

    fn limited(facts: Facts, retries: u32) -> String {
        line(&decide(&change(facts, |f| f.retry.retries = Some(retries)), &[]))
    }

    #[test]
    fn a_disrupted_run_is_repeated_and_uses_up_no_retry() {
        for retries in [0, 1, 3] {
            assert_eq!(
                limited(disrupted(1, 1, 15), retries),
                "Plan because Retry, attempt 1",
                "{retries}"
            );
        }
        assert_eq!(
            limited(disrupted(3, FREE_DISRUPTIONS, 15), 3),
            "Plan because Retry, attempt 3"
        );
        assert_eq!(limited(disrupted(1, 1, 5), 1), "RetryAt +10s", "not at once");
        assert_eq!(limited(with_last(ended(Outcome::Lost, 15)), 1), "RetryLimit");
    }

    #[test]
    fn too_many_disruptions_in_a_row_count_as_failures() {
        let many = FREE_DISRUPTIONS + 1;
        assert_eq!(limited(disrupted(1, many, 15), 1), "RetryLimit");
        assert_eq!(
            limited(disrupted(1, many, 15), 2),
            "Plan because Retry, attempt 2"
        );
    }

    #[test]
    fn a_disrupted_destroy_is_the_same_attempt_again() {
        let deleting = change(disrupted(2, 1, 15), |f| {
            f.deleting = true;
            f.policy.destroy_on_deletion = true;
            let last = f.history.last.as_mut().unwrap();
            (last.trigger, last.action) = (Trigger::Deletion, RunAction::PlanAndApply);
        });
        assert_eq!(
            line(&decide(&deleting, &[])),
            "PlanAndApply (destroy) because Deletion, attempt 2, approved by deletion"
        );
    }

    proptest! {
        /// However failures and disruptions alternate, retries end: each disruption beyond the limit counts, and the wait never gets
        /// shorter within a row of disruptions.
        #[test]
        fn retries_end_and_waits_grow(kinds in proptest::collection::vec(any::<bool>(), 1..60), retries in 1_u32..6) {
            let (mut history, mut attempt, mut counted) = (History::default(), 1, 0);
            let mut last_wait = None;
            for disrupted in kinds {
                let run = RunFact { attempt, disrupted, trigger: Trigger::Retry, ..ended(Outcome::Failed, 0) };
                history.disruptions = disruptions_in_row(history.disruptions, &run);
                prop_assert!(history.disruptions <= FREE_DISRUPTIONS + 1);
                counted += u32::from(!history.has_free_disruption());
                prop_assert_eq!(history.failures(&run), counted);
                let policy = RetryPolicy {
                    interval: SignedDuration::from_secs(15),
                    strategy: Strategy::Exponential,
                    longest: SignedDuration::from_hours(24),
                    retries: Some(retries),
                };
                prop_assert_eq!(policy.is_exhausted(history.failures(&run)), counted >= retries);
                let wait = policy.delay(history.delay_step(&run));
                prop_assert!(!disrupted || last_wait.is_none_or(|last| wait >= last));
                last_wait = Some(wait);
                attempt = history.next_attempt(&run);
            }
        }
    }
}
