//! The sluice program: up, everything in one process, without a cluster.

pub mod manifests;
pub mod view;
