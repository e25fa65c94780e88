//! Which connections a server keeps: at most so many. One more takes the place of the one that has been idle longest, so
//! that readers who keep connections open cannot shut out a probe.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::clock::lock;
use crate::shutdown::Token;

/// The connections of one server; cheap to clone.
#[derive(Clone, Debug)]
pub struct Connections {
    most: usize,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    /// Counts what happens to connections: a smaller number is longer ago.
    steps: u64,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// Whether an answer is being sent.
    busy: bool,
    /// The step of its last change.
    changed: u64,
    dropped: Token,
}

impl Table {
    fn step(&mut self) -> u64 {
        self.steps += 1;
        self.steps
    }

    fn change(&mut self, id: u64, busy: bool) {
        let changed = self.step();
        if let Some(entry) = self.entries.get_mut(&id) {
            (entry.busy, entry.changed) = (busy, changed);
        }
    }

    /// The connection that goes first: the idle ones before the busy ones, and of those the one whose last change is
    /// longest ago.
    fn first_to_go(&self) -> Option<u64> {
        let first = self
            .entries
            .iter()
            .min_by_key(|(_, held)| (held.busy, held.changed));
        first.map(|(id, _)| *id)
    }
}

impl Connections {
    /// None yet, and at most `most` at once.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            table: Arc::default(),
        }
    }

    /// Takes a place for a new connection. Where all are taken, the connection that has been idle longest loses its
    /// place; if none is idle, the one that has been busy longest.
    #[must_use]
    pub fn enter(&self) -> Place {
        let mut table = lock(&self.table);
        while table.entries.len() >= self.most {
            let gone = table.first_to_go().and_then(|id| table.entries.remove(&id));
            if let Some(gone) = gone {
                gone.dropped.cancel();
            }
        }
        let (id, dropped) = (table.step(), Token::new());
        let entry = Entry {
            busy: false,
            changed: id,
            dropped: dropped.clone(),
        };
        table.entries.insert(id, entry);
        let table = Arc::clone(&self.table);
        Place(Arc::new(Held { id, table, dropped }))
    }
}

/// The place of one connection. It is given back with the last clone.
#[derive(Clone, Debug)]
pub struct Place(Arc<Held>);

#[derive(Debug)]
struct Held {
    id: u64,
    table: Arc<Mutex<Table>>,
    dropped: Token,
}

impl Drop for Held {
    fn drop(&mut self) {
        lock(&self.table).entries.remove(&self.id);
    }
}

impl Place {
    /// Waits until a newer connection has taken the place.
    pub async fn lost(&self) {
        self.0.dropped.cancelled().await;
    }

    /// The connection is busy until the answer is dropped; it counts as idle from then on.
    #[must_use]
    pub fn answer(&self) -> Answer {
        lock(&self.0.table).change(self.0.id, true);
        Answer(self.clone())
    }
}

/// An answer that is being sent on a connection.
#[derive(Debug)]
pub struct Answer(Place);

impl Drop for Answer {
    fn drop(&mut self) {
        let held = &self.0.0;
        lock(&held.table).change(held.id, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_lost(place: &Place) -> bool {
        place.0.dropped.is_cancelled()
    }

    #[test]
    fn the_connection_that_has_been_idle_longest_goes_first() {
        let connections = Connections::new(3);
        let [first, second, third] = [(); 3].map(|()| connections.enter());
        // The first one was used last, the second one is being answered.
        drop(first.answer());
        let answer = second.answer();
        let fourth = connections.enter();
        assert_eq!(
            [&first, &second, &third, &fourth].map(is_lost),
            [false, false, true, false]
        );
        let fifth = connections.enter();
        assert_eq!(
            [&first, &second, &fourth, &fifth].map(is_lost),
            [true, false, false, false]
        );
        drop(answer);
        // What ended lately is idle for the shortest time.
        let sixth = connections.enter();
        assert_eq!(
            [&second, &fourth, &fifth, &sixth].map(is_lost),
            [false, true, false, false]
        );
    }

    #[test]
    fn a_place_that_is_given_back_costs_nobody_theirs() {
        let connections = Connections::new(1);
        drop(connections.enter());
        let held = connections.enter();
        assert!(!is_lost(&held));
        let busy = held.answer();
        let _newer = connections.enter();
        assert!(is_lost(&held), "all are busy: the oldest goes");
        drop(busy);
    }
}
