//! The revisions of a store, for the background tasks that follow its changes.

use std::sync::{Arc, Weak};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::service::Api;

/// The revisions of a server's store.
#[derive(Debug)]
pub(crate) struct Revisions {
    /// Upgraded only while the task works: it must not keep the server alive.
    api: Weak<Api>,
    newest: watch::Receiver<u64>,
    stop: CancellationToken,
}

impl Revisions {
    /// Follows the revisions of a server, unless it is dropped.
    pub(crate) fn of(api: Weak<Api>) -> Option<Self> {
        let (mut newest, stop) = api
            .upgrade()
            .map(|api| (api.store.subscribe(), api.stop.clone()))?;
        // The first call of `next` returns at once, so that the task examines the present state.
        newest.mark_changed();
        Some(Self { api, newest, stop })
    }

    /// Returns the server at once for the first time, and then after each change; `None` once it is stopped or dropped.
    pub(crate) async fn next(&mut self) -> Option<Arc<Api>> {
        tokio::select! {
            () = self.stop.cancelled() => return None,
            changed = self.newest.changed() => changed.ok()?,
        }
        self.api.upgrade()
    }
}
