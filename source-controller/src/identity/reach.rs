//! What an exchange with a provider is made with.

use jiff::Timestamp;
use kube::Client;

use super::call::Pool;

/// Connections and time of one exchange. Cheap to clone, so that an exchange may outlive the pass that began it.
#[derive(Clone)]
pub(super) struct Reach {
    /// To providers: with the object's proxy and authorities, if it names any.
    pub(super) pool: Pool,
    /// To endpoints of the own machine, never through a proxy.
    pub(super) nearby: Pool,
    /// To the API server, for tokens of ServiceAccounts.
    pub(super) kube: Client,
    /// When the exchange began.
    pub(super) now: Timestamp,
}
