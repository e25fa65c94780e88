//! A Kubernetes API without a cluster, as a tower service.
pub mod builtin;
pub mod schema;
