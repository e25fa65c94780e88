//! A limit on the connections of a server. A new connection evicts the one that has been idle longest, so that clients that
//! keep connections open cannot block a probe.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::shutdown::Token;
use crate::sync::lock;

/// The connections of one server; cheap to clone.
#[derive(Clone, Debug)]
pub struct ConnectionLimit {
    most: usize,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    /// Logical clock of changes.
    steps: u64,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// Whether a response is in progress.
    busy: bool,
    /// Time of its last change.
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

    /// Returns the connection to evict: an idle one before a busy one, and of those the one with the oldest change.
    fn eviction_candidate(&self) -> Option<u64> {
        let first = self
            .entries
            .iter()
            .min_by_key(|(_, held)| (held.busy, held.changed));
        first.map(|(id, _)| *id)
    }
}

impl ConnectionLimit {
    /// Creates an empty limit of at most `most` connections.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            table: Arc::default(),
        }
    }

    /// Takes a slot for a new connection. If all slots are taken, evicts the connection that has been idle longest, or else
    /// the one that has been busy longest.
    #[must_use]
    pub fn admit(&self) -> ConnectionSlot {
        let mut table = lock(&self.table);
        while table.entries.len() >= self.most {
            let gone = table
                .eviction_candidate()
                .and_then(|id| table.entries.remove(&id));
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
        ConnectionSlot(Arc::new(SlotInner { id, table, dropped }))
    }
}

/// The slot of one connection, released when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct ConnectionSlot(Arc<SlotInner>);

#[derive(Debug)]
struct SlotInner {
    id: u64,
    table: Arc<Mutex<Table>>,
    dropped: Token,
}

impl Drop for SlotInner {
    fn drop(&mut self) {
        lock(&self.table).entries.remove(&self.id);
    }
}

impl ConnectionSlot {
    /// Waits until a newer connection takes the slot.
    pub async fn evicted(&self) {
        self.0.dropped.cancelled().await;
    }

    /// Marks the connection as busy until the guard is dropped.
    #[must_use]
    pub fn begin_response(&self) -> ResponseGuard {
        lock(&self.0.table).change(self.0.id, true);
        ResponseGuard(self.clone())
    }
}

/// A response in progress on a connection.
#[derive(Debug)]
pub struct ResponseGuard(ConnectionSlot);

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        let held = &self.0.0;
        lock(&held.table).change(held.id, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_lost(slot: &ConnectionSlot) -> bool {
        slot.0.dropped.is_cancelled()
    }

    #[test]
    fn the_longest_idle_connection_is_evicted_first() {
        let connections = ConnectionLimit::new(3);
        let [first, second, third] = [(); 3].map(|()| connections.admit());
        // The first one was used last, the second one is being answered.
        drop(first.begin_response());
        let answer = second.begin_response();
        let fourth = connections.admit();
        assert_eq!(
            [&first, &second, &third, &fourth].map(is_lost),
            [false, false, true, false]
        );
        let fifth = connections.admit();
        assert_eq!(
            [&first, &second, &fourth, &fifth].map(is_lost),
            [true, false, false, false]
        );
        drop(answer);
        // What ended lately is idle for the shortest time.
        let sixth = connections.admit();
        assert_eq!(
            [&second, &fourth, &fifth, &sixth].map(is_lost),
            [false, true, false, false]
        );
    }

    #[test]
    fn a_released_slot_evicts_no_connection() {
        let connections = ConnectionLimit::new(1);
        drop(connections.admit());
        let held = connections.admit();
        assert!(!is_lost(&held));
        let busy = held.begin_response();
        let _newer = connections.admit();
        assert!(is_lost(&held), "all are busy: the oldest goes");
        drop(busy);
    }
}
