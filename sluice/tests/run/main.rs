//! Whole runs: the embedded Kubernetes API (over TLS for the CLI's own backend), a real CLI, artifacts over HTTP.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a fixture that cannot be made fails its test"
)]

mod access;
mod artifacts;
mod backends;
mod brought;
mod faults;
mod forged;
mod glass;
mod interruptions;
mod locks;
mod plans;
mod providers;
mod quotes;
mod silence;
mod sizes;
mod story;
mod users;
mod versions;
mod world;
