//! Which events are written as they are, which as one of many, and which not at all: the rules and numbers of client-go's
//! correlator, so that an object which fails in ever new words costs the API no more than Flux's would. Pure.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;

use super::{Event, Severity};

/// Within this time equal events are counted, and similar ones are combined.
pub(super) const WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// So many different messages of one object and reason are written as they are; from then on one event stands for all.
const DIFFERENT: usize = 10;
/// Events of one object that may come at once.
const BURST: u32 = 25;
/// After this time one more may come.
const REFILL: Duration = Duration::from_secs(5 * 60);
/// Objects, and reasons, that are remembered; beyond it the older half is forgotten.
const REMEMBERED: usize = 4096;

/// How an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// With its own message.
    Alone,
    /// In the place of earlier ones of the same object and reason.
    Combined,
}

/// Remembers what objects said lately.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    budgets: HashMap<About, Budget>,
    similar: HashMap<(About, Severity, String), Similar>,
}

/// An object, as far as events tell objects apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct About {
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

/// How many events an object may still have.
#[derive(Clone, Copy, Debug)]
struct Budget {
    left: u32,
    /// Up to when what was refilled is counted in.
    at: Timestamp,
}

/// The messages of one object and reason.
#[derive(Clone, Debug)]
struct Similar {
    messages: HashSet<String>,
    at: Timestamp,
}

impl Correlator {
    /// How an event is to be written; nothing if the object has had more than enough.
    pub(super) fn admit(&mut self, object: &ObjectReference, event: &Event, now: Timestamp) -> Option<Form> {
        let about = About {
            kind: object.kind.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            uid: object.uid.clone(),
        };
        let form = self.form(about.clone(), event, now);
        self.spend(about, now).then_some(form)
    }

    fn form(&mut self, about: About, event: &Event, now: Timestamp) -> Form {
        forget_older_half(&mut self.similar, |similar| similar.at);
        let key = (about, event.severity, event.reason.clone());
        let similar = self.similar.entry(key).or_insert_with(|| Similar {
            messages: HashSet::new(),
            at: now,
        });
        if now.duration_since(similar.at) > WINDOW {
            similar.messages.clear();
        }
        similar.at = now;
        if similar.messages.contains(&event.message) {
            return Form::Alone;
        }
        if similar.messages.len() + 1 >= DIFFERENT {
            return Form::Combined;
        }
        similar.messages.insert(event.message.clone());
        Form::Alone
    }

    fn spend(&mut self, about: About, now: Timestamp) -> bool {
        forget_older_half(&mut self.budgets, |budget| budget.at);
        let budget = self
            .budgets
            .entry(about)
            .or_insert(Budget { left: BURST, at: now });
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

/// Keeps a map bounded.
pub(super) fn forget_older_half<K: Eq + Hash, V>(held: &mut HashMap<K, V>, at: impl Fn(&V) -> Timestamp) {
    if held.len() >= REMEMBERED {
        let mut times: Vec<Timestamp> = held.values().map(&at).collect();
        let (_, middle, _) = times.select_nth_unstable(REMEMBERED / 2);
        let middle = *middle;
        held.retain(|_, value| at(value) > middle);
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
            assert_eq!(admit("Failed", &n.to_string(), 0), Some(Form::Alone), "{n}");
        }
        assert_eq!(admit("Failed", "9", 0), Some(Form::Combined));
        assert_eq!(admit("Failed", "10", 600), Some(Form::Combined));
        assert_eq!(
            admit("Failed", "3", 600),
            Some(Form::Alone),
            "it stands there already"
        );
        assert_eq!(admit("Other", "11", 600), Some(Form::Alone));
        assert_eq!(
            admit("Failed", "12", 1201),
            Some(Form::Alone),
            "ten quiet minutes"
        );
    }

    #[test]
    fn an_object_has_a_budget_of_its_own_that_is_refilled() {
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
    fn what_is_remembered_is_bounded() {
        let mut correlator = Correlator::default();
        for n in 0..i64::try_from(3 * REMEMBERED).unwrap() {
            let event = Event::normal("A", "a");
            assert!(correlator.admit(&object(&n.to_string()), &event, at(n)).is_some());
            assert!(correlator.budgets.len() <= REMEMBERED && correlator.similar.len() <= REMEMBERED);
        }
    }
}
