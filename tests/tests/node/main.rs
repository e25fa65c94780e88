//! Sluice on a real node: images, the manifests of `config`, and runs as Jobs.
//!
//! `SLUICE_CLUSTER=0` skips them: the node is built, and needs root; under `CI` nothing is skipped.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking; clippy exempts only the test functions themselves"
)]

mod attacks;
mod audit;
mod faults;
mod flux;
mod helm;
mod images;
mod install;
mod jobs;
mod logs;
mod lost_node;
mod network_policies;
mod overlays;
mod pending;
mod quick_start;
mod repos;
mod storage;
mod swap;
mod tenant;
