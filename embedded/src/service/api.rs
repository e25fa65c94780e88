//! The shared state of all requests: a file of its own, because every module of the service uses it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::resource::Registry;
use crate::store::Store;

/// The shared state of all requests.
#[derive(Debug)]
pub(crate) struct Api {
    /// The objects.
    pub(crate) store: Arc<Store>,
    /// The kinds.
    pub(crate) registry: Registry,
    /// Ends watches and background tasks.
    pub(crate) stop: CancellationToken,
}
