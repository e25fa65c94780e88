//! Evaluation of a Lease and its next content. Pure: the caller passes the time.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::time::Instant;

/// The last observed Lease, and when it last changed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ObservedLease {
    spec: LeaseSpec,
    since: Instant,
}

impl ObservedLease {
    /// Updates the observation; keeps its time if the Lease did not change.
    pub(super) fn update(before: Option<Self>, spec: LeaseSpec, now: Instant) -> Self {
        match before {
            Some(before) if before.spec == spec => before,
            _ => Self { spec, since: now },
        }
    }

    /// Returns the holder if it is another candidate and the Lease has not expired.
    pub(super) fn other_holder(&self, identity: &str, now: Instant) -> Option<&str> {
        let holder = holder(&self.spec)?;
        if holder == identity {
            return None;
        }
        let respected = self.since + duration(&self.spec);
        (now < respected).then_some(holder)
    }

    /// Returns the content with which `identity` acquires or renews the Lease.
    pub(super) fn acquire_spec(&self, identity: &str, lease: Duration, now: Timestamp) -> LeaseSpec {
        let own = holder(&self.spec) == Some(identity);
        let now = if own { self.next_renew_time(now) } else { now };
        let transitions = self.spec.lease_transitions.unwrap_or(0);
        LeaseSpec {
            acquire_time: if own {
                self.spec.acquire_time.clone()
            } else {
                Some(MicroTime(now))
            },
            lease_transitions: Some(if own {
                transitions
            } else {
                transitions.saturating_add(1)
            }),
            ..new_spec(identity, lease, now)
        }
    }

    /// Returns `now`, or the microsecond after the last renewal if the clock stands still or was set back. Others detect renewals
    /// by the content alone and may miss some, so no renewal may repeat the time of an earlier one.
    fn next_renew_time(&self, now: Timestamp) -> Timestamp {
        let last = self.spec.renew_time.as_ref().map(|time| time.0.as_microsecond());
        let next = last.and_then(|last| Timestamp::from_microsecond(last.saturating_add(1)).ok());
        next.map_or(now, |next| now.max(next))
    }

    /// Returns the content with which `identity` releases the Lease; `None` if it is not the holder.
    pub(super) fn release_spec(&self, identity: &str, now: Timestamp) -> Option<LeaseSpec> {
        (holder(&self.spec) == Some(identity)).then(|| LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: Some(MicroTime(now)),
            renew_time: Some(MicroTime(now)),
            ..self.spec.clone()
        })
    }
}

/// Returns the content of a new Lease.
pub(super) fn new_spec(identity: &str, lease: Duration, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        // Rounded up to whole seconds, so that others never respect the Lease for less than its duration.
        lease_duration_seconds: Some(i32::try_from(lease.as_millis().div_ceil(1000)).unwrap_or(i32::MAX)),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(0),
        ..LeaseSpec::default()
    }
}

fn holder(spec: &LeaseSpec) -> Option<&str> {
    spec.holder_identity
        .as_deref()
        .filter(|holder| !holder.is_empty())
}

/// Returns the duration of the Lease.
fn duration(spec: &LeaseSpec) -> Duration {
    let seconds = spec.lease_duration_seconds.unwrap_or(0);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(35);

    fn wall(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_foreign_lease_is_respected_for_its_duration_after_the_last_observed_change() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let held = new_spec("a", LEASE, wall(0));
        let seen = ObservedLease::update(None, held.clone(), at(0));
        assert_eq!(seen.other_holder("b", at(34)), Some("a"));
        assert_eq!(seen.other_holder("b", at(35)), None);
        assert_eq!(seen.other_holder("a", at(1)), None);
        // Observed without a change: the time continues. Renewed: it restarts, whatever the clock of `a` shows.
        let seen = ObservedLease::update(Some(seen), held, at(20));
        assert_eq!(seen.other_holder("b", at(36)), None);
        let renewed = seen.acquire_spec("a", LEASE, wall(-90_000));
        let seen = ObservedLease::update(Some(seen), renewed, at(30));
        assert_eq!(seen.other_holder("b", at(64)), Some("a"));
    }

    #[test]
    fn no_renewal_repeats_the_time_of_an_earlier_one() {
        let mut seen = ObservedLease::update(None, new_spec("a", LEASE, wall(1)), Instant::now());
        let mut times = Vec::new();
        // The clock stands still, is set back, shows an earlier time again, and continues.
        for now in [1, 1, 1, 0, 0, 1, 2] {
            let renewed = seen.acquire_spec("a", LEASE, wall(now));
            times.push(renewed.renew_time.as_ref().unwrap().0);
            seen = ObservedLease::update(Some(seen), renewed, Instant::now());
        }
        assert!(times.is_sorted_by(|one, next| one < next), "{times:?}");
        assert_eq!(times.last(), Some(&wall(2)));
        let taken = seen.acquire_spec("b", LEASE, wall(0));
        assert_eq!(
            taken.renew_time,
            Some(MicroTime(wall(0))),
            "another holder has its own clock"
        );
    }

    #[test]
    fn taking_over_counts_a_transition_and_renewing_does_not() {
        let seen = ObservedLease::update(None, new_spec("a", LEASE, wall(1)), Instant::now());
        let renewed = seen.acquire_spec("a", LEASE, wall(9));
        assert_eq!(renewed.lease_transitions, Some(0));
        assert_eq!(renewed.acquire_time, Some(MicroTime(wall(1))));
        assert_eq!(renewed.renew_time, Some(MicroTime(wall(9))));
        let taken = seen.acquire_spec("b", LEASE, wall(9));
        assert_eq!(
            (taken.lease_transitions, taken.lease_duration_seconds),
            (Some(1), Some(35))
        );
        assert_eq!(taken.acquire_time, Some(MicroTime(wall(9))));
        assert_eq!(taken.holder_identity.as_deref(), Some("b"));
    }

    #[test]
    fn a_released_lease_has_no_holder_and_is_free() {
        let now = Instant::now();
        let seen = ObservedLease::update(None, new_spec("a", LEASE, wall(1)), now);
        assert_eq!(seen.release_spec("b", wall(2)), None);
        let free = seen.release_spec("a", wall(2)).unwrap();
        assert_eq!(
            (
                free.holder_identity.as_deref(),
                free.lease_duration_seconds,
                free.lease_transitions
            ),
            (Some(""), Some(1), Some(0))
        );
        assert_eq!(
            ObservedLease::update(Some(seen), free, now).other_holder("b", now),
            None
        );
    }

    #[test]
    fn a_lease_without_content_is_free() {
        let now = Instant::now();
        assert_eq!(
            ObservedLease::update(None, LeaseSpec::default(), now).other_holder("b", now),
            None
        );
        let odd = LeaseSpec {
            holder_identity: Some("a".into()),
            lease_duration_seconds: Some(-5),
            ..LeaseSpec::default()
        };
        assert_eq!(ObservedLease::update(None, odd, now).other_holder("b", now), None);
        let most = new_spec("a", Duration::MAX, wall(1)).lease_duration_seconds;
        assert_eq!(most, Some(i32::MAX));
    }
}
