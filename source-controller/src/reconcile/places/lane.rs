//! What passes compete for: a host on one way to it, the threads that pack, or neither.

use kube::ResourceExt as _;
use sluice_api::source::{FINALIZER, GitRepository};
use sluice_runtime::finalizer;
use sluice_runtime::schedule::ObjectKey;

use super::super::{report, resolve};

/// One bounded resource, with a queue of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in super::super) enum Lane {
    /// The API and the disk alone: the pass of an object that goes, is suspended, or gets its finalizer.
    Local,
    /// A host. A proxy may hang where the host does not, so each way to a host is a lane of its own.
    Host {
        /// Name and port, as in the URL.
        host: String,
        /// The Secret of the object's own proxy.
        proxy: Option<ObjectKey>,
    },
    /// Packing.
    Packing,
}

impl Lane {
    /// What the next pass over an object needs, by its spec alone.
    pub(in super::super) fn of(object: &GitRepository) -> Self {
        let is_local = object.metadata.deletion_timestamp.is_some()
            || object.spec.suspend
            || !finalizer::is_held(object, FINALIZER);
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

    /// Whether it counts towards the passes that wait for hosts.
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

/// What an object asks the queue for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Request {
    /// The resource.
    pub(in super::super) lane: Lane,
    /// Whether a person waits for the pass: they asked for it, or edited the object.
    pub(in super::super) is_urgent: bool,
}

impl Request {
    /// What the next pass over this object needs.
    pub(in super::super) fn of(object: &GitRepository) -> Self {
        Self {
            lane: Lane::of(object),
            is_urgent: report::is_asked_for(object) || report::is_new_generation(object),
        }
    }
}
