//! When a failed run is retried: `retryInterval`, `retryStrategy`, `maxRetryInterval`, `remediation.retries`.

use jiff::SignedDuration;

/// Minimum delay before a retry, also if the spec sets less.
const SHORTEST: SignedDuration = SignedDuration::from_secs(1);

/// How the delay grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// `StaticInterval`: the same delay each time.
    Static,
    /// `ExponentialBackoff`: doubled with each failure, the current one counted.
    Exponential,
}

/// The retry fields of a stack, with their defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryPolicy {
    /// `retryInterval`; 15 s when absent.
    pub(crate) interval: SignedDuration,
    /// `retryStrategy`.
    pub(crate) strategy: Strategy,
    /// `maxRetryInterval`; 24 h when absent.
    pub(crate) longest: SignedDuration,
    /// `remediation.retries`: the number of failures that ends the attempts, as upstream counts; `None`: no limit. 0 means one attempt.
    pub(crate) retries: Option<u32>,
}

impl RetryPolicy {
    /// The wait after a failure of attempt number `attempt` (from 1): between 1 s and `longest`.
    pub(crate) fn delay(&self, attempt: u32) -> SignedDuration {
        let exponent = match self.strategy {
            Strategy::Static => 0,
            Strategy::Exponential => attempt.min(30),
        };
        let factor = 1_i32.checked_shl(exponent).unwrap_or(i32::MAX);
        let delay = self.interval.checked_mul(factor).unwrap_or(self.longest);
        let delay = match self.strategy {
            Strategy::Exponential => delay.min(self.longest),
            Strategy::Static => delay,
        };
        delay.max(SHORTEST)
    }

    /// Whether attempt number `attempt` is the last one.
    pub(crate) fn is_exhausted(&self, attempt: u32) -> bool {
        self.retries.is_some_and(|retries| attempt >= retries.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_waits_at_least_a_second() {
        for strategy in [Strategy::Static, Strategy::Exponential] {
            let policy = |interval, longest| RetryPolicy {
                interval: SignedDuration::from_secs(interval),
                strategy,
                longest: SignedDuration::from_secs(longest),
                retries: None,
            };
            assert_eq!(policy(0, 60).delay(1), SignedDuration::from_secs(1));
            assert_eq!(policy(-5, 60).delay(3), SignedDuration::from_secs(1));
        }
    }

    #[test]
    fn attempts_end_at_the_limit_and_the_first_is_always_made() {
        let exhausted = |retries, attempt| {
            let policy = RetryPolicy {
                interval: SignedDuration::from_secs(15),
                strategy: Strategy::Static,
                longest: SignedDuration::from_hours(24),
                retries,
            };
            policy.is_exhausted(attempt)
        };
        for (retries, failures) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
            assert!(exhausted(Some(retries), failures), "{retries}");
            assert!(!exhausted(Some(retries), failures - 1), "{retries}");
        }
        assert!(!exhausted(None, u32::MAX));
    }

    #[test]
    fn the_wait_is_the_interval_or_doubles_to_its_limit() {
        let policy = |strategy, seconds, longest| RetryPolicy {
            interval: SignedDuration::from_secs(seconds),
            strategy,
            longest: SignedDuration::from_secs(longest),
            retries: None,
        };
        let day = 24 * 3600;
        for (strategy, seconds, longest, attempt, expected) in [
            (Strategy::Static, 15, day, 1, 15),
            (Strategy::Static, 42, day, 9, 42),
            // The limit applies to doubled intervals only, not to a static one.
            (Strategy::Static, 42, 10, 9, 42),
            (Strategy::Exponential, 15, day, 1, 30),
            (Strategy::Exponential, 15, day, 2, 60),
            (Strategy::Exponential, 15, day, 5, 480),
            (Strategy::Exponential, 15, 100, 5, 100),
            (Strategy::Exponential, 15, day, u32::MAX, day),
        ] {
            let delay = policy(strategy, seconds, longest).delay(attempt);
            assert_eq!(
                delay.as_secs(),
                expected,
                "{strategy:?} {seconds} {longest} {attempt}"
            );
        }
    }
}
