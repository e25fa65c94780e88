//! Aggregation and rate limit of events, with the rules and numbers of client-go's correlator, so that an object that fails
//! with ever new messages costs the API no more than with Flux. Pure.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;

use super::Event;

/// Window in which equal events are counted and similar ones are combined.
pub(super) const WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// From this number of different messages of one object and reason on, messages are combined into one event.
const DIFFERENT: usize = 10;
/// Burst of events per object.
const BURST: u32 = 25;
/// Time after which one more event is allowed.
const REFILL: Duration = Duration::from_mins(5);
/// Maximum number of tracked objects and reasons; the older half is evicted.
const MAX_ENTRIES: usize = 4096;

/// How an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aggregation {
    /// With its own message.
    Single,
    /// Combined with earlier events of the same object and reason.
    Combined,
}

/// Tracks the recent events of objects. Objects, reasons and messages are their hashes, because their texts take a kilobyte for each
/// object. Two with the same hash would count together; of 4096 hashes of 64 bits, none are equal in practice.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    hasher: RandomState,
    /// By object.
    budgets: HashMap<u64, Budget>,
    /// By object, severity and reason.
    similar: HashMap<u64, Similar>,
}

/// The remaining events of an object.
#[derive(Clone, Copy, Debug)]
struct Budget {
    left: u32,
    /// Time of the last refill.
    at: Timestamp,
}

/// The messages of one object and reason.
#[derive(Clone, Debug)]
struct Similar {
    messages: Vec<u64>,
    at: Timestamp,
}

impl Correlator {
    /// Returns how an event is written; `None` if the object exceeds its rate limit.
    pub(super) fn admit(
        &mut self,
        object: &ObjectReference,
        event: &Event,
        now: Timestamp,
    ) -> Option<Aggregation> {
        let about = (&object.kind, &object.namespace, &object.name, &object.uid);
        let (budget, similar, message) = (
            self.hasher.hash_one(about),
            self.hasher.hash_one((about, event.severity, &event.reason)),
            self.hasher.hash_one(&event.message),
        );
        let form = self.form(similar, message, now);
        self.spend(budget, now).then_some(form)
    }

    fn form(&mut self, key: u64, message: u64, now: Timestamp) -> Aggregation {
        evict_older_half(&mut self.similar, |similar| similar.at);
        let similar = self.similar.entry(key).or_insert_with(|| Similar {
            messages: Vec::with_capacity(1),
            at: now,
        });
        if now.duration_since(similar.at) > WINDOW {
            similar.messages.clear();
        }
        similar.at = now;
        if similar.messages.contains(&message) {
            return Aggregation::Single;
        }
        if similar.messages.len() + 1 >= DIFFERENT {
            return Aggregation::Combined;
        }
        similar.messages.push(message);
        Aggregation::Single
    }

    fn spend(&mut self, key: u64, now: Timestamp) -> bool {
        evict_older_half(&mut self.budgets, |budget| budget.at);
        let budget = self.budgets.entry(key).or_insert(Budget { left: BURST, at: now });
        let since = Duration::try_from(now.duration_since(budget.at)).unwrap_or_default();
        let refilled = u32::try_from(since.as_secs() / REFILL.as_secs()).unwrap_or(u32::MAX);
        if refilled > 0 {
            budget.left = budget.left.saturating_add(refilled).min(BURST);
            budget.at = budget
                .at
                .checked_add(REFILL.saturating_mul(refilled))
                .unwrap_or(now);
        }
        let allowed = budget.left > 0;
        budget.left = budget.left.saturating_sub(1);
        allowed
    }
}

/// Evicts the older half of a full map.
pub(super) fn evict_older_half<K: Eq + Hash, V>(entries: &mut HashMap<K, V>, at: impl Fn(&V) -> Timestamp) {
    if entries.len() >= MAX_ENTRIES {
        let mut times: Vec<Timestamp> = entries.values().map(&at).collect();
        let (_, middle, _) = times.select_nth_unstable(MAX_ENTRIES / 2);
        let middle = *middle;
        entries.retain(|_, value| at(value) > middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> ObjectReference {
        ObjectReference {
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn from_the_tenth_message_on_events_of_a_reason_are_combined() {
        let mut correlator = Correlator::default();
        let mut admit = |reason: &str, message: &str, seconds| {
            correlator.admit(&object("a"), &Event::warning(reason, message), at(seconds))
        };
        for n in 0..9 {
            assert_eq!(
                admit("Failed", &n.to_string(), 0),
                Some(Aggregation::Single),
                "{n}"
            );
        }
        assert_eq!(admit("Failed", "9", 0), Some(Aggregation::Combined));
        assert_eq!(admit("Failed", "10", 600), Some(Aggregation::Combined));
        assert_eq!(
            admit("Failed", "3", 600),
            Some(Aggregation::Single),
            "it stands there already"
        );
        assert_eq!(admit("Other", "11", 600), Some(Aggregation::Single));
        assert_eq!(
            admit("Failed", "12", 1201),
            Some(Aggregation::Single),
            "ten quiet minutes"
        );
    }

    #[test]
    fn each_object_has_a_budget_that_is_refilled() {
        let mut correlator = Correlator::default();
        let mut admitted = |name: &str, seconds| {
            let event = Event::normal("A", "a");
            (0..100)
                .filter(|_| correlator.admit(&object(name), &event, at(seconds)).is_some())
                .count()
        };
        assert_eq!(admitted("a", 0), 25);
        assert_eq!(admitted("b", 0), 25);
        assert_eq!((admitted("a", 299), admitted("a", 300)), (0, 1));
        assert_eq!(admitted("a", 1000), 2);
        assert_eq!(admitted("a", 1_000_000), 25);
    }

    #[test]
    fn no_texts_of_events_are_kept() {
        let mut correlator = Correlator::default();
        let event = Event::normal("TheReason", "the message");
        assert!(correlator.admit(&object("the-object"), &event, at(0)).is_some());
        let kept = format!("{correlator:?}");
        for text in ["TheReason", "the message", "the-object"] {
            assert!(!kept.contains(text), "{kept}");
        }
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        let mut correlator = Correlator::default();
        for n in 0..i64::try_from(3 * MAX_ENTRIES).unwrap() {
            let event = Event::normal("A", "a");
            assert!(correlator.admit(&object(&n.to_string()), &event, at(n)).is_some());
            assert!(correlator.budgets.len() <= MAX_ENTRIES && correlator.similar.len() <= MAX_ENTRIES);
        }
    }
}
