//! Who is next: a pure decision over what is held and who waits.
//!
//! Passes that people wait for come first, but no more than [`MOST_IN_A_ROW`] of them while others wait. Among each of the
//! two kinds namespaces take turns, and within a namespace the one that waits longest is next, of those whose lane has a
//! place. A namespace that holds no place of a full lane may take one beyond the limit, up to twice the limit in all: so
//! passes that hang delay no other namespace, and where nothing hangs every place is used.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use super::lane::Lane;

/// Urgent passes that begin one after the other while others wait.
const MOST_IN_A_ROW: u32 = 3;

/// An object that waits longer than this reports it.
const REPORT_AFTER: Duration = Duration::from_secs(30);

/// How many places there are.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Passes at one host on one way.
    pub per_host: usize,
    /// Passes at hosts in all, and passes that need none.
    pub passes: usize,
    /// Artifacts packed at once.
    pub packing: usize,
    /// How long an object waits before it reports that it does.
    pub report_after: Duration,
}

impl Bounds {
    /// The usual share of passes at one host, of so many passes in all.
    #[must_use]
    pub fn of(passes: usize, packing: usize) -> Self {
        Self {
            per_host: (passes / 4).max(1),
            passes: passes.max(1),
            packing: packing.max(1),
            report_after: REPORT_AFTER,
        }
    }

    /// Places of a lane.
    pub(super) const fn limit(&self, lane: &Lane) -> usize {
        match lane {
            Lane::Local => self.passes,
            Lane::Host { .. } => self.per_host,
            Lane::Packing => self.packing,
        }
    }
}

/// Somebody who waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) number: u64,
    pub(super) namespace: String,
    pub(super) lane: Lane,
    pub(super) is_urgent: bool,
    /// Whether a pass begins with it, which counts towards [`Bounds::passes`]; otherwise the pass is under way already.
    pub(super) begins: bool,
}

/// Places that are held.
#[derive(Debug, Default)]
struct Held {
    total: usize,
    by: HashMap<String, usize>,
}

impl Held {
    fn has_room(&self, limit: usize, namespace: &str) -> bool {
        self.total < limit || (self.total < limit.saturating_mul(2) && !self.by.contains_key(namespace))
    }

    fn take(&mut self, namespace: &str) {
        self.total += 1;
        *self.by.entry(namespace.to_owned()).or_default() += 1;
    }

    fn give_back(&mut self, namespace: &str) {
        self.total = self.total.saturating_sub(1);
        if let Some(held) = self.by.get_mut(namespace) {
            *held -= 1;
            if *held == 0 {
                self.by.remove(namespace);
            }
        }
    }
}

/// Who waits of one namespace, by urgency and lane, in the order in which they came.
type Waiting = BTreeMap<(bool, Lane), VecDeque<Ticket>>;

/// The queue of all lanes.
#[derive(Debug)]
pub(super) struct RunQueue {
    bounds: Bounds,
    lanes: HashMap<Lane, Held>,
    /// Passes at hosts.
    passes: Held,
    waiting: HashMap<String, Waiting>,
    /// The namespaces that wait, in turn.
    turns: VecDeque<String>,
    urgent_in_a_row: u32,
}

impl RunQueue {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            lanes: HashMap::new(),
            passes: Held::default(),
            waiting: HashMap::new(),
            turns: VecDeque::new(),
            urgent_in_a_row: 0,
        }
    }

    pub(super) fn push(&mut self, ticket: Ticket) {
        if !self.waiting.contains_key(&ticket.namespace) {
            self.turns.push_back(ticket.namespace.clone());
        }
        let waiting = self.waiting.entry(ticket.namespace.clone()).or_default();
        let key = (ticket.is_urgent, ticket.lane.clone());
        waiting.entry(key).or_default().push_back(ticket);
    }

    /// Takes back a ticket that has not had its place.
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
            self.turns.retain(|namespace| *namespace != ticket.namespace);
        }
    }

    /// Gives a place to whoever is next, if there is one for anybody.
    pub(super) fn next(&mut self) -> Option<Ticket> {
        let order = if self.urgent_in_a_row < MOST_IN_A_ROW {
            [true, false]
        } else {
            [false, true]
        };
        let ticket = order.into_iter().find_map(|urgent| self.first(urgent))?;
        self.remove(&ticket);
        self.urgent_in_a_row = if ticket.is_urgent {
            self.urgent_in_a_row + 1
        } else {
            0
        };
        // Its turn is over.
        if let Some(at) = self
            .turns
            .iter()
            .position(|namespace| *namespace == ticket.namespace)
        {
            let namespace = self.turns.remove(at);
            self.turns.extend(namespace);
        }
        self.lanes
            .entry(ticket.lane.clone())
            .or_default()
            .take(&ticket.namespace);
        if ticket.begins && ticket.lane.is_host() {
            self.passes.take(&ticket.namespace);
        }
        Some(ticket)
    }

    /// The first of those with this urgency that has a place.
    fn first(&self, is_urgent: bool) -> Option<Ticket> {
        self.turns.iter().find_map(|namespace| {
            let waiting = self.waiting.get(namespace)?.iter();
            let heads = waiting.filter(|((urgent, _), _)| *urgent == is_urgent);
            let heads = heads.filter_map(|(_, tickets)| tickets.front());
            let free = heads.filter(|ticket| self.has_place_for(ticket));
            free.min_by_key(|ticket| ticket.number).cloned()
        })
    }

    fn has_place_for(&self, ticket: &Ticket) -> bool {
        let Ticket {
            lane,
            namespace,
            begins,
            ..
        } = ticket;
        let limit = self.bounds.limit(lane);
        let held = self.lanes.get(lane);
        held.is_none_or(|held| held.has_room(limit, namespace))
            && (!begins || !lane.is_host() || self.passes.has_room(self.bounds.passes, namespace))
    }

    /// A place in a lane is free again.
    pub(super) fn leave(&mut self, namespace: &str, lane: &Lane) {
        if let Some(held) = self.lanes.get_mut(lane) {
            held.give_back(namespace);
            if held.total == 0 {
                self.lanes.remove(lane);
            }
        }
    }

    /// A pass at a host is over.
    pub(super) fn end(&mut self, namespace: &str) {
        self.passes.give_back(namespace);
    }

    /// Places of a lane that are held, and tickets that wait for one.
    pub(super) fn load(&self, lane: &Lane) -> (usize, usize) {
        let held = self.lanes.get(lane).map_or(0, |held| held.total);
        let all = self.waiting.values().flatten();
        let waiting = all
            .filter(|((_, other), _)| other == lane)
            .map(|(_, tickets)| tickets.len());
        (held, waiting.sum())
    }
}
