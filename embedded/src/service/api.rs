//! The shared state of all requests.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{resource::Registry, store::Store};

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
