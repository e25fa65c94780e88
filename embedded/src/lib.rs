//! A Kubernetes API without a cluster, as a tower service.
//!
//! [`Server`] builds an [`Embedded`] API from custom resource definitions and a [`Store`]. [`Embedded::client`] gives an
//! in-process [`kube::Client`]; [`Embedded::serve`] puts the same API on a socket, over TLS, for `kubectl` and other programs.
//!
//! # What is served
//! Namespaces, Secrets, ConfigMaps, Events, ServiceAccounts (core/v1), Events (events.k8s.io/v1), Leases
//! (coordination.k8s.io/v1), self reviews (authentication.k8s.io/v1, authorization.k8s.io/v1), the definitions themselves
//! (apiextensions.k8s.io/v1, read-only) and every version of the custom resources given at build.
//!
//! # Deviations from kube-apiserver
//! * `managedFields` are not kept: there is no server-side apply (415), so nothing would read them.
//! * Lists are never chunked: `limit` is ignored, which the API allows, and a `continue` token is refused.
//! * Aggregated discovery is answered with the plain one.
//! * Protobuf is read for the kinds that `kubectl create` sends in it, and never written: every client reads JSON too.
//! * Garbage collection and namespace deletion, a cluster's controller-manager, run inside the server.
//! * There is one user, who may do everything and can lend parts of that ([`Grant`]); RBAC objects are not served.

mod admit;
mod age;
pub mod builtin;
mod gc;
mod grant;
mod jsonpath;
mod meta;
mod resource;
pub mod schema;
mod seed;
mod selector;
mod serve;
mod server;
mod service;
mod store;
mod upkeep;

pub use grant::{Grant, GrantRule};
pub use serve::{Lender, ServeError, Serving};
pub use server::{BuildError, Builder, Embedded, Server};
pub use store::{BadRecord, Inspection, StorageHealth, Store, StoreError, discard, inspect};
