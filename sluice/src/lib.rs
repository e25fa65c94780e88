//! The `sluice` program: `sluice up` runs everything in one process, without a cluster.

pub mod apply;
pub mod local_plan;
pub mod manifests;
pub mod record;
mod screen;
pub mod state;
pub mod three_way;
pub mod up;
pub mod view;
