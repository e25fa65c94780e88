//! Scheduling of objects: intervals with jitter, and exponential back-off per object.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Resource;

use crate::random::Random;
use crate::sync::lock;

/// Namespace and name of an object of a known kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Its namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectKey {
    /// Returns the key of an object that was read from the API.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The regular timer of objects, with jitter.
#[derive(Clone)]
pub struct Schedule {
    jitter_percent: u8,
    random: Arc<dyn Random>,
}

impl Schedule {
    /// Creates a timer with a jitter of ± `jitter_percent` of the interval; values above 99 count as 99.
    #[must_use]
    pub fn new(jitter_percent: u8, random: Arc<dyn Random>) -> Self {
        Self {
            jitter_percent: jitter_percent.min(99),
            random,
        }
    }

    /// Returns the time until the next reconciliation: the interval, spread uniformly over ± the jitter, so that objects
    /// that were created together drift apart. An interval of zero means no timer.
    #[must_use]
    pub fn after(&self, interval: Duration) -> Option<Duration> {
        if interval.is_zero() {
            return None;
        }
        let spread = f64::from(self.jitter_percent) / 100.0;
        let factor = (self.random.unit() * 2.0 - 1.0).mul_add(spread, 1.0);
        Some(Duration::try_from_secs_f64(interval.as_secs_f64() * factor).unwrap_or(interval))
    }
}

impl std::fmt::Debug for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schedule")
            .field("jitter_percent", &self.jitter_percent)
            .finish_non_exhaustive()
    }
}

/// Distance of the moments at which long delays end.
const STEP: Duration = Duration::from_millis(500);
/// The shortest delay that counts as long: it is prolonged by at most an eighteenth. Below ten seconds, because the jitter shortens half of
/// the delays of an interval of ten seconds.
const LONG: Duration = Duration::from_secs(9);

/// Returns the delay, which a long one exceeds so that it ends at a multiple of half a second from the start of the controller. What one
/// reconciliation has brought into the caches of the CPU then serves the next: the code of a lookup is larger than they are, and other
/// processes evict it within milliseconds. `running` is the time from the start until now.
#[must_use]
pub fn align(delay: Duration, running: Duration) -> Duration {
    if delay < LONG {
        return delay;
    }
    let beyond = running.saturating_add(delay).as_nanos() % STEP.as_nanos();
    let beyond = Duration::from_nanos(u64::try_from(beyond).unwrap_or_default());
    if beyond.is_zero() {
        delay
    } else {
        delay.saturating_add(STEP.saturating_sub(beyond))
    }
}

/// Exponential back-off, counted per object: `min · 2ⁿ`, at most `max`.
#[derive(Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    failures: Mutex<HashMap<ObjectKey, u32>>,
}

impl Backoff {
    /// Creates a back-off between these two delays.
    #[must_use]
    pub fn new(min: Duration, max: Duration) -> Self {
        Self {
            min,
            max: max.max(min),
            failures: Mutex::new(HashMap::new()),
        }
    }

    /// Counts a failure of the object and returns the delay before the next attempt.
    pub fn fail(&self, key: &ObjectKey) -> Duration {
        let mut failures = lock(&self.failures);
        let count = failures.entry(key.clone()).or_insert(0);
        let delay = self.delay(*count);
        *count = count.saturating_add(1);
        delay
    }

    /// Resets the object's failures.
    pub fn reset(&self, key: &ObjectKey) {
        let mut failures = lock(&self.failures);
        // Most often there are none, and the key needs no hash.
        if !failures.is_empty() {
            failures.remove(key);
        }
    }

    /// Returns the number of consecutive failures of the object.
    #[must_use]
    pub fn failures(&self, key: &ObjectKey) -> u32 {
        lock(&self.failures).get(key).copied().unwrap_or(0)
    }

    /// Returns the delay after `n` earlier failures; never overflows.
    #[must_use]
    pub fn delay(&self, n: u32) -> Duration {
        self.min
            .checked_mul(1_u32 << n.min(31))
            .map_or(self.max, |delay| delay.min(self.max))
    }
}

impl Default for Backoff {
    /// Returns Flux's defaults: 750 ms, doubled up to 15 min.
    fn default() -> Self {
        Self::new(Duration::from_millis(750), Duration::from_mins(15))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Generator;

    fn key(name: &str) -> ObjectKey {
        ObjectKey {
            namespace: "ns".into(),
            name: name.into(),
        }
    }

    #[test]
    fn back_off_doubles_up_to_its_limit_and_never_overflows() {
        let backoff = Backoff::default();
        let delays: Vec<_> = (0..13).map(|_| backoff.fail(&key("a")).as_millis()).collect();
        assert_eq!(delays[..4], [750, 1500, 3000, 6000]);
        assert_eq!(delays[10], 768_000);
        assert_eq!(delays[11..], [900_000, 900_000]);
        assert_eq!(backoff.delay(u32::MAX), Duration::from_mins(15));
    }

    #[test]
    fn back_off_is_each_objects_own_and_can_be_reset() {
        let backoff = Backoff::default();
        backoff.fail(&key("a"));
        backoff.fail(&key("a"));
        assert_eq!(backoff.fail(&key("b")), Duration::from_millis(750));
        backoff.reset(&key("a"));
        assert_eq!(backoff.failures(&key("a")), 0);
        assert_eq!(backoff.fail(&key("a")), Duration::from_millis(750));
    }

    #[test]
    fn jitter_stays_in_its_range_and_uses_it() {
        let schedule = Schedule::new(5, Arc::new(Generator::seeded(3)));
        let drawn: Vec<_> = (0..500)
            .filter_map(|_| schedule.after(Duration::from_secs(100)))
            .map(|d| d.as_secs_f64())
            .collect();
        assert!(drawn.iter().all(|d| (95.0..=105.0).contains(d)));
        assert!(drawn.iter().any(|d| *d < 96.0) && drawn.iter().any(|d| *d > 104.0));
        assert_eq!(schedule.after(Duration::ZERO), None);
        assert!(schedule.after(Duration::MAX).is_some());
    }

    #[test]
    fn long_delays_end_together_and_never_early() {
        let of =
            |delay, running| align(Duration::from_millis(delay), Duration::from_millis(running)).as_millis();
        assert_eq!(of(8_999, 1), 8_999, "a short one is exact");
        assert_eq!(of(9_500, 1), 9_999, "ten seconds with a jitter of 5 %");
        assert_eq!((of(10_000, 0), of(10_000, 500)), (10_000, 10_000));
        assert_eq!((of(10_000, 1), of(10_000, 499)), (10_499, 10_001));
        assert_eq!(of(60_123, 4_000), 60_500);
        let longest = align(Duration::MAX, Duration::from_millis(1));
        assert_eq!(longest, Duration::MAX);
    }

    #[test]
    fn without_jitter_the_interval_is_exact() {
        let schedule = Schedule::new(0, Arc::new(Generator::seeded(3)));
        assert_eq!(
            schedule.after(Duration::from_mins(1)),
            Some(Duration::from_mins(1))
        );
    }
}
