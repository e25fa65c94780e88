//! A Kubernetes API without a cluster, as a tower service.
pub mod schema;
