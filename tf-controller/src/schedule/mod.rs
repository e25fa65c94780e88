//! Which stacks may run: limits of runs at once (in all, of a namespace, of a label's value, of their memory), and the order of those
//! that wait. A waiting stack is reconciled when it is granted a slot, or when its report is outdated; it does not poll.

mod label_limit;
mod limits;
mod queue;
mod wait;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
pub use label_limit::{LabelLimit, LabelLimitError};
pub use limits::RunLimits;
pub(crate) use limits::{RunUsage, WaitReason};
use queue::RunQueue;
pub(crate) use queue::{Priority, QueueSummary, SlotState};
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::sync::lock;

/// Slots for runs; a stack occupies at most one.
#[derive(Debug)]
pub(crate) struct RunSlots {
    queue: Mutex<RunQueue>,
    granted: UnboundedSender<ObjectKey>,
}

impl RunSlots {
    /// Returns free slots within `limits`, and a stream of the stacks that are granted one: reconcile each.
    #[must_use]
    pub(crate) fn new(limits: RunLimits) -> (Self, UnboundedReceiver<ObjectKey>) {
        let (granted, grants) = mpsc::unbounded();
        let queue = Mutex::new(RunQueue::new(limits));
        (Self { queue, granted }, grants)
    }

    /// Returns what a run of a stack with these labels uses of the limits. `memory` is its estimate in bytes.
    pub(crate) fn usage(&self, labels: &BTreeMap<String, String>, memory: u64) -> RunUsage {
        self.queue().limits().usage(labels, memory)
    }

    /// Returns whether runs are limited by a label of their stack.
    pub(crate) fn has_label_limits(&self) -> bool {
        self.queue().limits().has_labels()
    }

    /// Requests a slot for a stack's run; it may occupy one already. If none is free, the stack waits in the queue until it is granted
    /// one.
    #[must_use]
    pub(crate) fn request(&self, stack: &ObjectKey, priority: Priority, usage: RunUsage) -> SlotState {
        let (state, granted) = self.queue().request(stack, priority, usage, Instant::now());
        self.grant(granted);
        state
    }

    /// Counts an active run that an earlier controller started, beyond the limits if need be.
    pub(crate) fn occupy(&self, stack: &ObjectKey, usage: RunUsage) {
        self.queue().occupy(stack, usage);
    }

    /// Releases a stack's slot, or removes it from the queue.
    pub(crate) fn release(&self, stack: &ObjectKey) {
        let granted = self.queue().release(stack, Instant::now());
        self.grant(granted);
    }

    /// Releases a stack's slot; a stack in the queue keeps its position.
    pub(crate) fn release_held(&self, stack: &ObjectKey) {
        let granted = self.queue().release_held(stack, Instant::now());
        self.grant(granted);
    }

    /// Expires the grants of stacks that did not request their slot: their objects are gone, or broken.
    pub(crate) fn expire_grants(&self) {
        let granted = self.queue().expire_grants(Instant::now());
        self.grant(granted);
    }

    /// Releases the slots of stacks that no longer exist, and removes them from the queue: they disappeared without a last
    /// reconciliation, or belong to another controller.
    pub(crate) fn reclaim(&self, exists: impl Fn(&ObjectKey) -> bool) {
        let granted = self.queue().reclaim(exists, Instant::now());
        self.grant(granted);
    }

    /// Returns some stacks whose status shows another position in the queue or another limit than those of now: reconcile each.
    pub(crate) fn outdated_reports(&self) -> Vec<ObjectKey> {
        self.queue().outdated_reports(Instant::now())
    }

    /// Returns the numbers of slots and waiting stacks.
    pub(crate) fn summary(&self) -> QueueSummary {
        self.queue().summary(Instant::now())
    }

    fn grant(&self, stacks: Vec<ObjectKey>) {
        for stack in stacks {
            // The receiver is gone: the controller is stopping.
            drop(self.granted.unbounded_send(stack));
        }
    }

    fn queue(&self) -> MutexGuard<'_, RunQueue> {
        lock(&self.queue)
    }
}
