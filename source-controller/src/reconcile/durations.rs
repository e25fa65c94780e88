//! Bounds of the durations in specs. Pure.

use std::borrow::Cow;
use std::time::Duration;

use sluice_api::interval::Interval;
use sluice_api::source::GitRepositorySpec;

/// Flag that sets [`DurationBounds::max_timeout`].
const MAX_TIMEOUT_FLAG: &str = "--max-timeout";
/// Flag that sets [`DurationBounds::min_interval`].
const MIN_INTERVAL_FLAG: &str = "--min-interval";
/// Flag that sets [`DurationBounds::max_interval`].
const MAX_INTERVAL_FLAG: &str = "--max-interval";

/// Bounds of the durations in specs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationBounds {
    /// Maximum of `spec.timeout`.
    pub max_timeout: Duration,
    /// Minimum of `spec.interval`; zero disables the timer and is kept.
    pub min_interval: Duration,
    /// Maximum of `spec.interval`.
    pub max_interval: Duration,
}

impl Default for DurationBounds {
    /// Timeout of at most an hour; interval between a second and a year.
    fn default() -> Self {
        Self {
            max_timeout: Duration::from_hours(1),
            min_interval: Duration::from_secs(1),
            max_interval: Duration::from_hours(8760),
        }
    }
}

impl DurationBounds {
    /// Returns the spec with a timeout within the bound.
    pub(super) fn clamp_timeout<'a>(&self, spec: &'a GitRepositorySpec) -> Cow<'a, GitRepositorySpec> {
        if spec.timeout.to_duration() <= self.max_timeout {
            return Cow::Borrowed(spec);
        }
        let seconds = u32::try_from(self.max_timeout.as_secs()).unwrap_or(u32::MAX);
        Cow::Owned(GitRepositorySpec {
            timeout: Interval::from_secs(seconds),
            ..spec.clone()
        })
    }

    /// Returns the interval within the bounds.
    pub(super) fn interval(&self, spec: &GitRepositorySpec) -> Duration {
        match spec.interval.to_duration() {
            Duration::ZERO => Duration::ZERO,
            interval => interval.min(self.max_interval).max(self.min_interval),
        }
    }

    /// Returns a message for each value that is out of bounds.
    pub(super) fn warnings(&self, spec: &GitRepositorySpec) -> Vec<String> {
        let (timeout, interval) = (spec.timeout.to_duration(), spec.interval.to_duration());
        let mut warnings = Vec::new();
        let mut warn = |field: &str, requested: Duration, used: Duration, flag: &str| {
            warnings.push(format!(
                "{field} is {requested:?}; using {used:?}, the limit set by {flag}"
            ));
        };
        if timeout > self.max_timeout {
            warn("spec.timeout", timeout, self.max_timeout, MAX_TIMEOUT_FLAG);
        }
        let used = self.interval(spec);
        if used > interval {
            warn("spec.interval", interval, used, MIN_INTERVAL_FLAG);
        }
        if used < interval {
            warn("spec.interval", interval, used, MAX_INTERVAL_FLAG);
        }
        warnings
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
    fn durations_are_clamped_and_reported_with_their_flags() {
        let durations = DurationBounds::default();
        for (interval, timeout, used, warnings) in [
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
                durations.interval(&spec).as_millis(),
                durations.clamp_timeout(&spec).timeout.to_duration().as_secs(),
            );
            assert_eq!(found, used, "{interval} {timeout}");
            let found = durations.warnings(&spec);
            assert_eq!(found.len(), warnings.len(), "{found:?}");
            assert!(
                found
                    .iter()
                    .zip(warnings)
                    .all(|(found, flag)| found.contains(flag)),
                "{found:?}"
            );
        }
    }
}
