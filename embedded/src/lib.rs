//! A Kubernetes API server without a cluster, as a tower service.
//!
//! [`ApiServer::builder`] takes custom resource definitions and a [`Store`]. [`ApiServer::client`] returns an in-process
//! [`kube::Client`]; [`ApiServer::serve`] serves the same API over TLS, for `kubectl` and other programs.
//!
//! # Resources
//! Namespaces, Secrets, ConfigMaps, Events, ServiceAccounts (core/v1), Events (events.k8s.io/v1), Leases
//! (coordination.k8s.io/v1), reviews and token requests (authentication.k8s.io/v1, authorization.k8s.io/v1), roles and
//! bindings (rbac.authorization.k8s.io/v1), the CustomResourceDefinitions themselves (apiextensions.k8s.io/v1) and every version of the custom resources.
//!
//! # Deviations from kube-apiserver
//! * A `continue` token belongs to its list, and is refused by another one. Earlier versions of a list, for later pages and for
//!   `resourceVersionMatch=Exact`, come from the watch cache, which is shorter than the history of etcd.
//! * Protobuf is decoded for the built-in kinds, because client-go sends them in it, but never encoded: every client reads JSON.
//! * Garbage collection and namespace deletion, tasks of the controller-manager, run inside the server.
//! * Definitions that the program contains or reads from files are read-only ([`read_only_definition`]); conversion is `None` only.
//! * Users are ServiceAccounts with tokens, holders of client certificates, and the administrator; requests in process are those of
//!   the administrator. The administrator can also issue limited credentials ([`Grant`]), to which roles do not apply.
//! * The rules of aggregated ClusterRoles are in effect, but not written into the objects.

mod account_token;
mod admission;
mod age;
mod apply;
mod bootstrap;
mod builtin;
mod cause;
mod definitions;
mod depth;
mod gc;
mod grant;
mod invalid_files;
mod jsonpath;
mod maintenance;
mod meta;
mod names;
mod rbac;
mod requester;
mod resource;
mod revisions;
mod schema;
mod selector;
mod serve;
mod server;
mod service;
mod status_error;
mod store;
mod yaml;

pub use definitions::{DefinitionProblem, read_only_definition};
pub use grant::{ADMIN_GROUPS, ADMIN_USER, Grant, GrantRule};
pub use serve::{CredentialIssuer, ServeError, TlsServer};
pub use server::{ApiServer, ApiServerBuilder, BuildError};
pub use service::UserFields;
pub use store::{
    BadRecord, GitOptions, Inspection, SharedKind, StatusLocation, StorageHealth, Store, StoreError, discard,
    inspect,
};
pub use yaml::{YamlError, parse as parse_yaml};
