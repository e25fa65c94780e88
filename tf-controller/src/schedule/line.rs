//! The line itself: pure, given the time.

use crate::decide::Trigger;
use sluice_runtime::schedule::ObjectKey;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, Instant},
};

/// How long a stack may wait before it counts as one rank more urgent: a steady stream of others never starves it.
const AGES: Duration = Duration::from_secs(600);
/// How long one that was called has to come.
const COMES: Duration = Duration::from_secs(15);

/// How many runs there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Runs at once; at least one.
    pub runs: u16,
    /// Runs of one namespace at once; 0: as many as there are.
    pub per_namespace: u16,
}

/// How urgent a run is. The order is that of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Somebody waits for it: an approval, a request, a deletion.
    Person,
    /// Something new is wanted: a revision, a spec, other inputs.
    Change,
    /// A timer: a look for drift, its correction, another attempt.
    Timer,
}

impl Rank {
    /// The rank of a run that was caused by this.
    #[must_use]
    pub const fn of(trigger: Trigger) -> Self {
        match trigger {
            Trigger::Approval | Trigger::Request | Trigger::Deletion => Self::Person,
            Trigger::Revision | Trigger::Spec | Trigger::Repair => Self::Change,
            Trigger::Interval | Trigger::Drift | Trigger::Retry => Self::Timer,
        }
    }
}

/// Places that are taken, and those who wait for one.
#[derive(Debug)]
pub(super) struct Line {
    limits: Limits,
    taken: BTreeSet<ObjectKey>,
    of_namespace: HashMap<String, usize>,
    waiting: BTreeMap<ObjectKey, Waiter>,
    tickets: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    rank: Rank,
    ticket: u64,
    since: Instant,
    called: Option<Instant>,
}

impl Waiter {
    /// The rank, better by one for each span of waiting.
    fn urgency(&self, now: Instant) -> u64 {
        let spans = now.saturating_duration_since(self.since).as_secs() / AGES.as_secs();
        (self.rank as u64).saturating_sub(spans)
    }
}

impl Line {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            taken: BTreeSet::new(),
            of_namespace: HashMap::new(),
            waiting: BTreeMap::new(),
            tickets: 0,
        }
    }

    /// Whether the stack holds a place now, and whom to call because it came with another rank than before.
    pub(super) fn take(&mut self, stack: &ObjectKey, rank: Rank, now: Instant) -> (bool, Vec<ObjectKey>) {
        if self.taken.contains(stack) {
            return (true, Vec::new());
        }
        self.tickets += 1;
        let ticket = self.tickets;
        let waiter = self.waiting.entry(stack.clone()).or_insert(Waiter {
            rank,
            ticket,
            since: now,
            called: None,
        });
        waiter.rank = rank;
        // Whoever came is called again the next time.
        waiter.called = None;
        let is_next = self.next(now).contains(stack);
        if is_next {
            self.hold(stack);
        }
        (is_next, self.call(now))
    }

    pub(super) fn hold(&mut self, stack: &ObjectKey) {
        self.waiting.remove(stack);
        if self.taken.insert(stack.clone()) {
            *self.of_namespace.entry(stack.namespace.clone()).or_default() += 1;
        }
    }

    /// The stacks to call, now that this one has no place and waits for none.
    pub(super) fn free(&mut self, stack: &ObjectKey, now: Instant) -> Vec<ObjectKey> {
        let waited = self.waiting.remove(stack).is_some();
        let called = self.give_back(stack, now);
        if waited && called.is_empty() {
            self.call(now)
        } else {
            called
        }
    }

    /// The stacks to call, now that this one has no place.
    pub(super) fn give_back(&mut self, stack: &ObjectKey, now: Instant) -> Vec<ObjectKey> {
        let held = self.taken.remove(stack);
        if held && let Some(count) = self.of_namespace.get_mut(&stack.namespace) {
            *count -= 1;
            if *count == 0 {
                self.of_namespace.remove(&stack.namespace);
            }
        }
        if held { self.call(now) } else { Vec::new() }
    }

    pub(super) fn pass_by(&mut self, now: Instant) -> Vec<ObjectKey> {
        let late = |called: Instant| now.saturating_duration_since(called) > COMES;
        self.waiting.retain(|_, waiter| !waiter.called.is_some_and(late));
        self.call(now)
    }

    /// Takes back the places of those who are not there, and tells whom to call then.
    pub(super) fn take_back(
        &mut self,
        is_there: impl Fn(&ObjectKey) -> bool,
        now: Instant,
    ) -> Vec<ObjectKey> {
        let gone: Vec<_> = self
            .taken
            .iter()
            .filter(|stack| !is_there(stack))
            .cloned()
            .collect();
        gone.iter().flat_map(|stack| self.free(stack, now)).collect()
    }

    fn call(&mut self, now: Instant) -> Vec<ObjectKey> {
        let mut called = self.next(now);
        called.retain(|stack| {
            let waiter = self
                .waiting
                .get_mut(stack)
                .filter(|waiter| waiter.called.is_none());
            waiter.map(|waiter| waiter.called = Some(now)).is_some()
        });
        called
    }

    /// Those whose turn it is, as many as there are free places: the most urgent first, then those whose namespace has
    /// the fewest runs, then those who came first.
    fn next(&self, now: Instant) -> Vec<ObjectKey> {
        let free = usize::from(self.limits.runs.max(1)).saturating_sub(self.taken.len());
        let mut of_namespace: HashMap<&str, usize> = HashMap::new();
        let mut next: Vec<ObjectKey> = Vec::new();
        let most = match self.limits.per_namespace {
            0 => usize::MAX,
            most => usize::from(most),
        };
        while next.len() < free {
            let running = |namespace: &str| {
                let taken = self.of_namespace.get(namespace).copied().unwrap_or(0);
                taken + of_namespace.get(namespace).copied().unwrap_or(0)
            };
            let admissible = self
                .waiting
                .iter()
                .filter(|(stack, _)| running(&stack.namespace) < most && !next.contains(stack));
            let best = admissible.min_by_key(|(stack, waiter)| {
                (waiter.urgency(now), running(&stack.namespace), waiter.ticket)
            });
            let Some((stack, _)) = best else { break };
            *of_namespace.entry(&stack.namespace).or_default() += 1;
            next.push(stack.clone());
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(text: &str) -> ObjectKey {
        let (namespace, name) = text.split_once('/').unwrap();
        ObjectKey {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    fn line(runs: u16, per_namespace: u16) -> Line {
        Line::new(Limits { runs, per_namespace })
    }

    fn take(line: &mut Line, stack: &ObjectKey, rank: Rank, now: Instant) -> bool {
        line.take(stack, rank, now).0
    }

    /// Lets the holder end, the called one come, and so on; the order in which they got their places.
    fn order(line: &mut Line, mut holder: ObjectKey, now: Instant) -> Vec<String> {
        let mut order = Vec::new();
        loop {
            let called = line.free(&holder, now);
            let Some(next) = called.first().cloned() else {
                return order;
            };
            let rank = line.waiting[&next].rank;
            assert!(line.take(&next, rank, now).0, "{next} was called");
            order.push(next.to_string());
            holder = next;
        }
    }

    #[test]
    fn places_are_limited_come_back_and_call_the_next() {
        let (mut line, now) = (line(1, 0), Instant::now());
        assert!(
            take(&mut line, &key("n/a"), Rank::Change, now)
                && take(&mut line, &key("n/a"), Rank::Change, now)
        );
        assert!(!take(&mut line, &key("n/b"), Rank::Change, now));
        assert_eq!(line.free(&key("n/a"), now), [key("n/b")]);
        assert!(take(&mut line, &key("n/b"), Rank::Change, now));
        assert_eq!(line.free(&key("n/b"), now), []);
    }

    #[test]
    fn what_is_given_back_was_held_and_who_waits_goes_on_waiting() {
        let (now, mut line) = (Instant::now(), line(1, 0));
        assert!(take(&mut line, &key("a/1"), Rank::Timer, now));
        assert!(!take(&mut line, &key("a/2"), Rank::Timer, now));
        assert_eq!(line.give_back(&key("a/2"), now), [], "it holds nothing");
        assert_eq!(line.give_back(&key("a/1"), now), [key("a/2")], "it still waits");
    }

    #[test]
    fn a_run_in_progress_counts_beyond_the_limit() {
        let (mut line, now) = (line(1, 0), Instant::now());
        line.hold(&key("n/a"));
        line.hold(&key("n/b"));
        assert!(!take(&mut line, &key("n/c"), Rank::Person, now));
        assert_eq!(line.free(&key("n/a"), now), []);
        assert_eq!(line.free(&key("n/b"), now), [key("n/c")]);
    }

    #[test]
    fn people_come_before_changes_and_changes_before_timers() {
        let (mut line, now) = (line(1, 0), Instant::now());
        line.hold(&key("n/holder"));
        for (name, trigger) in [
            ("n/drift", Trigger::Interval),
            ("n/retry", Trigger::Retry),
            ("n/revision", Trigger::Revision),
            ("n/spec", Trigger::Spec),
            ("n/approval", Trigger::Approval),
            ("n/request", Trigger::Request),
        ] {
            assert!(!take(&mut line, &key(name), Rank::of(trigger), now));
        }
        assert_eq!(
            order(&mut line, key("n/holder"), now),
            [
                "n/approval",
                "n/request",
                "n/revision",
                "n/spec",
                "n/drift",
                "n/retry"
            ]
        );
    }

    #[test]
    fn namespaces_take_turns_whoever_came_first() {
        let (mut line, now) = (line(2, 0), Instant::now());
        line.hold(&key("big/0"));
        line.hold(&key("big/00"));
        for name in ["big/1", "big/2", "big/3", "small/1", "small/2"] {
            assert!(!take(&mut line, &key(name), Rank::Change, now));
        }
        // big has a run left: small is next. Then both have one, and the first of the line is.
        assert_eq!(line.free(&key("big/0"), now), [key("small/1")]);
        assert!(take(&mut line, &key("small/1"), Rank::Change, now));
        assert_eq!(line.free(&key("big/00"), now), [key("big/1")]);
    }

    #[test]
    fn a_namespace_has_a_limit_of_its_own_and_holds_up_nobody_else() {
        let (mut line, now) = (line(3, 1), Instant::now());
        assert!(take(&mut line, &key("a/1"), Rank::Timer, now));
        assert!(!take(&mut line, &key("a/2"), Rank::Person, now));
        assert!(take(&mut line, &key("b/1"), Rank::Timer, now));
        assert_eq!(line.free(&key("a/1"), now), [key("a/2")]);
    }

    #[test]
    fn a_person_who_comes_meanwhile_takes_the_place_and_the_other_is_called_again() {
        let (mut line, now) = (line(1, 0), Instant::now());
        line.hold(&key("n/a"));
        assert!(!take(&mut line, &key("n/b"), Rank::Timer, now));
        assert_eq!(line.free(&key("n/a"), now), [key("n/b")]);
        assert!(take(&mut line, &key("n/c"), Rank::Person, now));
        assert!(!take(&mut line, &key("n/b"), Rank::Timer, now));
        assert_eq!(line.free(&key("n/c"), now), [key("n/b")]);
    }

    #[test]
    fn one_that_never_comes_is_passed_by() {
        let (mut line, now) = (line(1, 0), Instant::now());
        line.hold(&key("n/a"));
        assert!(!take(&mut line, &key("n/gone"), Rank::Change, now));
        assert!(!take(&mut line, &key("n/b"), Rank::Change, now));
        assert_eq!(line.free(&key("n/a"), now), [key("n/gone")]);
        assert_eq!(line.pass_by(now + COMES), []);
        assert_eq!(line.pass_by(now + COMES * 2), [key("n/b")]);
    }

    #[test]
    fn the_place_of_a_stack_that_is_not_there_is_taken_back() {
        let (mut line, now) = (line(2, 1), Instant::now());
        line.hold(&key("n/gone"));
        line.hold(&key("m/there"));
        assert!(!take(&mut line, &key("n/next"), Rank::Change, now));
        let called = line.take_back(|stack| stack.name != "gone", now);
        assert_eq!(called, [key("n/next")]);
        assert!(take(&mut line, &key("n/next"), Rank::Change, now));
        assert_eq!(line.take_back(|_| true, now), []);
    }

    #[test]
    fn nobody_starves() {
        let (mut line, now) = (line(1, 0), Instant::now());
        line.hold(&key("n/a"));
        assert!(!take(&mut line, &key("n/drift"), Rank::Timer, now));
        let later = now + AGES * 2;
        assert!(!take(&mut line, &key("n/person"), Rank::Person, later));
        assert_eq!(line.free(&key("n/a"), later), [key("n/drift")]);
    }

    proptest! {
        /// Whatever happens: the limits hold, and as long as there are free places and somebody may take one, somebody
        /// has been called.
        #[test]
        fn limits_hold_and_no_place_is_lost(
            steps in proptest::collection::vec((0_u8..4, 0_u8..3, 0_u8..4, 0_u8..3), 1..80), runs in 1_u16..4, most in 0_u16..3,
        ) {
            let (mut line, mut now) = (line(runs, most), Instant::now());
            for (what, namespace, name, rank) in steps {
                let stack = key(&format!("n{namespace}/{name}"));
                now += Duration::from_secs(1);
                match what {
                    0 | 1 => { let rank = [Rank::Person, Rank::Change, Rank::Timer][usize::from(rank)]; line.take(&stack, rank, now); }
                    2 => { line.free(&stack, now); }
                    _ => { line.pass_by(now); }
                }
                prop_assert!(line.taken.len() <= usize::from(runs));
                for (namespace, count) in &line.of_namespace {
                    prop_assert!(most == 0 || *count <= usize::from(most));
                    prop_assert_eq!(*count, line.taken.iter().filter(|s| &s.namespace == namespace).count());
                }
                prop_assert!(line.taken.iter().all(|stack| !line.waiting.contains_key(stack)));
                let next = line.next(now);
                prop_assert!(next.iter().all(|stack| line.waiting[stack].called.is_some()), "somebody's turn has come and nobody said so");
            }
        }
    }
}
