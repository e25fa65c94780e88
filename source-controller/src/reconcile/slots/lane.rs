//! The resources that reconciliations compete for: a host on one route, packing, or only local work.

use kube::ResourceExt as _;
use sluice_api::source::{FINALIZER, GitRepository};
use sluice_runtime::finalizer;
use sluice_runtime::schedule::ObjectKey;

use super::super::{observe, resolve};

/// A limited resource with its own queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in super::super) enum Lane {
    /// Only the Kubernetes API and the disk: for objects that are deleted, suspended or need a finalizer.
    Local,
    /// A host. Each proxy has its own lane, since a proxy may hang while the host responds.
    Host {
        /// Name and port of the host, as in the URL.
        host: String,
        /// The Secret in `spec.proxySecretRef`.
        proxy: Option<ObjectKey>,
    },
    /// Packing of artifacts.
    Packing,
}

impl Lane {
    /// Returns the lane for the next reconciliation, derived from the spec.
    pub(in super::super) fn of(object: &GitRepository) -> Self {
        let is_local = object.metadata.deletion_timestamp.is_some()
            || object.spec.suspend
            || !finalizer::is_present(object, FINALIZER);
        if is_local {
            return Self::Local;
        }
        let proxy = object.spec.proxy_secret_ref.as_ref().map(|reference| ObjectKey {
            namespace: object.namespace().unwrap_or_default(),
            name: reference.name.clone(),
        });
        Self::Host {
            host: resolve::host(&object.spec),
            proxy,
        }
    }

    /// Returns whether the lane counts towards the limit of reconciliations at hosts.
    pub(super) const fn is_host(&self) -> bool {
        matches!(self, Self::Host { .. })
    }
}

impl std::fmt::Display for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Local => f.write_str("this controller"),
            Self::Host { host, proxy: None } => f.write_str(host),
            Self::Host {
                host,
                proxy: Some(proxy),
            } => write!(f, "{host} by the proxy of secret '{proxy}'"),
            Self::Packing => f.write_str("packing"),
        }
    }
}

/// A request for a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct SlotRequest {
    /// The lane.
    pub(in super::super) lane: Lane,
    /// Whether a user waits for the result, because of a request or an edit.
    pub(in super::super) is_urgent: bool,
}

impl SlotRequest {
    /// Returns the request for the object's next reconciliation.
    pub(in super::super) fn of(object: &GitRepository) -> Self {
        Self {
            lane: Lane::of(object),
            is_urgent: observe::is_awaited(object),
        }
    }
}
