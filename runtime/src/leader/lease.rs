//! What a Lease says, and what its next content is. Pure: time is given.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::time::Instant;

/// A Lease as last seen, and since when it has looked so.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    spec: LeaseSpec,
    since: Instant,
}

impl Seen {
    /// What is seen now, after what was seen before: the time runs on only while nothing changes.
    pub(super) fn now(before: Option<Self>, spec: LeaseSpec, now: Instant) -> Self {
        match before {
            Some(before) if before.spec == spec => before,
            _ => Self { spec, since: now },
        }
    }

    /// The holder, if it is another one and its time is not over.
    pub(super) fn other(&self, identity: &str, now: Instant) -> Option<&str> {
        let holder = holder(&self.spec)?;
        if holder == identity {
            return None;
        }
        let respected = self.since + duration(&self.spec);
        (now < respected).then_some(holder)
    }

    /// The content by which `identity` takes the Lease, or renews it.
    pub(super) fn taken_by(&self, identity: &str, lease: Duration, now: Timestamp) -> LeaseSpec {
        let own = holder(&self.spec) == Some(identity);
        let now = self.later(now);
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
            ..first(identity, lease, now)
        }
    }

    /// `now`, or the next microsecond where the Lease has `now` already: others see that a Lease was renewed by its content alone,
    /// and a clock that stands still or was set back would hide it.
    fn later(&self, now: Timestamp) -> Timestamp {
        let held = self.spec.renew_time.as_ref().map(|time| time.0.as_microsecond());
        let next = Timestamp::from_microsecond(now.as_microsecond().saturating_add(1));
        if held == Some(now.as_microsecond()) {
            next.unwrap_or(now)
        } else {
            now
        }
    }

    /// The content by which `identity` gives the Lease up; none if another one holds it.
    pub(super) fn given_up_by(&self, identity: &str, now: Timestamp) -> Option<LeaseSpec> {
        (holder(&self.spec) == Some(identity)).then(|| LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: Some(MicroTime(now)),
            renew_time: Some(MicroTime(now)),
            ..self.spec.clone()
        })
    }
}

/// The content of a Lease that nobody has made yet.
pub(super) fn first(identity: &str, lease: Duration, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        // Whole seconds; a fraction is rounded up, so that others never respect the Lease too short.
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

/// How long its holder asks others to wait.
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
    fn the_lease_of_another_is_respected_for_its_duration_from_when_it_was_seen_last_changed() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let held = first("a", LEASE, wall(0));
        let seen = Seen::now(None, held.clone(), at(0));
        assert_eq!(seen.other("b", at(34)), Some("a"));
        assert_eq!(seen.other("b", at(35)), None);
        assert_eq!(seen.other("a", at(1)), None);
        // Looked at again without a change: the time runs on. Renewed: it starts anew, whatever the clock of `a` says.
        let seen = Seen::now(Some(seen), held, at(20));
        assert_eq!(seen.other("b", at(36)), None);
        let renewed = seen.taken_by("a", LEASE, wall(-90_000));
        let seen = Seen::now(Some(seen), renewed, at(30));
        assert_eq!(seen.other("b", at(64)), Some("a"));
    }

    #[test]
    fn taking_over_counts_a_transition_and_renewing_does_not() {
        let seen = Seen::now(None, first("a", LEASE, wall(1)), Instant::now());
        let renewed = seen.taken_by("a", LEASE, wall(9));
        assert_eq!(renewed.lease_transitions, Some(0));
        assert_eq!(renewed.acquire_time, Some(MicroTime(wall(1))));
        assert_eq!(renewed.renew_time, Some(MicroTime(wall(9))));
        let taken = seen.taken_by("b", LEASE, wall(9));
        assert_eq!(
            (taken.lease_transitions, taken.lease_duration_seconds),
            (Some(1), Some(35))
        );
        assert_eq!(taken.acquire_time, Some(MicroTime(wall(9))));
        assert_eq!(taken.holder_identity.as_deref(), Some("b"));
    }

    #[test]
    fn a_lease_given_up_has_no_holder_and_a_second_and_is_free_at_once() {
        let now = Instant::now();
        let seen = Seen::now(None, first("a", LEASE, wall(1)), now);
        assert_eq!(seen.given_up_by("b", wall(2)), None);
        let free = seen.given_up_by("a", wall(2)).unwrap();
        assert_eq!(
            (
                free.holder_identity.as_deref(),
                free.lease_duration_seconds,
                free.lease_transitions
            ),
            (Some(""), Some(1), Some(0))
        );
        assert_eq!(Seen::now(Some(seen), free, now).other("b", now), None);
    }

    #[test]
    fn a_lease_without_content_is_free() {
        let now = Instant::now();
        assert_eq!(Seen::now(None, LeaseSpec::default(), now).other("b", now), None);
        let odd = LeaseSpec {
            holder_identity: Some("a".into()),
            lease_duration_seconds: Some(-5),
            ..LeaseSpec::default()
        };
        assert_eq!(Seen::now(None, odd, now).other("b", now), None);
        let most = first("a", Duration::MAX, wall(1)).lease_duration_seconds;
        assert_eq!(most, Some(i32::MAX));
    }
}
