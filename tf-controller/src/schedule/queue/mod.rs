//! The queue of runs: pure, with the time as an argument.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use sluice_runtime::schedule::ObjectKey;

use crate::decide::Trigger;

/// Waiting time that raises a stack's priority by one, so that a steady stream of others never starves it.
const AGING_INTERVAL: Duration = Duration::from_secs(600);
/// How long a grant is valid.
const GRANT_TIMEOUT: Duration = Duration::from_secs(15);

/// Limits of runs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Runs at once; at least one.
    pub(crate) runs: u16,
    /// Runs of one namespace at once; 0: no limit.
    pub(crate) per_namespace: u16,
}

/// Priority of a run. The order of the variants is the order of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// A user waits for it: an approval, a request, a deletion.
    Manual,
    /// A change: a revision, a spec, inputs.
    Change,
    /// A timer: drift detection, drift correction, a retry.
    Timer,
}

impl Priority {
    /// The priority of a run with this trigger.
    #[must_use]
    pub(crate) const fn from_trigger(trigger: Trigger) -> Self {
        match trigger {
            Trigger::Approval | Trigger::Request | Trigger::Deletion => Self::Manual,
            Trigger::Revision | Trigger::Spec | Trigger::Repair => Self::Change,
            Trigger::Interval | Trigger::Drift | Trigger::Retry => Self::Timer,
        }
    }
}

/// Why a stack waits in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WaitReason {
    /// As many runs as allowed are in progress.
    Slots,
    /// As many runs of its namespace as allowed are in progress.
    NamespaceSlots,
}

/// The queue at one time, in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueSummary {
    /// Slots for runs.
    pub(crate) slots: usize,
    /// Occupied slots.
    pub(crate) occupied: usize,
    /// Stacks that wait.
    pub(crate) waiting: BTreeMap<(Priority, WaitReason), usize>,
    /// How long the stack that came first has waited.
    pub(crate) longest_wait: Duration,
}

/// Occupied slots, and the stacks that wait for one.
#[derive(Debug)]
pub(super) struct RunQueue {
    limits: Limits,
    occupied: BTreeSet<ObjectKey>,
    of_namespace: HashMap<String, usize>,
    waiting: BTreeMap<ObjectKey, Waiter>,
    tickets: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    priority: Priority,
    ticket: u64,
    since: Instant,
    granted: Option<Instant>,
}

impl Waiter {
    /// The priority, raised by one for each aging interval.
    fn urgency(&self, now: Instant) -> u64 {
        let intervals = now.saturating_duration_since(self.since).as_secs() / AGING_INTERVAL.as_secs();
        (self.priority as u64).saturating_sub(intervals)
    }
}

impl RunQueue {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            occupied: BTreeSet::new(),
            of_namespace: HashMap::new(),
            waiting: BTreeMap::new(),
            tickets: 0,
        }
    }

    /// Returns whether the stack occupies a slot now, and the stacks that are granted one because a priority changed.
    pub(super) fn request(
        &mut self,
        stack: &ObjectKey,
        priority: Priority,
        now: Instant,
    ) -> (bool, Vec<ObjectKey>) {
        if self.occupied.contains(stack) {
            return (true, Vec::new());
        }
        self.tickets += 1;
        let ticket = self.tickets;
        let waiter = self.waiting.entry(stack.clone()).or_insert(Waiter {
            priority,
            ticket,
            since: now,
            granted: None,
        });
        waiter.priority = priority;
        // Clear the grant so it can be granted again.
        waiter.granted = None;
        let is_next = self.next(now).contains(stack);
        if is_next {
            self.occupy(stack);
        }
        (is_next, self.grant(now))
    }

    pub(super) fn occupy(&mut self, stack: &ObjectKey) {
        self.waiting.remove(stack);
        if self.occupied.insert(stack.clone()) {
            *self.of_namespace.entry(stack.namespace.clone()).or_default() += 1;
        }
    }

    /// Releases the stack's slot or its position in the queue; returns the stacks that are granted a slot.
    pub(super) fn release(&mut self, stack: &ObjectKey, now: Instant) -> Vec<ObjectKey> {
        let was_waiting = self.waiting.remove(stack).is_some();
        let granted = self.release_held(stack, now);
        if was_waiting && granted.is_empty() {
            self.grant(now)
        } else {
            granted
        }
    }

    /// Releases the stack's slot; returns the stacks that are granted one.
    pub(super) fn release_held(&mut self, stack: &ObjectKey, now: Instant) -> Vec<ObjectKey> {
        let was_occupied = self.occupied.remove(stack);
        if was_occupied && let Some(count) = self.of_namespace.get_mut(&stack.namespace) {
            *count -= 1;
            if *count == 0 {
                self.of_namespace.remove(&stack.namespace);
            }
        }
        if was_occupied { self.grant(now) } else { Vec::new() }
    }

    pub(super) fn expire_grants(&mut self, now: Instant) -> Vec<ObjectKey> {
        let is_expired = |granted: Instant| now.saturating_duration_since(granted) > GRANT_TIMEOUT;
        self.waiting
            .retain(|_, waiter| !waiter.granted.is_some_and(is_expired));
        self.grant(now)
    }

    /// Releases the slots of stacks that no longer exist; returns the stacks that are granted one.
    pub(super) fn reclaim(&mut self, exists: impl Fn(&ObjectKey) -> bool, now: Instant) -> Vec<ObjectKey> {
        let deleted: Vec<_> = self
            .occupied
            .iter()
            .filter(|stack| !exists(stack))
            .cloned()
            .collect();
        deleted
            .iter()
            .flat_map(|stack| self.release(stack, now))
            .collect()
    }

    /// Returns the numbers of this queue.
    pub(super) fn summary(&self, now: Instant) -> QueueSummary {
        let mut waiting = BTreeMap::new();
        let mut longest_wait = Duration::ZERO;
        for (stack, waiter) in &self.waiting {
            let running = self.of_namespace.get(&stack.namespace).copied().unwrap_or(0);
            let reason = if running < self.most_of_namespace() {
                WaitReason::Slots
            } else {
                WaitReason::NamespaceSlots
            };
            *waiting.entry((waiter.priority, reason)).or_default() += 1;
            longest_wait = longest_wait.max(now.saturating_duration_since(waiter.since));
        }
        QueueSummary {
            slots: self.slots(),
            occupied: self.occupied.len(),
            waiting,
            longest_wait,
        }
    }

    fn slots(&self) -> usize {
        usize::from(self.limits.runs.max(1))
    }

    fn most_of_namespace(&self) -> usize {
        match self.limits.per_namespace {
            0 => usize::MAX,
            most => usize::from(most),
        }
    }

    fn grant(&mut self, now: Instant) -> Vec<ObjectKey> {
        let mut granted = self.next(now);
        granted.retain(|stack| {
            let waiter = self
                .waiting
                .get_mut(stack)
                .filter(|waiter| waiter.granted.is_none());
            waiter.map(|waiter| waiter.granted = Some(now)).is_some()
        });
        granted
    }

    /// The next stacks, one for each free slot: by priority, then by the number of runs in their namespace, then in order of arrival.
    fn next(&self, now: Instant) -> Vec<ObjectKey> {
        let free = self.slots().saturating_sub(self.occupied.len());
        let mut of_namespace: HashMap<&str, usize> = HashMap::new();
        let mut next: Vec<ObjectKey> = Vec::new();
        let most = self.most_of_namespace();
        while next.len() < free {
            let running = |namespace: &str| {
                let occupied = self.of_namespace.get(namespace).copied().unwrap_or(0);
                occupied + of_namespace.get(namespace).copied().unwrap_or(0)
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
    use proptest::prelude::*;

    use super::*;

    fn key(text: &str) -> ObjectKey {
        let (namespace, name) = text.split_once('/').unwrap();
        ObjectKey {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    fn queue(runs: u16, per_namespace: u16) -> RunQueue {
        RunQueue::new(Limits { runs, per_namespace })
    }

    fn request(queue: &mut RunQueue, stack: &ObjectKey, priority: Priority, now: Instant) -> bool {
        queue.request(stack, priority, now).0
    }

    /// Releases the holder's slot, lets the granted stack request it, and so on; returns the order of the slots.
    fn order(queue: &mut RunQueue, mut holder: ObjectKey, now: Instant) -> Vec<String> {
        let mut order = Vec::new();
        loop {
            let granted = queue.release(&holder, now);
            let Some(next) = granted.first().cloned() else {
                return order;
            };
            let priority = queue.waiting[&next].priority;
            assert!(queue.request(&next, priority, now).0, "{next} was granted a slot");
            order.push(next.to_string());
            holder = next;
        }
    }

    #[test]
    fn slots_are_limited_and_granted_to_the_next() {
        let (mut queue, now) = (queue(1, 0), Instant::now());
        assert!(
            request(&mut queue, &key("n/a"), Priority::Change, now)
                && request(&mut queue, &key("n/a"), Priority::Change, now)
        );
        assert!(!request(&mut queue, &key("n/b"), Priority::Change, now));
        assert_eq!(queue.release(&key("n/a"), now), [key("n/b")]);
        assert!(request(&mut queue, &key("n/b"), Priority::Change, now));
        assert_eq!(queue.release(&key("n/b"), now), []);
    }

    #[test]
    fn releasing_a_slot_keeps_the_position_of_waiting_stacks() {
        let (now, mut queue) = (Instant::now(), queue(1, 0));
        assert!(request(&mut queue, &key("a/1"), Priority::Timer, now));
        assert!(!request(&mut queue, &key("a/2"), Priority::Timer, now));
        assert_eq!(queue.release_held(&key("a/2"), now), [], "it holds nothing");
        assert_eq!(
            queue.release_held(&key("a/1"), now),
            [key("a/2")],
            "it still waits"
        );
    }

    #[test]
    fn a_run_in_progress_counts_beyond_the_limit() {
        let (mut queue, now) = (queue(1, 0), Instant::now());
        queue.occupy(&key("n/a"));
        queue.occupy(&key("n/b"));
        assert!(!request(&mut queue, &key("n/c"), Priority::Manual, now));
        assert_eq!(queue.release(&key("n/a"), now), []);
        assert_eq!(queue.release(&key("n/b"), now), [key("n/c")]);
    }

    #[test]
    fn manual_runs_precede_changes_and_changes_precede_timers() {
        let (mut queue, now) = (queue(1, 0), Instant::now());
        queue.occupy(&key("n/holder"));
        for (name, trigger) in [
            ("n/drift", Trigger::Interval),
            ("n/retry", Trigger::Retry),
            ("n/revision", Trigger::Revision),
            ("n/spec", Trigger::Spec),
            ("n/approval", Trigger::Approval),
            ("n/request", Trigger::Request),
        ] {
            assert!(!request(
                &mut queue,
                &key(name),
                Priority::from_trigger(trigger),
                now
            ));
        }
        assert_eq!(
            order(&mut queue, key("n/holder"), now),
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
    fn namespaces_alternate_regardless_of_arrival() {
        let (mut queue, now) = (queue(2, 0), Instant::now());
        queue.occupy(&key("big/0"));
        queue.occupy(&key("big/00"));
        for name in ["big/1", "big/2", "big/3", "small/1", "small/2"] {
            assert!(!request(&mut queue, &key(name), Priority::Change, now));
        }
        // `big` still has a run, so `small` is next. Then both have one, and the first in the queue is next.
        assert_eq!(queue.release(&key("big/0"), now), [key("small/1")]);
        assert!(request(&mut queue, &key("small/1"), Priority::Change, now));
        assert_eq!(queue.release(&key("big/00"), now), [key("big/1")]);
    }

    #[test]
    fn a_namespace_limit_does_not_delay_other_namespaces() {
        let (mut queue, now) = (queue(3, 1), Instant::now());
        assert!(request(&mut queue, &key("a/1"), Priority::Timer, now));
        assert!(!request(&mut queue, &key("a/2"), Priority::Manual, now));
        assert!(request(&mut queue, &key("b/1"), Priority::Timer, now));
        assert_eq!(queue.release(&key("a/1"), now), [key("a/2")]);
    }

    #[test]
    fn a_manual_run_takes_a_granted_slot_and_the_other_is_granted_again() {
        let (mut queue, now) = (queue(1, 0), Instant::now());
        queue.occupy(&key("n/a"));
        assert!(!request(&mut queue, &key("n/b"), Priority::Timer, now));
        assert_eq!(queue.release(&key("n/a"), now), [key("n/b")]);
        assert!(request(&mut queue, &key("n/c"), Priority::Manual, now));
        assert!(!request(&mut queue, &key("n/b"), Priority::Timer, now));
        assert_eq!(queue.release(&key("n/c"), now), [key("n/b")]);
    }

    #[test]
    fn an_unused_grant_expires() {
        let (mut queue, now) = (queue(1, 0), Instant::now());
        queue.occupy(&key("n/a"));
        assert!(!request(&mut queue, &key("n/gone"), Priority::Change, now));
        assert!(!request(&mut queue, &key("n/b"), Priority::Change, now));
        assert_eq!(queue.release(&key("n/a"), now), [key("n/gone")]);
        assert_eq!(queue.expire_grants(now + GRANT_TIMEOUT), []);
        assert_eq!(queue.expire_grants(now + GRANT_TIMEOUT * 2), [key("n/b")]);
    }

    #[test]
    fn the_slot_of_a_missing_stack_is_reclaimed() {
        let (mut queue, now) = (queue(2, 1), Instant::now());
        queue.occupy(&key("n/gone"));
        queue.occupy(&key("m/there"));
        assert!(!request(&mut queue, &key("n/next"), Priority::Change, now));
        let granted = queue.reclaim(|stack| stack.name != "gone", now);
        assert_eq!(granted, [key("n/next")]);
        assert!(request(&mut queue, &key("n/next"), Priority::Change, now));
        assert_eq!(queue.reclaim(|_| true, now), []);
    }

    #[test]
    fn the_summary_counts_slots_and_waiting_stacks_by_priority_and_reason() {
        let (mut queue, now) = (queue(2, 1), Instant::now());
        let empty = queue.summary(now);
        assert_eq!((empty.slots, empty.occupied), (2, 0));
        assert!(empty.waiting.is_empty() && empty.longest_wait.is_zero());
        assert!(request(&mut queue, &key("a/1"), Priority::Timer, now));
        let later = now + Duration::from_secs(5);
        assert!(!request(&mut queue, &key("a/2"), Priority::Manual, now));
        assert!(request(&mut queue, &key("b/1"), Priority::Timer, later));
        assert!(!request(&mut queue, &key("c/1"), Priority::Change, later));
        assert!(!request(&mut queue, &key("c/2"), Priority::Change, later));
        let summary = queue.summary(now + Duration::from_secs(7));
        assert_eq!((summary.slots, summary.occupied), (2, 2));
        let expected = [
            ((Priority::Manual, WaitReason::NamespaceSlots), 1),
            ((Priority::Change, WaitReason::Slots), 2),
        ];
        assert_eq!(summary.waiting, expected.into());
        assert_eq!(summary.longest_wait, Duration::from_secs(7));
        queue.release(&key("a/2"), later);
        assert_eq!(queue.summary(later).longest_wait, Duration::ZERO);
    }

    #[test]
    fn waiting_raises_the_priority() {
        let (mut queue, now) = (queue(1, 0), Instant::now());
        queue.occupy(&key("n/a"));
        assert!(!request(&mut queue, &key("n/drift"), Priority::Timer, now));
        let later = now + AGING_INTERVAL * 2;
        assert!(!request(&mut queue, &key("n/person"), Priority::Manual, later));
        assert_eq!(queue.release(&key("n/a"), later), [key("n/drift")]);
    }

    proptest! {
        /// The limits hold after every sequence of steps, and each free slot that a stack may take is granted.
        #[test]
        fn limits_hold_and_no_slot_is_lost(
            steps in proptest::collection::vec((0_u8..4, 0_u8..3, 0_u8..4, 0_u8..3), 1..80), runs in 1_u16..4, most in 0_u16..3,
        ) {
            let (mut queue, mut now) = (queue(runs, most), Instant::now());
            for (what, namespace, name, priority) in steps {
                let stack = key(&format!("n{namespace}/{name}"));
                now += Duration::from_secs(1);
                match what {
                    0 | 1 => { let priority = [Priority::Manual, Priority::Change, Priority::Timer][usize::from(priority)]; queue.request(&stack, priority, now); }
                    2 => { queue.release(&stack, now); }
                    _ => { queue.expire_grants(now); }
                }
                prop_assert!(queue.occupied.len() <= usize::from(runs));
                for (namespace, count) in &queue.of_namespace {
                    prop_assert!(most == 0 || *count <= usize::from(most));
                    prop_assert_eq!(*count, queue.occupied.iter().filter(|s| &s.namespace == namespace).count());
                }
                prop_assert!(queue.occupied.iter().all(|stack| !queue.waiting.contains_key(stack)));
                let next = queue.next(now);
                prop_assert!(next.iter().all(|stack| queue.waiting[stack].granted.is_some()), "a slot is free and not granted");
            }
        }
    }
}
