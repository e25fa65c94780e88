//! Bounds on the times that objects ask for. Pure.

use std::time::Duration;

use sluice_api::interval::Interval;
use sluice_api::source::GitRepositorySpec;

/// Flag that sets [`Times::timeout`].
const TIMEOUT_FLAG: &str = "--max-timeout";
/// Flag that sets [`Times::shortest`].
const SHORTEST_FLAG: &str = "--min-interval";
/// Flag that sets [`Times::longest`].
const LONGEST_FLAG: &str = "--max-interval";

/// Bounds on the times that objects ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Longest `spec.timeout` that counts.
    pub timeout: Duration,
    /// Shortest `spec.interval` that counts; zero means no timer and stays.
    pub shortest: Duration,
    /// Longest `spec.interval` that counts.
    pub longest: Duration,
}

impl Default for Times {
    /// An hour for a fetch; between a second and a year from look to look.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(3600),
            shortest: Duration::from_secs(1),
            longest: Duration::from_secs(365 * 24 * 3600),
        }
    }
}

impl Times {
    /// The spec with a timeout within the bound.
    pub(super) fn applied(&self, spec: &GitRepositorySpec) -> GitRepositorySpec {
        let mut spec = spec.clone();
        if spec.timeout.to_duration() > self.timeout {
            spec.timeout = Interval::from_secs(u32::try_from(self.timeout.as_secs()).unwrap_or(u32::MAX));
        }
        spec
    }

    /// The interval within the bounds.
    pub(super) fn interval(&self, spec: &GitRepositorySpec) -> Duration {
        match spec.interval.to_duration() {
            Duration::ZERO => Duration::ZERO,
            interval => interval.min(self.longest).max(self.shortest),
        }
    }

    /// What counts in another way than the spec says it.
    pub(super) fn remarks(&self, spec: &GitRepositorySpec) -> Vec<String> {
        let (timeout, interval) = (spec.timeout.to_duration(), spec.interval.to_duration());
        let mut remarks = Vec::new();
        let mut remark = |field: &str, asked: Duration, used: Duration, flag: &str| {
            remarks.push(format!(
                "{field} is {asked:?}: {used:?} is used, the bound that {flag} sets"
            ));
        };
        if timeout > self.timeout {
            remark("spec.timeout", timeout, self.timeout, TIMEOUT_FLAG);
        }
        let used = self.interval(spec);
        if used > interval {
            remark("spec.interval", interval, used, SHORTEST_FLAG);
        }
        if used < interval {
            remark("spec.interval", interval, used, LONGEST_FLAG);
        }
        remarks
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(interval: &str, timeout: &str) -> GitRepositorySpec {
        let spec = json!({ "url": "https://h/r", "interval": interval, "timeout": timeout });
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn times_beyond_the_bounds_count_as_the_bounds_and_are_named_with_their_flags() {
        let times = Times::default();
        for (interval, timeout, used, remarks) in [
            ("1m", "60s", (60_000, 60), &[][..]),
            ("0s", "60s", (0, 60), &[]),
            ("1ms", "60s", (1000, 60), &["--min-interval"]),
            ("1m", "99999999m", (60_000, 3600), &["--max-timeout"]),
            (
                "99999h",
                "2h",
                (31_536_000_000, 3600),
                &["--max-timeout", "--max-interval"],
            ),
        ] {
            let spec = spec(interval, timeout);
            let found = (
                times.interval(&spec).as_millis(),
                times.applied(&spec).timeout.to_duration().as_secs(),
            );
            assert_eq!(found, used, "{interval} {timeout}");
            let said = times.remarks(&spec);
            assert_eq!(said.len(), remarks.len(), "{said:?}");
            assert!(
                said.iter().zip(remarks).all(|(said, flag)| said.contains(flag)),
                "{said:?}"
            );
        }
    }
}
