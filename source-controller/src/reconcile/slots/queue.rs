//! The order of grants: a pure decision from slots in use and waiting tickets.
//!
//! Urgent tickets come first, but at most [`MAX_URGENT_IN_A_ROW`] of them while others wait. Within each urgency the
//! namespaces take turns; within a namespace, the oldest ticket whose lane has capacity is next. In a full lane, a
//! namespace without a slot may exceed the limit, up to twice the limit in total. So hanging reconciliations delay no
//! other namespace, and no slot stays unused otherwise.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use super::lane::{Lane, SlotRequest};

/// Maximum number of consecutive urgent grants while others wait.
const MAX_URGENT_IN_A_ROW: u32 = 3;

/// Wait after which an object reports it.
const REPORT_AFTER: Duration = Duration::from_secs(30);

/// The number of slots.
#[derive(Clone, Copy, Debug)]
pub struct SlotLimits {
    /// Concurrent reconciliations at one host on one route.
    pub per_host: usize,
    /// Concurrent reconciliations at all hosts; also the limit of the local lane.
    pub reconciliations: usize,
    /// Concurrently packed artifacts.
    pub packing: usize,
    /// Wait after which an object reports it.
    pub report_after: Duration,
}

impl SlotLimits {
    /// Returns the default limits for a total number of reconciliations.
    #[must_use]
    pub fn of(reconciliations: usize, packing: usize) -> Self {
        Self {
            per_host: (reconciliations / 4).max(1),
            reconciliations: reconciliations.max(1),
            packing: packing.max(1),
            report_after: REPORT_AFTER,
        }
    }

    /// Returns the number of slots in a lane.
    pub(super) const fn limit(&self, lane: &Lane) -> usize {
        match lane {
            Lane::Local => self.reconciliations,
            Lane::Host { .. } => self.per_host,
            Lane::Packing => self.packing,
        }
    }
}

/// A queue entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) number: u64,
    pub(super) namespace: String,
    pub(super) lane: Lane,
    pub(super) is_urgent: bool,
    /// Whether the ticket starts a reconciliation, which counts towards [`SlotLimits::reconciliations`], or belongs to
    /// a running one.
    pub(super) starts_reconciliation: bool,
}

/// Slots in use.
#[derive(Debug, Default)]
struct Usage {
    total: usize,
    by_namespace: HashMap<String, usize>,
}

impl Usage {
    fn has_capacity(&self, limit: usize, namespace: &str) -> bool {
        self.total < limit
            || (self.total < limit.saturating_mul(2) && !self.by_namespace.contains_key(namespace))
    }

    fn acquire(&mut self, namespace: &str) {
        self.total += 1;
        if let Some(usage) = self.by_namespace.get_mut(namespace) {
            *usage += 1;
        } else {
            self.by_namespace.insert(namespace.to_owned(), 1);
        }
    }

    fn release(&mut self, namespace: &str) {
        self.total = self.total.saturating_sub(1);
        if let Some(usage) = self.by_namespace.get_mut(namespace) {
            *usage -= 1;
            if *usage == 0 {
                self.by_namespace.remove(namespace);
            }
        }
    }
}

/// The tickets of one namespace by urgency and lane, oldest first.
type NamespaceQueue = BTreeMap<(bool, Lane), VecDeque<Ticket>>;

/// The queue of all lanes.
#[derive(Debug)]
pub(super) struct SlotQueue {
    limits: SlotLimits,
    lanes: HashMap<Lane, Usage>,
    /// Reconciliations at hosts.
    reconciliations: Usage,
    waiting: HashMap<String, NamespaceQueue>,
    /// The waiting namespaces; the front is next.
    rotation: VecDeque<String>,
    consecutive_urgent: u32,
}

impl SlotQueue {
    pub(super) fn new(limits: SlotLimits) -> Self {
        Self {
            limits,
            lanes: HashMap::new(),
            reconciliations: Usage::default(),
            waiting: HashMap::new(),
            rotation: VecDeque::new(),
            consecutive_urgent: 0,
        }
    }

    pub(super) fn push(&mut self, ticket: Ticket) {
        if !self.waiting.contains_key(&ticket.namespace) {
            self.rotation.push_back(ticket.namespace.clone());
        }
        let waiting = self.waiting.entry(ticket.namespace.clone()).or_default();
        let key = (ticket.is_urgent, ticket.lane.clone());
        waiting.entry(key).or_default().push_back(ticket);
    }

    /// Removes a ticket without a slot.
    pub(super) fn remove(&mut self, ticket: &Ticket) {
        let Some(waiting) = self.waiting.get_mut(&ticket.namespace) else {
            return;
        };
        let key = (ticket.is_urgent, ticket.lane.clone());
        if let Some(tickets) = waiting.get_mut(&key) {
            tickets.retain(|other| other.number != ticket.number);
            if tickets.is_empty() {
                waiting.remove(&key);
            }
        }
        if waiting.is_empty() {
            self.waiting.remove(&ticket.namespace);
            self.rotation.retain(|namespace| *namespace != ticket.namespace);
        }
    }

    /// Grants a slot to the next ticket, if any lane has capacity for one.
    pub(super) fn grant_next(&mut self) -> Option<Ticket> {
        let order = if self.consecutive_urgent < MAX_URGENT_IN_A_ROW {
            [true, false]
        } else {
            [false, true]
        };
        let (namespace, queue) = order.into_iter().find_map(|urgent| self.next_of(urgent))?;
        let ticket = self.pop(namespace, queue)?;
        let starts_at_host = ticket.starts_reconciliation && ticket.lane.is_host();
        self.take(&ticket.namespace, &ticket.lane, ticket.is_urgent, starts_at_host);
        Some(ticket)
    }

    /// Grants a slot to a new reconciliation at once, if its lane has capacity, and returns whether it did. This equals
    /// [`Self::push`] and [`Self::grant_next`], without a ticket: the tickets that wait have no capacity, since they are
    /// granted whenever there is some, and so no older ticket of this namespace and lane waits.
    pub(super) fn grant_now(&mut self, namespace: &str, request: &SlotRequest) -> bool {
        let starts_at_host = request.lane.is_host();
        let can_grant = self.can_grant(namespace, &request.lane, starts_at_host);
        if can_grant {
            // Move the namespace to the back of the rotation.
            if let Some(at) = self.rotation.iter().position(|other| *other == namespace) {
                let namespace = self.rotation.remove(at);
                self.rotation.extend(namespace);
            }
            self.take(namespace, &request.lane, request.is_urgent, starts_at_host);
        }
        can_grant
    }

    /// Takes a slot.
    fn take(&mut self, namespace: &str, lane: &Lane, is_urgent: bool, starts_at_host: bool) {
        self.consecutive_urgent = if is_urgent { self.consecutive_urgent + 1 } else { 0 };
        if let Some(usage) = self.lanes.get_mut(lane) {
            usage.acquire(namespace);
        } else {
            self.lanes.entry(lane.clone()).or_default().acquire(namespace);
        }
        if starts_at_host {
            self.reconciliations.acquire(namespace);
        }
    }

    /// Returns where the next ticket of this urgency that can get a slot is: the number of its namespace in the rotation,
    /// and that of its queue in the namespace.
    fn next_of(&self, is_urgent: bool) -> Option<(usize, usize)> {
        self.rotation.iter().enumerate().find_map(|(at, namespace)| {
            let queues = self.waiting.get(namespace)?.iter().enumerate();
            let queues = queues.filter(|(_, ((urgent, _), _))| *urgent == is_urgent);
            let heads = queues.filter_map(|(queue, (_, tickets))| Some((queue, tickets.front()?)));
            let free = heads.filter(|(_, ticket)| {
                let starts_at_host = ticket.starts_reconciliation && ticket.lane.is_host();
                self.can_grant(namespace, &ticket.lane, starts_at_host)
            });
            let (queue, _) = free.min_by_key(|(_, ticket)| ticket.number)?;
            Some((at, queue))
        })
    }

    /// Takes the first ticket of a queue. Its namespace moves to the back of the rotation, or leaves it without tickets.
    fn pop(&mut self, namespace: usize, queue: usize) -> Option<Ticket> {
        let namespace = self.rotation.remove(namespace)?;
        let queues = self.waiting.get_mut(&namespace)?;
        let (_, tickets) = queues.iter_mut().nth(queue)?;
        let ticket = tickets.pop_front()?;
        if tickets.is_empty() {
            queues.retain(|_, tickets| !tickets.is_empty());
        }
        if queues.is_empty() {
            self.waiting.remove(&namespace);
        } else {
            self.rotation.push_back(namespace);
        }
        Some(ticket)
    }

    fn can_grant(&self, namespace: &str, lane: &Lane, starts_at_host: bool) -> bool {
        let limit = self.limits.limit(lane);
        let usage = self.lanes.get(lane);
        usage.is_none_or(|usage| usage.has_capacity(limit, namespace))
            && (!starts_at_host
                || self
                    .reconciliations
                    .has_capacity(self.limits.reconciliations, namespace))
    }

    /// Releases a slot of a lane.
    pub(super) fn release(&mut self, namespace: &str, lane: &Lane) {
        if let Some(usage) = self.lanes.get_mut(lane) {
            usage.release(namespace);
            if usage.total == 0 {
                self.lanes.remove(lane);
            }
        }
    }

    /// Ends a reconciliation at a host.
    pub(super) fn end_reconciliation(&mut self, namespace: &str) {
        self.reconciliations.release(namespace);
    }

    /// Returns the number of slots in use and of waiting tickets in a lane.
    pub(super) fn load(&self, lane: &Lane) -> (usize, usize) {
        let usage = self.lanes.get(lane).map_or(0, |usage| usage.total);
        let all = self.waiting.values().flatten();
        let waiting = all
            .filter(|((_, other), _)| other == lane)
            .map(|(_, tickets)| tickets.len());
        (usage, waiting.sum())
    }
}
