//! The order of grants: a pure decision from slots in use and waiting tickets.
//!
//! A running reconciliation that waits for an additional slot comes before objects that start: it holds resources, ends
//! sooner so, and would fail at its deadline with most of its work done. Among the starts, urgent tickets come first, but
//! at most [`MAX_URGENT_IN_A_ROW`] of them while others wait. Within each kind and urgency the namespaces take turns
//! (`tickets`).
//!
//! A full lane grants slots beyond its limit in two cases, so that nothing waits for ever:
//! * A namespace without a slot gets one, up to twice the limit in total. So hanging reconciliations delay no other
//!   namespace.
//! * If only starts or only additional slots hold the lane, the other kind gets one. So additional requests without an
//!   end starve no start. And reconciliations that started at two hosts and need an additional slot at the other one do
//!   not wait for each other: only additional slots delay an additional request, and they are released without a wait for
//!   another slot.

use std::collections::HashMap;
use std::time::Duration;

use super::lane::{Lane, SlotRequest};
use super::tickets::{Ticket, WaitingTickets};

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

/// Slots of a lane in use.
#[derive(Debug, Default)]
struct LaneUsage {
    slots: Usage,
    /// The number of slots that started a reconciliation at the host. The others are additional, or the lane is no host
    /// and has one kind only.
    starts: usize,
}

impl LaneUsage {
    fn has_capacity(&self, limit: usize, namespace: &str, starts_at_host: bool) -> bool {
        let of_kind = if starts_at_host {
            self.starts
        } else {
            self.slots.total.saturating_sub(self.starts)
        };
        of_kind == 0 || self.slots.has_capacity(limit, namespace)
    }

    fn acquire(&mut self, namespace: &str, starts_at_host: bool) {
        self.slots.acquire(namespace);
        self.starts += usize::from(starts_at_host);
    }

    fn release(&mut self, namespace: &str, started_at_host: bool) {
        self.slots.release(namespace);
        self.starts = self.starts.saturating_sub(usize::from(started_at_host));
    }
}

/// Slots in use, and their limits.
#[derive(Debug)]
struct SlotsInUse {
    limits: SlotLimits,
    lanes: HashMap<Lane, LaneUsage>,
    /// Reconciliations at hosts.
    reconciliations: Usage,
}

impl SlotsInUse {
    fn can_grant(&self, namespace: &str, lane: &Lane, starts_at_host: bool) -> bool {
        let limit = self.limits.limit(lane);
        let usage = self.lanes.get(lane);
        usage.is_none_or(|usage| usage.has_capacity(limit, namespace, starts_at_host))
            && (!starts_at_host
                || self
                    .reconciliations
                    .has_capacity(self.limits.reconciliations, namespace))
    }

    fn take(&mut self, namespace: &str, lane: &Lane, starts_at_host: bool) {
        if let Some(usage) = self.lanes.get_mut(lane) {
            usage.acquire(namespace, starts_at_host);
        } else {
            let usage = self.lanes.entry(lane.clone()).or_default();
            usage.acquire(namespace, starts_at_host);
        }
        if starts_at_host {
            self.reconciliations.acquire(namespace);
        }
    }
}

/// The queue of all lanes.
#[derive(Debug)]
pub(super) struct SlotQueue {
    in_use: SlotsInUse,
    /// The tickets of running reconciliations; none is urgent.
    additional: WaitingTickets,
    /// The tickets of objects that start.
    starts: WaitingTickets,
    /// Starts only: additional grants between them neither count nor interrupt.
    consecutive_urgent: u32,
}

impl SlotQueue {
    pub(super) fn new(limits: SlotLimits) -> Self {
        Self {
            in_use: SlotsInUse {
                limits,
                lanes: HashMap::new(),
                reconciliations: Usage::default(),
            },
            additional: WaitingTickets::default(),
            starts: WaitingTickets::default(),
            consecutive_urgent: 0,
        }
    }

    pub(super) fn push(&mut self, ticket: Ticket) {
        let waiting = if ticket.starts_reconciliation {
            &mut self.starts
        } else {
            &mut self.additional
        };
        waiting.push(ticket);
    }

    /// Removes the ticket of an object that gets no slot. No other ticket has capacity by that.
    pub(super) fn remove_start(&mut self, ticket: &Ticket) {
        self.starts.remove(ticket);
    }

    /// Grants a slot to the next ticket, if any lane has capacity for one.
    pub(super) fn grant_next(&mut self) -> Option<Ticket> {
        let order = if self.consecutive_urgent < MAX_URGENT_IN_A_ROW {
            [true, false]
        } else {
            [false, true]
        };
        let in_use = &self.in_use;
        let can_grant =
            |ticket: &Ticket| in_use.can_grant(&ticket.namespace, &ticket.lane, ticket.starts_at_host());
        let mut next = self.additional.take_next(false, can_grant);
        if next.is_none() {
            next = order
                .into_iter()
                .find_map(|is_urgent| self.starts.take_next(is_urgent, can_grant));
        }
        let ticket = next?;
        if ticket.starts_reconciliation {
            self.count_urgent(ticket.is_urgent);
        }
        self.in_use
            .take(&ticket.namespace, &ticket.lane, ticket.starts_at_host());
        Some(ticket)
    }

    /// Grants a slot to a new reconciliation at once, if its lane has capacity, and returns whether it did. This equals
    /// [`Self::push`] and [`Self::grant_next`], without a ticket: the tickets that wait have no capacity, since they are
    /// granted whenever there is some, and so no older ticket of this namespace and lane waits.
    pub(super) fn grant_now(&mut self, namespace: &str, request: &SlotRequest) -> bool {
        let starts_at_host = request.lane.is_host();
        let can_grant = self.in_use.can_grant(namespace, &request.lane, starts_at_host);
        if can_grant {
            self.starts.end_turn(namespace);
            self.count_urgent(request.is_urgent);
            self.in_use.take(namespace, &request.lane, starts_at_host);
        }
        can_grant
    }

    /// Counts a start among the consecutive urgent ones.
    const fn count_urgent(&mut self, is_urgent: bool) {
        self.consecutive_urgent = if is_urgent { self.consecutive_urgent + 1 } else { 0 };
    }

    /// Releases a slot of a lane.
    pub(super) fn release(&mut self, namespace: &str, lane: &Lane, started_at_host: bool) {
        let lanes = &mut self.in_use.lanes;
        if let Some(usage) = lanes.get_mut(lane) {
            usage.release(namespace, started_at_host);
            if usage.slots.total == 0 {
                lanes.remove(lane);
            }
        }
    }

    /// Ends a reconciliation at a host.
    pub(super) fn end_reconciliation(&mut self, namespace: &str) {
        self.in_use.reconciliations.release(namespace);
    }

    /// Returns the number of slots in use and of waiting tickets in a lane.
    pub(super) fn load(&self, lane: &Lane) -> (usize, usize) {
        let usage = self.in_use.lanes.get(lane).map_or(0, |usage| usage.slots.total);
        (usage, self.starts.count(lane) + self.additional.count(lane))
    }
}
