//! Connections that have not shown the token yet. Any user of the machine can open them: they are few, and the oldest gives
//! way to a new one.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

/// All of them.
#[derive(Debug)]
pub(super) struct PendingConnections {
    limit: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    /// By age.
    waiting: BTreeMap<u64, CancellationToken>,
}

impl PendingConnections {
    /// At most `limit` at a time.
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            inner: Mutex::default(),
        })
    }

    /// Adds a connection; where there are too many, the oldest is dropped.
    pub(super) fn enter(self: &Arc<Self>) -> PendingConnection {
        let mut inner = self.lock();
        while inner.waiting.len() >= self.limit {
            if let Some((_, oldest)) = inner.waiting.pop_first() {
                oldest.cancel();
            }
        }
        let id = inner.next;
        inner.next += 1;
        let dropped = CancellationToken::new();
        inner.waiting.insert(id, dropped.clone());
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

/// One of them, until it is authenticated or dropped.
#[derive(Debug)]
pub(super) struct PendingConnection {
    id: u64,
    dropped: CancellationToken,
    all: Arc<PendingConnections>,
}

impl PendingConnection {
    /// The token was shown: the connection may stay.
    pub(super) fn authenticate(&self) {
        self.all.lock().waiting.remove(&self.id);
    }

    /// Ends when the connection has to go: it gave way, or it was not authenticated in `limit`.
    pub(super) async fn ended(&self, limit: Duration) {
        tokio::select! {
            () = self.dropped.cancelled() => return,
            () = tokio::time::sleep(limit) => {}
        }
        if !self.all.lock().waiting.contains_key(&self.id) && !self.dropped.is_cancelled() {
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
    fn the_oldest_gives_way_and_an_authenticated_one_never() {
        let all = PendingConnections::new(2);
        let (known, old) = (all.enter(), all.enter());
        known.authenticate();
        let (third, fourth) = (all.enter(), all.enter());
        assert!(old.dropped.is_cancelled());
        assert!(
            !known.dropped.is_cancelled() && !third.dropped.is_cancelled() && !fourth.dropped.is_cancelled()
        );
        drop(third);
        let fifth = all.enter();
        assert!(!fourth.dropped.is_cancelled() && !fifth.dropped.is_cancelled());
    }
}
