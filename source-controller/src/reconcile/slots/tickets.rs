//! The waiting tickets of one kind: of objects that start, or of running reconciliations.
//!
//! The namespaces take turns; within a namespace, the oldest ticket that can be granted is next. `queue` decides between
//! the kinds.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::lane::Lane;

/// A queue entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) number: u64,
    pub(super) namespace: String,
    pub(super) lane: Lane,
    pub(super) is_urgent: bool,
    /// Whether the ticket starts a reconciliation, or belongs to a running one.
    pub(super) starts_reconciliation: bool,
}

impl Ticket {
    /// Whether the ticket starts a reconciliation that counts towards [`super::SlotLimits::reconciliations`].
    pub(super) const fn starts_at_host(&self) -> bool {
        self.starts_reconciliation && self.lane.is_host()
    }
}

/// The tickets of one namespace by urgency and lane, oldest first.
type NamespaceQueue = BTreeMap<(bool, Lane), VecDeque<Ticket>>;

/// The waiting tickets of one kind. Those of one namespace, urgency and lane have capacity at the same time, so a ticket
/// that leaves lets no other pass.
#[derive(Debug, Default)]
pub(super) struct WaitingTickets {
    by_namespace: HashMap<String, NamespaceQueue>,
    /// The waiting namespaces; the front is next.
    rotation: VecDeque<String>,
}

impl WaitingTickets {
    pub(super) fn push(&mut self, ticket: Ticket) {
        if !self.by_namespace.contains_key(&ticket.namespace) {
            self.rotation.push_back(ticket.namespace.clone());
        }
        let waiting = self.by_namespace.entry(ticket.namespace.clone()).or_default();
        let key = (ticket.is_urgent, ticket.lane.clone());
        waiting.entry(key).or_default().push_back(ticket);
    }

    /// Removes a ticket without a slot.
    pub(super) fn remove(&mut self, ticket: &Ticket) {
        let Some(waiting) = self.by_namespace.get_mut(&ticket.namespace) else {
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
            self.by_namespace.remove(&ticket.namespace);
            self.rotation.retain(|namespace| *namespace != ticket.namespace);
        }
    }

    /// Moves a namespace to the back of the rotation, if it waits.
    pub(super) fn end_turn(&mut self, namespace: &str) {
        if let Some(at) = self.rotation.iter().position(|other| *other == namespace) {
            let namespace = self.rotation.remove(at);
            self.rotation.extend(namespace);
        }
    }

    /// Takes the next ticket of this urgency that can be granted, and ends the turn of its namespace.
    pub(super) fn take_next(
        &mut self,
        is_urgent: bool,
        can_grant: impl Fn(&Ticket) -> bool,
    ) -> Option<Ticket> {
        let (namespace, queue) = self.find_next(is_urgent, can_grant)?;
        self.pop(namespace, queue)
    }

    /// Returns where the next ticket of this urgency that can be granted is: the number of its namespace in the rotation,
    /// and that of its queue in the namespace.
    fn find_next(&self, is_urgent: bool, can_grant: impl Fn(&Ticket) -> bool) -> Option<(usize, usize)> {
        self.rotation.iter().enumerate().find_map(|(at, namespace)| {
            let queues = self.by_namespace.get(namespace)?.iter().enumerate();
            let queues = queues.filter(|(_, ((urgent, _), _))| *urgent == is_urgent);
            let heads = queues.filter_map(|(queue, (_, tickets))| Some((queue, tickets.front()?)));
            let free = heads.filter(|(_, ticket)| can_grant(ticket));
            let (queue, _) = free.min_by_key(|(_, ticket)| ticket.number)?;
            Some((at, queue))
        })
    }

    /// Takes the first ticket of a queue. Its namespace moves to the back of the rotation, or leaves it without tickets.
    fn pop(&mut self, namespace: usize, queue: usize) -> Option<Ticket> {
        let namespace = self.rotation.remove(namespace)?;
        let queues = self.by_namespace.get_mut(&namespace)?;
        let (_, tickets) = queues.iter_mut().nth(queue)?;
        let ticket = tickets.pop_front()?;
        if tickets.is_empty() {
            queues.retain(|_, tickets| !tickets.is_empty());
        }
        if queues.is_empty() {
            self.by_namespace.remove(&namespace);
        } else {
            self.rotation.push_back(namespace);
        }
        Some(ticket)
    }

    /// Returns the number of tickets in a lane.
    pub(super) fn count(&self, lane: &Lane) -> usize {
        let all = self.by_namespace.values().flatten();
        let waiting = all
            .filter(|((_, other), _)| other == lane)
            .map(|(_, tickets)| tickets.len());
        waiting.sum()
    }
}
