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

    /// Releases the slots and the positions of stacks that no longer exist; returns the stacks that are granted a slot.
    pub(super) fn reclaim(&mut self, exists: impl Fn(&ObjectKey) -> bool, now: Instant) -> Vec<ObjectKey> {
        // First, so that none of them is granted a slot.
        self.waiting.retain(|stack, _| exists(stack));
        let deleted: Vec<_> = self
            .occupied
            .iter()
            .filter(|stack| !exists(stack))
            .cloned()
            .collect();
        let mut granted: Vec<_> = deleted
            .iter()
            .flat_map(|stack| self.release_held(stack, now))
            .collect();
        // A stack that was removed may have had a grant.
        granted.extend(self.grant(now));
        granted
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
mod tests;
