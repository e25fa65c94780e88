//! The queue of runs: pure, with the time as an argument.

mod admission;
mod ranking;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use admission::{Admission, KeptMemory};
use ranking::{Ranked, Ranking};
use sluice_runtime::schedule::ObjectKey;

use super::limits::{ReachedLimit, RunLimits, RunUsage, UsageTotals, WaitReason};
use super::wait::{Wait, WaitReport};
use crate::decide::Trigger;

/// Waiting time that raises a stack's priority by one, so that a steady stream of others never starves it. After it, memory is kept
/// free for a stack that waits for memory, or it starts as the only run of its namespace.
const AGING_INTERVAL: Duration = Duration::from_mins(10);
/// How long a grant is valid.
const GRANT_TIMEOUT: Duration = Duration::from_secs(15);
/// How many reports are replaced at once.
const MAX_REPORTS: usize = 20;

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
    /// All of them, in order.
    pub(crate) const ALL: [Self; 3] = [Self::Manual, Self::Change, Self::Timer];

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

/// The result of a request for a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// The stack occupies one.
    Occupied,
    /// The stack waits in the queue; what to report about that.
    Waiting(Wait),
}

/// Occupied slots, and the stacks that wait for one.
#[derive(Debug)]
pub(super) struct RunQueue {
    limits: RunLimits,
    occupied: BTreeMap<ObjectKey, RunUsage>,
    totals: UsageTotals,
    waiting: BTreeMap<ObjectKey, Waiter>,
    tickets: u64,
}

/// A stack in the queue.
#[derive(Clone, Debug)]
struct Waiter {
    priority: Priority,
    usage: RunUsage,
    ticket: u64,
    since: Instant,
    granted: Option<Instant>,
    report: Option<WaitReport>,
}

impl Waiter {
    /// The priority, raised by one for each aging interval.
    fn urgency(&self, now: Instant) -> u64 {
        let intervals = self.age(now).as_secs() / AGING_INTERVAL.as_secs();
        (self.priority as u64).saturating_sub(intervals)
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    fn is_aged(&self, now: Instant) -> bool {
        self.age(now) >= AGING_INTERVAL
    }
}

/// The stacks that can start now.
struct Admissible {
    /// They, in order.
    stacks: Vec<ObjectKey>,
    /// What is used once they run.
    totals: UsageTotals,
}

impl RunQueue {
    pub(super) const fn new(limits: RunLimits) -> Self {
        Self {
            limits,
            occupied: BTreeMap::new(),
            totals: UsageTotals::new(),
            waiting: BTreeMap::new(),
            tickets: 0,
        }
    }

    pub(super) const fn limits(&self) -> &RunLimits {
        &self.limits
    }

    /// Returns whether the stack occupies a slot now, and the stacks that are granted one because a priority changed.
    pub(super) fn request(
        &mut self,
        stack: &ObjectKey,
        priority: Priority,
        usage: RunUsage,
        now: Instant,
    ) -> (SlotState, Vec<ObjectKey>) {
        if self.keep_slot(stack, &usage, now) {
            return (SlotState::Occupied, self.grant(now));
        }
        self.tickets += 1;
        let new = Waiter {
            priority,
            usage: RunUsage::default(),
            ticket: self.tickets,
            since: now,
            granted: None,
            report: None,
        };
        let waiter = self.waiting.entry(stack.clone()).or_insert(new);
        waiter.priority = priority;
        waiter.usage.clone_from(&usage);
        // Clear the grant so it can be granted again.
        waiter.granted = None;
        let admissible = self.admissible(now);
        let state = if admissible.stacks.contains(stack) {
            self.occupy(stack, usage);
            SlotState::Occupied
        } else {
            let limit = self.limit_of(&stack.namespace, &usage, &admissible.totals);
            SlotState::Waiting(self.report(stack, limit, now))
        };
        (state, self.grant(now))
    }

    pub(super) fn occupy(&mut self, stack: &ObjectKey, usage: RunUsage) {
        self.waiting.remove(stack);
        if let Entry::Vacant(slot) = self.occupied.entry(stack.clone()) {
            self.totals.add(&stack.namespace, &usage);
            slot.insert(usage);
        }
    }

    /// Returns whether the stack occupies a slot and keeps it for another run. That run may use more than the one before: if it
    /// exceeds a limit, or takes memory that is kept free, the slot is free.
    fn keep_slot(&mut self, stack: &ObjectKey, usage: &RunUsage, now: Instant) -> bool {
        let Some(before) = self.free_slot(stack) else {
            return false;
        };
        let reached = self.totals.reached(&stack.namespace, usage, &self.limits);
        let is_larger = usage.memory > before.memory;
        let fits = reached.is_none() && !(is_larger && self.takes_kept_memory(stack, usage, now));
        let is_kept = before == *usage || fits;
        if is_kept {
            self.occupy(stack, usage.clone());
        }
        is_kept
    }

    /// Returns whether a stack that has waited for [`AGING_INTERVAL`] would have too little memory beside this run, and all else it needs.
    fn takes_kept_memory(&self, stack: &ObjectKey, usage: &RunUsage, now: Instant) -> bool {
        let mut totals = self.totals.clone();
        totals.add(&stack.namespace, usage);
        let mut kept = KeptMemory::default();
        for (other, waiter) in self.waiting.iter().filter(|(_, waiter)| waiter.is_aged(now)) {
            let reached = totals.reached(&other.namespace, &waiter.usage, &self.limits);
            if matches!(reached, Some(ReachedLimit::Memory(_))) {
                kept.add(&other.namespace, &waiter.usage);
            }
        }
        !kept.permits(&stack.namespace, &totals, &self.limits)
    }

    /// Releases the stack's slot or its position in the queue; returns the stacks that are granted a slot.
    pub(super) fn release(&mut self, stack: &ObjectKey, now: Instant) -> Vec<ObjectKey> {
        self.waiting.remove(stack);
        self.release_held(stack, now)
    }

    /// Releases the stack's slot; returns the stacks that are granted one.
    pub(super) fn release_held(&mut self, stack: &ObjectKey, now: Instant) -> Vec<ObjectKey> {
        self.free_slot(stack);
        self.grant(now)
    }

    /// Releases the stack's slot; returns what its run used of the limits.
    fn free_slot(&mut self, stack: &ObjectKey) -> Option<RunUsage> {
        let usage = self.occupied.remove(stack)?;
        self.totals.remove(&stack.namespace, &usage);
        Some(usage)
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
            .keys()
            .filter(|stack| !exists(stack))
            .cloned()
            .collect();
        for stack in &deleted {
            self.free_slot(stack);
        }
        self.grant(now)
    }

    /// Returns the stacks whose report is outdated, the first of the queue first, and at most [`MAX_REPORTS`]: each of them is
    /// reconciled and its status written.
    pub(super) fn outdated_reports(&self, now: Instant) -> Vec<ObjectKey> {
        let totals = self.admissible(now).totals;
        let outdated = self.positions(now).filter(|(position, ranked)| {
            let report = ranked.waiter.report.as_ref();
            let report = report.filter(|_| ranked.waiter.granted.is_none());
            report.is_some_and(|report| report.is_outdated(&self.wait(*position, *ranked, &totals), now))
        });
        outdated
            .map(|(_, ranked)| ranked.stack.clone())
            .take(MAX_REPORTS)
            .collect()
    }

    /// Returns the numbers of this queue.
    pub(super) fn summary(&self, now: Instant) -> QueueSummary {
        let totals = self.admissible(now).totals;
        let (mut waiting, mut longest_wait) = (BTreeMap::new(), Duration::ZERO);
        for (stack, waiter) in &self.waiting {
            let reason = self.reached(&stack.namespace, waiter, &totals).reason();
            *waiting.entry((waiter.priority, reason)).or_default() += 1;
            longest_wait = longest_wait.max(waiter.age(now));
        }
        QueueSummary {
            slots: self.limits.slots(),
            occupied: self.occupied.len(),
            waiting,
            longest_wait,
        }
    }

    /// Returns what to report about a waiting stack that has reached this limit.
    fn report(&mut self, stack: &ObjectKey, limit: ReachedLimit, now: Instant) -> Wait {
        let before = self
            .positions(now)
            .take_while(|(_, ranked)| ranked.stack != stack);
        let current = Wait::new(before.count() + 1, limit);
        let waiter = self.waiting.get_mut(stack);
        let last = waiter.as_ref().and_then(|waiter| waiter.report.clone());
        let report = WaitReport::after(last, current, now);
        let wait = report.wait();
        if let Some(waiter) = waiter {
            waiter.report = Some(report);
        }
        wait
    }

    fn wait(&self, position: usize, ranked: Ranked<'_>, totals: &UsageTotals) -> Wait {
        Wait::new(
            position,
            self.reached(&ranked.stack.namespace, ranked.waiter, totals),
        )
    }

    /// Returns what a waiting stack waits for. `totals` is what is used once the next stacks run: one that is granted a slot is among
    /// them, so it waits for nothing but its own request.
    fn reached(&self, namespace: &str, waiter: &Waiter, totals: &UsageTotals) -> ReachedLimit {
        if waiter.granted.is_some() {
            return ReachedLimit::Runs(self.limits.runs);
        }
        self.limit_of(namespace, &waiter.usage, totals)
    }

    /// Returns the limit that a run would exceed. One that would fit waits until there is memory for a stack before it.
    fn limit_of(&self, namespace: &str, usage: &RunUsage, totals: &UsageTotals) -> ReachedLimit {
        let reached = totals.reached(namespace, usage, &self.limits);
        reached.unwrap_or_else(|| match self.limits.memory.bytes() {
            0 => ReachedLimit::Runs(self.limits.runs),
            _ => ReachedLimit::Memory(self.limits.memory),
        })
    }

    /// Returns all waiting stacks in order, each with its position from 1.
    fn positions(&self, now: Instant) -> impl Iterator<Item = (usize, Ranked<'_>)> {
        let mut ranking = self.ranking(now);
        let ordered = std::iter::from_fn(move || {
            let ranked = ranking.next()?;
            ranking.count_run(&ranked.stack.namespace);
            Some(ranked)
        });
        (1..).zip(ordered)
    }

    /// Grants the free slots; returns the stacks that had no grant. Every step ends with it: the order changes with time alone.
    fn grant(&mut self, now: Instant) -> Vec<ObjectKey> {
        let mut granted = self.admissible(now).stacks;
        granted.retain(|stack| {
            let waiter = self
                .waiting
                .get_mut(stack)
                .filter(|waiter| waiter.granted.is_none());
            waiter.map(|waiter| waiter.granted = Some(now)).is_some()
        });
        granted
    }

    /// Returns the next stacks, at most one for each free slot, as far as the other limits allow. A stack that waits for memory may
    /// be overtaken by smaller ones until it has waited for [`AGING_INTERVAL`].
    fn admissible(&self, now: Instant) -> Admissible {
        let (mut stacks, mut totals) = (Vec::new(), self.totals.clone());
        if totals.runs() >= self.limits.slots() {
            return Admissible { stacks, totals };
        }
        let (mut ranking, mut kept) = (self.ranking(now), KeptMemory::default());
        while totals.runs() < self.limits.slots() {
            let Some(Ranked { stack, waiter, .. }) = ranking.next() else {
                break;
            };
            let (namespace, usage) = (stack.namespace.as_str(), &waiter.usage);
            match Admission::of(namespace, usage, waiter.is_aged(now), &totals, &self.limits) {
                Admission::Waits => {}
                Admission::KeepsMemory => kept.add(namespace, usage),
                Admission::Fits => {
                    totals.add(namespace, usage);
                    if kept.permits(namespace, &totals, &self.limits) {
                        ranking.count_run(namespace);
                        stacks.push(stack.clone());
                    } else {
                        totals.remove(namespace, usage);
                        if waiter.is_aged(now) {
                            kept.add(namespace, usage);
                        }
                    }
                }
            }
        }
        Admissible { stacks, totals }
    }

    fn ranking(&self, now: Instant) -> Ranking<'_> {
        Ranking::new(
            self.waiting.iter(),
            |namespace| self.totals.runs_of(namespace),
            now,
        )
    }
}

#[cfg(test)]
mod tests;
