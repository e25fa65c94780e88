//! Concurrency slots for reconciliations: at hosts, for local work and for packing.
//!
//! Objects wait in a queue instead of inside a reconciliation, so that a waiting object holds no thread and sends no
//! request. A free slot is granted to the next object, which is then triggered once ([`Slots::granted`]). The task of
//! an object costs memory, and a trigger costs time: so a few objects wait in their tasks (`in_place`), and the others
//! have none. The order is the same for both. `queue` defines it with the `tickets` that wait, `lane` the resources.

mod in_place;
mod lane;
mod queue;
mod tickets;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::Stream;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
pub(super) use lane::{Lane, SlotRequest};
pub use queue::SlotLimits;
use queue::SlotQueue;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::sync::lock;
use tickets::Ticket;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Prefix of the message while an object waits for a slot.
pub(super) const WAITING: &str = "waiting for a slot at";

/// The slots of all lanes; cheap to clone.
#[derive(Clone, Debug)]
pub struct Slots(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: SlotLimits,
    state: Mutex<State>,
    granted: UnboundedSender<ObjectKey>,
    calls: Mutex<Option<UnboundedReceiver<ObjectKey>>>,
}

#[derive(Debug)]
struct State {
    queue: SlotQueue,
    number: u64,
    /// The waiter of each ticket.
    waiters: HashMap<u64, Waiter>,
    /// The queued objects.
    objects: HashMap<ObjectKey, QueuedObject>,
    /// Slots granted to objects whose reconciliation has not started yet.
    ready: HashMap<ObjectKey, Slot>,
    /// The number of objects that wait in their tasks.
    in_place: usize,
}

#[derive(Debug)]
enum Waiter {
    /// An object, to be triggered.
    Object(ObjectKey),
    /// A running reconciliation that waits for an additional slot.
    Reconciliation(oneshot::Sender<Slot>),
}

#[derive(Debug)]
struct QueuedObject {
    ticket: Ticket,
    since: Instant,
    is_reported: bool,
    /// Whether something triggered it since its last request: its next reconciliation waits for the end of its task.
    is_due: bool,
    /// Wakes the task that waits for the slot, if one does; dropped to end its wait early.
    in_place: Option<oneshot::Sender<()>>,
}

/// The result of a request for a slot.
#[derive(Debug)]
pub(super) enum Acquisition {
    /// A slot.
    Slot(Slot),
    /// No slot is free; the object is queued and will be triggered.
    Queued {
        /// Start of the wait.
        since: Instant,
        /// Whether the wait was reported.
        is_reported: bool,
    },
}

/// A slot, held until dropped.
#[derive(Debug)]
pub(super) struct Slot {
    shared: Arc<Shared>,
    namespace: String,
    lane: Option<Lane>,
    /// Whether it started a reconciliation at a host, which ends with it.
    is_reconciliation: bool,
}

impl Slot {
    /// Releases the lane; the reconciliation continues without it.
    pub(super) fn release(&mut self) {
        let Some(lane) = self.lane.take() else { return };
        self.shared.update(|state| {
            state
                .queue
                .release(&self.namespace, &lane, self.is_reconciliation);
        });
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let lane = self.lane.take();
        if lane.is_none() && !self.is_reconciliation {
            return;
        }
        self.shared.update(|state| {
            if let Some(lane) = &lane {
                state.queue.release(&self.namespace, lane, self.is_reconciliation);
            }
            if self.is_reconciliation {
                state.queue.end_reconciliation(&self.namespace);
            }
        });
    }
}

impl Slots {
    /// Creates the slots with these limits.
    #[must_use]
    pub fn new(limits: SlotLimits) -> Self {
        let (granted, calls) = unbounded();
        Self(Arc::new(Shared {
            limits,
            state: Mutex::new(State {
                queue: SlotQueue::new(limits),
                number: 0,
                waiters: HashMap::new(),
                objects: HashMap::new(),
                ready: HashMap::new(),
                in_place: 0,
            }),
            granted,
            calls: Mutex::new(Some(calls)),
        }))
    }

    /// Returns a stream of queued objects that were granted a slot. It can be taken once; a second stream is empty.
    pub fn granted(&self) -> impl Stream<Item = ObjectKey> + Send + 'static {
        let calls = lock(&self.0.calls).take();
        calls.unwrap_or_else(|| unbounded().1)
    }

    /// Acquires a slot for a reconciliation of the object, or queues the object. A queued object that requests another
    /// lane is queued for that lane instead.
    pub(super) fn acquire(&self, key: &ObjectKey, request: &SlotRequest) -> Acquisition {
        let mut state = self.0.lock();
        if !state.ready.is_empty()
            && let Some(slot) = state.ready.remove(key)
        {
            // Release the lock first: the destructor of a slot takes it.
            drop(state);
            if slot.lane.as_ref() == Some(&request.lane) {
                return Acquisition::Slot(slot);
            }
            drop(slot);
            state = self.0.lock();
        }
        if !state.queue.grant_now(&key.namespace, request) {
            return state.enqueue(key, request);
        }
        // It may have been queued for another lane.
        state.withdraw(key);
        drop(state);
        Acquisition::Slot(Slot {
            shared: Arc::clone(&self.0),
            namespace: key.namespace.clone(),
            lane: Some(request.lane.clone()),
            is_reconciliation: request.lane.is_host(),
        })
    }

    /// Waits for an additional slot of a running reconciliation, before all objects that wait for their start. Its release
    /// must not depend on a wait for another slot: otherwise two reconciliations may wait for each other.
    pub(super) async fn acquire_additional(&self, namespace: &str, lane: Lane) -> Option<Slot> {
        let (sender, slot) = oneshot::channel();
        self.0.update(|state| {
            let ticket = state.ticket(namespace, lane, false, false);
            state
                .waiters
                .insert(ticket.number, Waiter::Reconciliation(sender));
            state.queue.push(ticket);
        });
        slot.await.ok()
    }

    /// Returns how long an object waits before the wait is reported.
    pub(super) fn report_after(&self) -> Duration {
        self.0.limits.report_after
    }

    /// Marks the wait of an object as reported.
    pub(super) fn mark_reported(&self, key: &ObjectKey) {
        if let Some(waiting) = self.0.lock().objects.get_mut(key) {
            waiting.is_reported = true;
        }
    }

    /// Removes a deleted object and its slot.
    pub(super) fn forget(&self, key: &ObjectKey) {
        let slot = {
            let mut state = self.0.lock();
            state.withdraw(key);
            state.ready.remove(key)
        };
        drop(slot);
    }

    /// Returns the message for a wait in this lane.
    pub(super) fn wait_message(&self, lane: &Lane) -> String {
        let limit = self.0.limits.limit(lane);
        format!("{WAITING} {lane}: all {limit} slots are in use")
    }

    /// Returns the number of slots in use and of waiters in a lane.
    pub(super) fn load(&self, lane: &Lane) -> (usize, usize) {
        self.0.lock().queue.load(lane)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Updates the state and grants free slots. Sends them after releasing the lock, since a slot without a receiver is
    /// dropped, which returns it. An object that waits in its task is woken instead of triggered.
    fn update(self: &Arc<Self>, update: impl FnOnce(&mut State)) {
        let mut additional = Vec::new();
        {
            let mut state = self.lock();
            update(&mut state);
            while let Some(ticket) = state.queue.grant_next() {
                let slot = Slot {
                    shared: Arc::clone(self),
                    is_reconciliation: ticket.starts_at_host(),
                    namespace: ticket.namespace,
                    lane: Some(ticket.lane),
                };
                match state.waiters.remove(&ticket.number) {
                    Some(Waiter::Object(key)) => {
                        let waiting = state.objects.remove(&key);
                        if let Some(wake) = waiting.and_then(|waiting| waiting.in_place) {
                            state.ready.insert(key, slot);
                            // Fails if the wait is being cancelled, which returns the slot.
                            let _ = wake.send(());
                        } else {
                            state.ready.insert(key.clone(), slot);
                            // Sending fails only on shutdown.
                            drop(self.granted.unbounded_send(key));
                        }
                    }
                    Some(Waiter::Reconciliation(sender)) => additional.push((sender, slot)),
                    None => additional.push((oneshot::channel().0, slot)),
                }
            }
        }
        for (sender, slot) in additional {
            drop(sender.send(slot));
        }
    }
}

impl State {
    fn ticket(
        &mut self,
        namespace: &str,
        lane: Lane,
        is_urgent: bool,
        starts_reconciliation: bool,
    ) -> Ticket {
        self.number += 1;
        Ticket {
            number: self.number,
            namespace: namespace.to_owned(),
            lane,
            is_urgent,
            starts_reconciliation,
        }
    }

    /// Queues an object that gets no slot now, or updates its ticket.
    fn enqueue(&mut self, key: &ObjectKey, request: &SlotRequest) -> Acquisition {
        let mut since = Instant::now();
        let mut is_reported = false;
        if let Some(mut waiting) = self.objects.remove(key) {
            (since, is_reported) = (waiting.since, waiting.is_reported);
            let existing = &waiting.ticket;
            if existing.lane == request.lane && existing.is_urgent >= request.is_urgent {
                waiting.is_due = false;
                self.objects.insert(key.clone(), waiting);
                return Acquisition::Queued { since, is_reported };
            }
            self.waiters.remove(&existing.number);
            self.queue.remove_start(existing);
        }
        let ticket = self.ticket(&key.namespace, request.lane.clone(), request.is_urgent, true);
        self.waiters.insert(ticket.number, Waiter::Object(key.clone()));
        self.queue.push(ticket.clone());
        let waiting = QueuedObject {
            ticket,
            since,
            is_reported,
            is_due: false,
            in_place: None,
        };
        self.objects.insert(key.clone(), waiting);
        Acquisition::Queued { since, is_reported }
    }

    /// Removes an object from the queue.
    fn withdraw(&mut self, key: &ObjectKey) {
        // Most often nothing is queued, and the key needs no hash.
        if self.objects.is_empty() {
            return;
        }
        if let Some(waiting) = self.objects.remove(key) {
            self.waiters.remove(&waiting.ticket.number);
            self.queue.remove_start(&waiting.ticket);
        }
    }
}

#[cfg(test)]
mod tests;
