//! The shared state of all requests: a file of its own, because every module of the service uses it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::resource::Registry;
use crate::store::Store;

/// How long a write of a definition waits until its kind is served.
const SERVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The shared state of all requests.
#[derive(Debug)]
pub(crate) struct Api {
    /// The objects.
    pub(crate) store: Arc<Store>,
    /// The kinds; replaced as a whole when a definition changes.
    registry: watch::Sender<Arc<Registry>>,
    /// The definitions up to this revision are served.
    served_revision: watch::Sender<u64>,
    /// Ends watches and background tasks.
    pub(crate) stop: CancellationToken,
}

impl Api {
    /// Creates the state of a server with these kinds.
    pub(crate) fn new(store: Arc<Store>, registry: Arc<Registry>) -> Self {
        Self {
            store,
            registry: watch::Sender::new(registry),
            served_revision: watch::Sender::new(0),
            stop: CancellationToken::new(),
        }
    }

    /// Returns the present kinds. A request takes them once.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.registry.borrow().clone()
    }

    /// Replaces the kinds.
    pub(crate) fn replace_registry(&self, registry: Arc<Registry>) {
        self.registry.send_replace(registry);
    }

    /// Subscribes to changes of the kinds.
    pub(crate) fn subscribe_to_registry(&self) -> watch::Receiver<Arc<Registry>> {
        self.registry.subscribe()
    }

    /// Says that the definitions up to this revision are served.
    pub(crate) fn set_served_revision(&self, revision: u64) {
        self.served_revision.send_replace(revision);
    }

    /// Waits until the definitions that are stored now are served.
    pub(crate) async fn wait_until_served(&self) {
        let stored = self.store.read().revision();
        let mut served = self.served_revision.subscribe();
        let reached = async { served.wait_for(|revision| *revision >= stored).await.is_ok() };
        tokio::select! {
            _ = reached => {}
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(SERVE_TIMEOUT) => {
                tracing::warn!("a definition is stored and not served yet");
            }
        }
    }
}
