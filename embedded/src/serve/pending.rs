//! Connections that are not yet authenticated. Any local user can open them, so their number is limited: a new connection
//! replaces the oldest.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// The pending connections of a server.
#[derive(Debug)]
pub(super) struct PendingConnections {
    limit: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    /// By age, oldest first.
    connections: BTreeMap<u64, CancellationToken>,
}

impl PendingConnections {
    /// Creates a set of at most `limit` connections.
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            inner: Mutex::default(),
        })
    }

    /// Adds a connection; at the limit it drops the oldest.
    pub(super) fn add(self: &Arc<Self>) -> PendingConnection {
        let mut inner = self.lock();
        while inner.connections.len() >= self.limit {
            if let Some((_, oldest)) = inner.connections.pop_first() {
                oldest.cancel();
            }
        }
        let id = inner.next;
        inner.next += 1;
        let dropped = CancellationToken::new();
        inner.connections.insert(id, dropped.clone());
        PendingConnection {
            id,
            dropped,
            all: self.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection until it is authenticated or dropped.
#[derive(Debug)]
pub(super) struct PendingConnection {
    id: u64,
    dropped: CancellationToken,
    all: Arc<PendingConnections>,
}

impl PendingConnection {
    /// Marks the connection as authenticated.
    pub(super) fn authenticate(&self) {
        self.all.lock().connections.remove(&self.id);
    }

    /// Completes when the connection must be closed: it was replaced, or not authenticated within `limit`.
    pub(super) async fn closed(&self, limit: Duration) {
        tokio::select! {
            () = self.dropped.cancelled() => return,
            () = tokio::time::sleep(limit) => {}
        }
        if !self.all.lock().connections.contains_key(&self.id) && !self.dropped.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        self.authenticate();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_connection_replaces_the_oldest_pending_one() {
        let all = PendingConnections::new(2);
        let (authenticated, old) = (all.add(), all.add());
        authenticated.authenticate();
        let (third, fourth) = (all.add(), all.add());
        assert!(old.dropped.is_cancelled());
        assert!(
            !authenticated.dropped.is_cancelled()
                && !third.dropped.is_cancelled()
                && !fourth.dropped.is_cancelled()
        );
        drop(third);
        let fifth = all.add();
        assert!(!fourth.dropped.is_cancelled() && !fifth.dropped.is_cancelled());
    }
}
