//! Places for passes: at hosts, at the disk, and where artifacts are packed.
//!
//! Objects wait in a queue and not in passes: one that waits holds no thread and costs no request. Each place that becomes
//! free is given to the next object, which is then called once ([`Places::granted`]). `queue` decides who is next, `lane`
//! what for.

mod lane;
mod queue;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::Stream;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use sluice_runtime::schedule::ObjectKey;
use tokio::sync::oneshot;
use tokio::time::Instant;

pub(super) use lane::{Lane, Request};
pub use queue::Bounds;
use queue::{RunQueue, Ticket};

use super::report::WAITING;

/// Places of all lanes; cheap to clone.
#[derive(Clone, Debug)]
pub struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bounds: Bounds,
    state: Mutex<State>,
    granted: UnboundedSender<ObjectKey>,
    calls: Mutex<Option<UnboundedReceiver<ObjectKey>>>,
}

#[derive(Debug)]
struct State {
    queue: RunQueue,
    number: u64,
    /// Who has which ticket.
    holders: HashMap<u64, Holder>,
    /// Objects that wait.
    objects: HashMap<ObjectKey, Waiting>,
    /// Places of objects that are called and have not come yet.
    ready: HashMap<ObjectKey, Place>,
}

#[derive(Debug)]
enum Holder {
    /// An object, which is called.
    Object(ObjectKey),
    /// A pass that is under way.
    Pass(oneshot::Sender<Place>),
}

#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    since: Instant,
    is_reported: bool,
}

/// What an object finds that asks for its pass.
#[derive(Debug)]
pub(super) enum Entry {
    /// A place.
    Place(Place),
    /// None yet; it will be called.
    Wait {
        /// Since when it waits.
        since: Instant,
        /// Whether its wait was reported.
        is_reported: bool,
    },
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    shared: Arc<Shared>,
    namespace: String,
    lane: Option<Lane>,
    is_pass: bool,
}

impl Place {
    /// Leaves the lane, for whoever waits there. The pass goes on.
    pub(super) fn leave(&mut self) {
        let Some(lane) = self.lane.take() else { return };
        self.shared
            .change(None, |state| state.queue.leave(&self.namespace, &lane));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let lane = self.lane.take();
        if lane.is_none() && !self.is_pass {
            return;
        }
        self.shared.change(None, |state| {
            if let Some(lane) = &lane {
                state.queue.leave(&self.namespace, lane);
            }
            if self.is_pass {
                state.queue.end(&self.namespace);
            }
        });
    }
}

impl Places {
    /// With so many places.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let (granted, calls) = unbounded();
        Self(Arc::new(Shared {
            bounds,
            state: Mutex::new(State {
                queue: RunQueue::new(bounds),
                number: 0,
                holders: HashMap::new(),
                objects: HashMap::new(),
                ready: HashMap::new(),
            }),
            granted,
            calls: Mutex::new(Some(calls)),
        }))
    }

    /// The objects whose place is free now, each once for each time that it had to wait. To be taken once: a second stream
    /// is empty.
    pub fn granted(&self) -> impl Stream<Item = ObjectKey> + Send + 'static {
        let calls = self.0.calls.lock().unwrap_or_else(PoisonError::into_inner).take();
        calls.unwrap_or_else(|| unbounded().1)
    }

    /// A place for a pass over the object, or one in the queue. An object that waits already and asks for something else
    /// waits for that from now on.
    pub(super) fn enter(&self, key: &ObjectKey, request: &Request) -> Entry {
        let (found, unwanted) = {
            let mut state = self.0.lock();
            match state.ready.remove(key) {
                Some(place) if place.lane.as_ref() == Some(&request.lane) => (Some(place), None),
                unwanted => (None, unwanted),
            }
        };
        // Outside the lock, which its end takes.
        drop(unwanted);
        if let Some(place) = found {
            return Entry::Place(place);
        }
        self.0.change(Some(key), |state| state.enqueue(key, request));
        let mut state = self.0.lock();
        if let Some(waiting) = state.objects.get(key) {
            return Entry::Wait {
                since: waiting.since,
                is_reported: waiting.is_reported,
            };
        }
        match state.ready.remove(key) {
            Some(place) => Entry::Place(place),
            // Its place came and was taken back in this very moment: the object is gone.
            None => Entry::Wait {
                since: Instant::now(),
                is_reported: true,
            },
        }
    }

    /// Waits for a place beside the one that a pass has already.
    pub(super) async fn beside(&self, namespace: &str, lane: Lane) -> Option<Place> {
        let (sender, place) = oneshot::channel();
        self.0.change(None, |state| {
            let ticket = state.ticket(namespace, lane, false, false);
            state.holders.insert(ticket.number, Holder::Pass(sender));
            state.queue.push(ticket);
        });
        place.await.ok()
    }

    /// How long an object waits before it reports that it does.
    pub(super) fn report_after(&self) -> Duration {
        self.0.bounds.report_after
    }

    /// The wait of an object was reported.
    pub(super) fn reported(&self, key: &ObjectKey) {
        if let Some(waiting) = self.0.lock().objects.get_mut(key) {
            waiting.is_reported = true;
        }
    }

    /// Forgets an object that is gone.
    pub(super) fn forget(&self, key: &ObjectKey) {
        let place = {
            let mut state = self.0.lock();
            if let Some(waiting) = state.objects.remove(key) {
                state.holders.remove(&waiting.ticket.number);
                state.queue.remove(&waiting.ticket);
            }
            state.ready.remove(key)
        };
        drop(place);
    }

    /// What somebody waits for, in words.
    pub(super) fn explain(&self, lane: &Lane) -> String {
        let limit = self.0.bounds.limit(lane);
        format!("{WAITING} {lane}: other objects hold all of its {limit} places")
    }

    /// Places of a lane that are held, and how many wait for one.
    pub(super) fn load(&self, lane: &Lane) -> (usize, usize) {
        self.0.lock().queue.load(lane)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and gives out what places there are then. Whoever gets one is told outside the lock: a place that
    /// nobody takes comes back by the same way. An object that asks in this moment need not be called.
    fn change(self: &Arc<Self>, caller: Option<&ObjectKey>, change: impl FnOnce(&mut State)) {
        let mut passes = Vec::new();
        {
            let mut state = self.lock();
            change(&mut state);
            while let Some(ticket) = state.queue.next() {
                let place = Place {
                    shared: Arc::clone(self),
                    is_pass: ticket.begins && ticket.lane.is_host(),
                    namespace: ticket.namespace,
                    lane: Some(ticket.lane),
                };
                match state.holders.remove(&ticket.number) {
                    Some(Holder::Object(key)) => {
                        state.objects.remove(&key);
                        state.ready.insert(key.clone(), place);
                        if caller != Some(&key) {
                            // Nobody reads it any more: the controller is at its end.
                            drop(self.granted.unbounded_send(key));
                        }
                    }
                    Some(Holder::Pass(sender)) => passes.push((sender, place)),
                    None => passes.push((oneshot::channel().0, place)),
                }
            }
        }
        for (sender, place) in passes {
            drop(sender.send(place));
        }
    }
}

impl State {
    fn ticket(&mut self, namespace: &str, lane: Lane, is_urgent: bool, begins: bool) -> Ticket {
        self.number += 1;
        Ticket {
            number: self.number,
            namespace: namespace.to_owned(),
            lane,
            is_urgent,
            begins,
        }
    }

    fn enqueue(&mut self, key: &ObjectKey, request: &Request) {
        let mut since = Instant::now();
        let mut is_reported = false;
        if let Some(waiting) = self.objects.remove(key) {
            let held = &waiting.ticket;
            if held.lane == request.lane && held.is_urgent >= request.is_urgent {
                self.objects.insert(key.clone(), waiting);
                return;
            }
            self.holders.remove(&held.number);
            self.queue.remove(held);
            (since, is_reported) = (waiting.since, waiting.is_reported);
        }
        let ticket = self.ticket(&key.namespace, request.lane.clone(), request.is_urgent, true);
        self.holders.insert(ticket.number, Holder::Object(key.clone()));
        self.queue.push(ticket.clone());
        let waiting = Waiting {
            ticket,
            since,
            is_reported,
        };
        self.objects.insert(key.clone(), waiting);
    }
}

#[cfg(test)]
mod tests;
